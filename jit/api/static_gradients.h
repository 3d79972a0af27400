// jit/api/static_gradients.h -- what training has beside inference, as what generated kernels
// compute: gradients of convolutions' weights and of pooling, statistics of batches. Nothing: the
// op stays as it is, which no kernel computes.
#pragma once

#include "jit/api/static_node.h"

namespace megjit::api {

std::optional<jit::ValueId> filter_gradient(NodeMaker& at, const runtime::OpCall& call);
std::optional<jit::ValueId> max_pool_gradient(NodeMaker& at, const runtime::OpCall& call);
std::optional<jit::ValueId> avg_pool_gradient(NodeMaker& at, const runtime::OpCall& call);
// All results of batch_norm_stats and batch_norm_grad_sums.
std::vector<jit::ValueId> batch_sums(NodeMaker& at, const runtime::OpCall& call);

}  // namespace megjit::api
