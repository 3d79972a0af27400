// backends/cuda/kernels/texts.h -- the CUDA C++ of this folder, one text for each .cu file, and of
// the headers that the host compiles as well.
#pragma once

#include <string_view>

namespace megjit::cuda::texts {

extern const std::string_view attention, attention_gradients, attention_scores, attention_tensor,
    copy, distributions, index, labels, linalg, matmul, philox, pool, prelude, quantized_conv,
    random, scan, sort;

}  // namespace megjit::cuda::texts
