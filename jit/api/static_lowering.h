// jit/api/static_lowering.h -- a graph whose ops generated kernels compute: what a device has
// libraries and kernels of its own for becomes contractions, reductions and moves.
#pragma once

#include "jit/graph.h"

namespace megjit::api {

// Before the passes that make kernels: convolutions (also transposed ones) with their gradients,
// pooling and lookups.
jit::Graph without_windows(const jit::Graph& graph);

// After them: what no pass has made a kernel of becomes one by itself, but views and what
// `is_written` names. UserError for an op that no kernel computes, with its line.
jit::Graph with_kernels(const jit::Graph& graph);

// What a program does without a kernel: joining and cutting tensors, writing parts of them,
// checking indices.
bool is_written(const jit::Node& node);

}  // namespace megjit::api
