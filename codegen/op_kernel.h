// codegen/op_kernel.h -- the kernel of one application of an op: element-wise ops, reductions, and
// copies that strides can do.
#pragma once

#include <optional>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// Nothing for ops of other kinds, and for dtypes that no kernel computes.
std::optional<BoundKernel> kernel_of(const runtime::OpCall& call,
                                     std::span<const runtime::Type> outputs);

// Appends a reduction of value `arg` to the kernel; gives the id of the row's value, as `result`
// stores it. All operands are there already, and extents and `reduced` are set.
int add_reduction(KernelSpec& spec, Reduce kind, int arg, DType result);

}  // namespace megjit::codegen
