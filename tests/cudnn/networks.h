// tests/cudnn/networks.h -- the ops that NVIDIA's libraries are asked for by networks, forward and
// backward, without repetition: products and attention. Norms and pooling, which cuDNN has too, are
// kernels of ours on a card.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/products/card.h"
#include "runtime/core/op.h"

namespace megjit::cuda {

struct OpCase {
    std::string network;
    std::string op;
    runtime::Attrs attrs = {};
    std::vector<runtime::Type> inputs = {};

    std::string text() const;  // the op, its types and attributes
    runtime::OpCall call() const { return {runtime::find_op(op), attrs, inputs}; }
};

// For activations of that dtype and layout; weights of norms stay float32, epilogues stand in
// float32 alone.
std::vector<OpCase> network_cases(runtime::DType dtype, runtime::Layout layout);
std::vector<OpCase> norm_and_pool_cases(runtime::DType dtype, runtime::Layout layout);
// One of each op, small ones of all kinds.
std::vector<OpCase> sample_cases(runtime::DType dtype, runtime::Layout layout);

// Cards as NVIDIA publishes them; sm_80, sm_90 and sm_100.
CardDescription a100();
CardDescription h100();
CardDescription b200();

}  // namespace megjit::cuda
