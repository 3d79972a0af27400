// backends/mlir/emit.h -- KernelIR to an MLIR module in the arith, math, scf, vector and llvm
// dialects.
#pragma once

#include "backends/mlir/frame.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace megjit::mlir_backend {

inline constexpr char kKernelSymbol[] = "megjit_kernel";

// The kernel must be sound (codegen::fault_of) and free of transcendental instructions.
mlir::OwningOpRef<mlir::ModuleOp> emit(mlir::MLIRContext& context, const codegen::KernelIR& kernel,
                                       VectorTarget target);

// The walks, one for each kind of unit.
void emit_elements(Frame& frame);  // no axis is reduced
void emit_rows(Frame& frame);  // lanes over the last axis, which is reduced
void emit_columns(Frame& frame);  // lanes over the last axis that is kept

}  // namespace megjit::mlir_backend
