// jit/api/static_gradients.h -- writes ops that only training has as ops that generated
// kernels compute: gradients of convolutions' weights and of pooling, statistics of batches. Where
// a function gives nothing, the op stays, and no kernel computes it.
#pragma once

#include "jit/api/static_node.h"

namespace megjit::api {

std::optional<jit::ValueId> filter_gradient(NodeMaker& at, const runtime::OpCall& call);
std::optional<jit::ValueId> max_pool_gradient(NodeMaker& at, const runtime::OpCall& call);
std::optional<jit::ValueId> avg_pool_gradient(NodeMaker& at, const runtime::OpCall& call);
// Makes all results of batch_norm_stats and batch_norm_grad_sums.
std::vector<jit::ValueId> batch_sums(NodeMaker& at, const runtime::OpCall& call);

}  // namespace megjit::api
