// runtime/ops/pool.h -- the windows of a pooling as type rules and kernels see them: the op's
// attributes are read here, once.
#pragma once

#include "runtime/ops/window.h"

namespace megjit::runtime {

// The elements [begin, end) of x along one spatial axis.
struct PoolRange {
    int64_t begin = 0, end = 0;
};

struct PoolWindow {
    bool is_adaptive = false;  // place o of `out` covers [floor(o * in / out), ceil((o + 1) * in /
                               // out)); else `window` slides
    Window window = {};
    bool counts_padding = false;  // a mean divides by the whole window, padding included

    // The elements that place `o` of `out` sees on an axis of extent `in`, without the padding.
    PoolRange range(int axis, int64_t o, int64_t in, int64_t out) const;
};

PoolWindow pool_window(const OpCall& call, int dims);

}  // namespace megjit::runtime
