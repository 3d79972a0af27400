// backends/mlir/gpu_emit.h -- KernelIR to a kernel of the gpu dialect, whose body is in the arith,
// math, scf, vector and llvm dialects. Threads walk as codegen::GpuPlan says, through the same
// Frame and Reducer as vectors of a CPU do.
#pragma once

#include "backends/mlir/frame.h"
#include "codegen/gpu_plan.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace megjit::mlir_backend {

inline constexpr char kGpuModule[] = "megjit";

// The kernel must be sound (codegen::fault_of) and free of transcendental instructions. Parameters
// are those of codegen::Parameters::all.
mlir::OwningOpRef<mlir::ModuleOp> emit_gpu(mlir::MLIRContext& context,
                                           const codegen::KernelIR& kernel,
                                           const codegen::GpuPlan& plan);

// Where a kernel's numbers and threads come from.
struct GpuFrame {
    mlir::ImplicitLocOpBuilder& b;
    const codegen::KernelIR& kernel;
    const codegen::GpuPlan& plan;
    LaunchValues numbers;
    mlir::Value thread, block, blocks;  // i64: of the block, of the grid, of them
};

void emit_gpu_elements(const GpuFrame& gpu);
void emit_gpu_reductions(const GpuFrame& gpu);

// The index whose row-major number among axes first..last is `number`: bases there along all of
// these axes but the last one, and the coordinate on that (null without axes).
struct GpuPlace {
    Values bases;
    mlir::Value last;
};
GpuPlace place_of(Frame& frame, const Values& bases, int first, int last, mlir::Value number);

// Lets every remainder of f32 be that of C's fmod, by a function in `module`: NVPTX has only an
// approximation.
void emit_gpu_fmod(mlir::ImplicitLocOpBuilder& builder, mlir::Operation* module);

}  // namespace megjit::mlir_backend
