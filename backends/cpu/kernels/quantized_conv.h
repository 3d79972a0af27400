// backends/cpu/kernels/quantized_conv.h -- convolution of 8-bit integers whose weights are packed.
//
// Packing 512 x 512 x 3 x 3 weights takes 13 ms (it also sums them, for signed activations), the
// convolution at 7 x 7 0.2 ms (two cores of a Zen 5, oneDNN 3.2). So the last packed weights are
// kept, and packed again only when they change.
#pragma once

#include <span>

#include "backends/cpu/executable.h"
#include "runtime/core/op.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {

// `conv` takes the weights in the form that `pack` makes.
Prepared with_last_packed(Prepared conv, Prepared pack, size_t dense_bytes, size_t packed_bytes);

// Do channels lie together, and is each pixel multiplied alone? Then pixels are rows, which a
// matrix multiplies.
bool is_product_of_rows(const runtime::ConvProblem& problem);
inline int64_t rows_of(const runtime::ConvProblem& problem) {
    return problem.x.numel() / problem.x.shape[1];
}

// Prepares a product of few rows (recurrent_cells.h) or rows of bytes with a kernel for each
// channel (depthwise_bytes.inl), for which packing weights, or comparing them with the last ones,
// would take longer than the sums. Null for other calls.
Prepared prepare_without_packing(const runtime::OpCall& call, const runtime::ConvProblem& problem);

// Prepares quantized_conv by integer_conv.h.
Prepared prepare_plain_quantized_conv(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs);

}  // namespace megjit::cpu
