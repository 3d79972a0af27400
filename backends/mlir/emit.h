// backends/mlir/emit.h -- codegen's loops to MLIR: each instruction becomes one or a few ops of the
// arith, math, scf, vector, gpu and llvm dialects.
#pragma once

#include "backends/mlir/emit_scalar.h"
#include "codegen/loops/loops.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace megjit::mlir_backend {

inline constexpr char kKernelSymbol[] = "megjit_kernel";
inline constexpr char kGpuModule[] = "megjit";

// The kernels must be sound (codegen::fault_of) and legal (codegen/legalize.h).
// A codegen::KernelFn for a CPU of these vectors.
mlir::OwningOpRef<mlir::ModuleOp> emit(mlir::MLIRContext& context, const codegen::KernelIR& kernel,
                                       VectorTarget target);
// A kernel of the gpu dialect; its parameters are those of codegen::Parameters::all.
mlir::OwningOpRef<mlir::ModuleOp> emit_gpu(mlir::MLIRContext& context,
                                           const codegen::KernelIR& kernel,
                                           const codegen::GpuPlan& plan);

// Lets every remainder of f32 be that of C's fmod, by a function in `module`: NVPTX has only an
// approximation.
void emit_gpu_fmod(mlir::ImplicitLocOpBuilder& builder, mlir::Operation* module);

}  // namespace megjit::mlir_backend
