// codegen/strides.h -- how a dense tensor is walked: strides by axis, and what broadcasting makes
// of them.
#pragma once

#include <vector>

#include "runtime/core/type.h"

namespace megjit::codegen {

// Axes in the order in which they lie in memory, outermost first.
std::vector<int> memory_order(runtime::Layout layout, int rank);

// How many elements one step along each axis of a dense tensor spans.
std::vector<int64_t> dense_strides(const runtime::Type& type);

// Strides along the axes of `space` for an operand with these strides along its own; 0 where it
// does not move.
std::vector<int64_t> broadcast_strides(const runtime::Shape& shape, const std::vector<int64_t>& own,
                                       const runtime::Shape& space);

}  // namespace megjit::codegen
