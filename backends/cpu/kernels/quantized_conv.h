// backends/cpu/kernels/quantized_conv.h -- convolution of 8-bit integers whose weights are packed.
//
// Packing 512 x 512 x 3 x 3 weights takes 13 ms (it also sums them, for signed activations), the
// convolution at 7 x 7 0.2 ms (two cores of a Zen 5, oneDNN 3.2). So the last packed weights are
// kept, and packed again only when they change.
#pragma once

#include <span>

#include "backends/cpu/executable.h"
#include "runtime/core/op.h"

namespace megjit::cpu {

// `conv` takes the weights in the form that `pack` makes.
Prepared with_last_packed(Prepared conv, Prepared pack, size_t dense_bytes, size_t packed_bytes);

// Prepares quantized_conv by integer_conv.h.
Prepared prepare_plain_quantized_conv(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs);

}  // namespace megjit::cpu
