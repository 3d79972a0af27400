// jit/plan/passes/strided_view.h -- what reshapes, transposes and slices make of a value: the same
// elements, found by strides.
#pragma once

#include <optional>
#include <vector>

#include "jit/step/graph.h"

namespace megjit::jit {

// Elements of a row-major tensor: the first one's number, and strides in elements.
struct StridedView {
    int64_t offset = 0;
    std::vector<int64_t> extents = {}, strides = {};
};

StridedView whole_view(const runtime::Shape& shape);

// True for ops that move_view and move_back know, and slices, which move_view knows alone.
bool is_moved_view(const Node& node);

// Does the program say of the node's results where they stay?
inline bool is_kept(const Node& node) { return node.marks.stays || node.marks.is_offloaded; }

// Where the result of the node lies when its operand lies so. Nothing where it is a copy.
std::optional<StridedView> move_view(const Graph& graph, const Node& node, const StridedView& view);

// Where the operand of a reshape or transpose lies when its result lies so.
std::optional<StridedView> move_back(const Graph& graph, const Node& node, const StridedView& view);

// The part of the view that a slice would take, or a slice_set would write.
StridedView region_view(const StridedView& view, const runtime::Attrs& region,
                        const runtime::Shape& extents);

}  // namespace megjit::jit
