// backends/mlir/emit.h -- turns codegen's loops into MLIR: each instruction becomes one or a few
// ops of the arith, math, scf, vector, gpu and llvm dialects.
#pragma once

#include "backends/mlir/emit_scalar.h"
#include "codegen/loops/loops.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace megjit::mlir_backend {

inline constexpr char kKernelSymbol[] = "megjit_kernel";
inline constexpr char kGpuModule[] = "megjit";

// The kernels must be sound (codegen::fault_of) and legal (codegen/legalize.h).
// Makes a codegen::KernelFn for a CPU with vectors of that width.
mlir::OwningOpRef<mlir::ModuleOp> emit(mlir::MLIRContext& context, const codegen::KernelIR& kernel,
                                       VectorTarget target);
// Makes a kernel of the gpu dialect; its parameters are those of codegen::Parameters::all.
mlir::OwningOpRef<mlir::ModuleOp> emit_gpu(mlir::MLIRContext& context,
                                           const codegen::KernelIR& kernel,
                                           const codegen::GpuPlan& plan);

// Makes every remainder of f32 equal to C's fmod, by a function in `module`: NVPTX has only an
// approximation.
void emit_gpu_fmod(mlir::ImplicitLocOpBuilder& builder, mlir::Operation* module);

}  // namespace megjit::mlir_backend
