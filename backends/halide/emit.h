// backends/halide/emit.h -- turns codegen's loops into Halide's statements.
//
// These are statements, not Funcs and schedules: a kernel takes sizes, strides and offsets of 64
// bits at run time, and may write where it reads; a pipeline of Funcs has coordinates of 32 bits
// and outputs that overlap nothing.
#pragma once

#include <Halide.h>

#include "codegen/gpu_plan.h"

namespace megjit::halide_backend {

inline constexpr char kKernelSymbol[] = "megjit_kernel";

// The kernels must be sound (codegen::fault_of) and legal (codegen/legalize.h).
// Makes a codegen::KernelFn; `width`: how many f32 a vector register holds.
Halide::Internal::LoweredFunc emit(const codegen::KernelIR& kernel, int width);

struct GpuKernel {
    Halide::Internal::Stmt body;
    std::vector<Halide::Internal::DeviceArgument> arguments;  // as codegen::Parameters::all
};
// Makes a kernel for a GPU. The plan has one team a block, vectors of one element, and no parts.
GpuKernel emit_gpu(const codegen::KernelIR& kernel, const codegen::GpuPlan& plan);

}  // namespace megjit::halide_backend
