// jit/file/other_batch.h -- a recorded graph for another number of samples.
#pragma once

#include "jit/file/graph_file.h"

namespace megjit::jit {

// Returns the same ops where the first axis of the model's inputs, which has one extent in all of
// them, is `batch`. Attributes that hold extents follow (runtime/ops/refit.h). Throws UserError
// where the inputs have no such axis, and where an op cannot follow, with the line that recorded
// it; in a model that does not say what follows (Model::follows_batch), where one might.
Graph with_batch(const Model& model, int64_t batch);

}  // namespace megjit::jit
