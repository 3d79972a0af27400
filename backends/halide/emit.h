// backends/halide/emit.h -- KernelIR to Halide's statements: the body of a KernelFn.
//
// Statements, not Funcs and schedules: a kernel takes sizes, strides and offsets of 64 bits at run
// time, and may write where it reads; a pipeline of Funcs has coordinates of 32 bits and outputs
// that overlap nothing.
#pragma once

#include <Halide.h>

#include "codegen/kernel_ir.h"

namespace megjit::halide_backend {

inline constexpr char kKernelSymbol[] = "megjit_kernel";

// `width`: how many f32 a vector register holds. The kernel must be sound (codegen::fault_of) and
// free of transcendental instructions.
Halide::Internal::LoweredFunc emit(const codegen::KernelIR& kernel, int width);

}  // namespace megjit::halide_backend
