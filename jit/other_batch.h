// jit/other_batch.h -- a recorded graph for another number of samples.
#pragma once

#include "jit/graph.h"

namespace megjit::jit {

// The same ops where the first axis of inputs 0 to `inputs` - 1, which has one extent in all of
// them, is `batch`. Attributes that hold extents follow (runtime/ops/refit.h). UserError where the
// inputs have no such axis, and where an op cannot follow, with the line that recorded it.
Graph with_batch(const Graph& graph, size_t inputs, int64_t batch);

}  // namespace megjit::jit
