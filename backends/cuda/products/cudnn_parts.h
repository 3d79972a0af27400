// backends/cuda/products/cudnn_parts.h -- what the files that make graphs of our ops share.
#pragma once

#include "backends/cuda/products/cudnn_problems.h"

namespace megjit::cuda::cudnn {

using Outputs = std::span<const runtime::Type>;
using Problems = std::vector<Problem>;

// Thrown for an op that cuDNN has no graph for; problems_of catches it.
struct NoGraph {
    std::string why;
};

DataType data_type(const runtime::Type& type);

Problems attention_problems(const runtime::OpCall& call, Outputs outputs);
Problems attention_grad_problems(const runtime::OpCall& call, Outputs outputs);

}  // namespace megjit::cuda::cudnn
