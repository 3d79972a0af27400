// backends/cpu/kernels/integer_conv.h -- convolution of 8-bit integers by sums of products of pairs
// of 16 bits (vpmaddwd): exact, and an instruction has twice as many products as for float32. It is
// for CPUs without VNNI, where oneDNN would halve the weights.
//
// Input patches are widened into rows in the first-level cache and multiplied by panels of packed
// weights.
#pragma once

#include "backends/cpu/executable.h"
#include "runtime/core/op.h"

namespace megjit::cpu {

// In: x, packed weights, scale and bias of quantized_conv. Activations lie channels-last; row-major
// ones are converted in the workspace.
Prepared prepare_integer_conv(const runtime::OpCall& call, std::span<const runtime::Type> outputs);

// In: row-major weights [oc, c / groups, kernel...]. Out: packed_bytes bytes.
struct IntegerPack {
    Prepared pack;
    size_t packed_bytes = 0;
};
IntegerPack prepare_integer_pack(const runtime::OpCall& call,
                                 std::span<const runtime::Type> outputs);

}  // namespace megjit::cpu
