// runtime/ops/region.h -- a region of a tensor that is copied, and the extents around an axis: what
// kernels of every device need to know of shapes.
#pragma once

#include "runtime/core/type.h"

namespace megjit::runtime {

// Moves the elements of an N-d region; strides count elements and may be negative, and 0 where
// `from` repeats.
struct Region {
    int rank = 0;
    struct Axis {
        int64_t extent = 0, from = 0, to = 0;
    };
    Axis axes[kMaxRank] = {};
    void push(int64_t extent, int64_t from, int64_t to) { axes[rank++] = {extent, from, to}; }
    int64_t numel() const;
    // The same region without axes of extent 1, with neighbours joined where possible; at least one
    // axis is left.
    Region merged() const;
    // For a merged region: does neither side have gaps?
    bool is_block() const { return rank == 1 && axes[0].from == 1 && axes[0].to == 1; }
};

// Extents before, along and after one axis.
struct Split {
    int64_t outer = 1, length = 1, inner = 1;
};
Split split_at(const Shape& shape, int axis);

}  // namespace megjit::runtime
