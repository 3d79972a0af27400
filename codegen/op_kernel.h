// codegen/op_kernel.h -- the kernel of one application of an op: element-wise ops, reductions, and
// copies that strides can do.
#pragma once

#include <optional>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// Nothing for ops of other kinds, and for dtypes that no kernel computes.
std::optional<BoundKernel> kernel_of(const runtime::OpCall& call,
                                     std::span<const runtime::Type> outputs);

// Makes a kernel of a contraction of real numbers: dots, in the order of the walk that its operands
// have. kernel_of does not make these: libraries are faster where they are.
std::optional<BoundKernel> contraction_kernel(const runtime::OpCall& call,
                                              std::span<const runtime::Type> outputs);

// A number as a kernel computes with it.
int constant_in(runtime::ScalarProgram& program, DType dtype, double value);
// Makes the kernel of the op full.
BoundKernel full_kernel(const runtime::OpCall& call, const runtime::Type& output);
// Makes the kernel of the op slice, which begins at element `first` of its operand.
BoundKernel slice_kernel(const runtime::OpCall& call, const runtime::Type& output, int64_t& first);

// Appends a reduction of value `arg` to the kernel; gives the id of the row's value, as `result`
// stores it. All operands are there already, and extents and `reduced` are set.
int add_reduction(KernelSpec& spec, Reduce kind, int arg, DType result);

}  // namespace megjit::codegen
