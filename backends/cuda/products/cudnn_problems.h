// backends/cuda/products/cudnn_problems.h -- our ops as graphs for cuDNN.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/cuda/products/cudnn_graph.h"
#include "runtime/core/op.h"

namespace megjit::cuda::cudnn {

// Graphs that run one after the other and together compute an op. The tensors that they pass on lie
// in the workspace.
struct Problem {
    std::vector<Graph> steps = {};
    std::vector<size_t> scratch_bytes = {};

    // Adds a scratch tensor like that one.
    TensorSpec scratch(TensorSpec like);
};

// The ways to compute the op, best first. The list is empty, with the reason in `why_not`, where
// the op or its types have no graph.
std::vector<Problem> problems_of(const runtime::OpCall& call,
                                 std::span<const runtime::Type> outputs, std::string* why_not);

}  // namespace megjit::cuda::cudnn
