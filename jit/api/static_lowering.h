// jit/api/static_lowering.h -- makes a graph whose ops generated kernels compute: ops that a
// device has libraries and kernels for become contractions, reductions and moves.
#pragma once

#include "jit/step/graph.h"

namespace megjit::api {

// Runs before the passes that make kernels, on convolutions (also transposed ones) with their
// gradients, pooling and lookups.
jit::Graph without_windows(const jit::Graph& graph);

// Runs after them: each op that is in no kernel becomes one, but for views and ops that
// `is_written` names. UserError for an op that no kernel computes, with its line.
jit::Graph with_kernels(const jit::Graph& graph);

// Does a program compute the node without a kernel? It joins and cuts tensors, writes parts of them
// and checks indices.
bool is_written(const jit::Node& node);

}  // namespace megjit::api
