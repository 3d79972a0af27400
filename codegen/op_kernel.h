// codegen/op_kernel.h -- the kernel of one application of an op: of element-wise ops, reductions,
// and copies that strides can express.
#pragma once

#include <optional>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// Makes the op's kernel; nothing for ops of other kinds, and for dtypes that no kernel computes.
std::optional<BoundKernel> kernel_of(const runtime::OpCall& call,
                                     std::span<const runtime::Type> outputs);

// Makes a kernel of a contraction of real numbers: dots, in an order of walks that suits its
// operands. kernel_of does not make these, for libraries are faster where they exist.
std::optional<BoundKernel> contraction_kernel(const runtime::OpCall& call,
                                              std::span<const runtime::Type> outputs);

// Appends a number in the type in which kernels compute `dtype`.
int constant_in(runtime::ScalarProgram& program, DType dtype, double value);
// Makes the kernel of the op full.
BoundKernel full_kernel(const runtime::OpCall& call, const runtime::Type& output);
// Makes the kernel of the op slice, which begins at element `first` of its operand.
BoundKernel slice_kernel(const runtime::OpCall& call, const runtime::Type& output, int64_t& first);

// Appends a reduction of value `arg` to the kernel; returns the id of the row's value, as `result`
// stores it. All operands, extents and `reduced` must be set already.
int add_reduction(KernelSpec& spec, Reduce kind, int arg, DType result);

}  // namespace megjit::codegen
