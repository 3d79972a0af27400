// backends/mlir/emit_scalar.h -- arithmetic of codegen's loops as arith and math ops, over a scalar
// or all lanes of a vector. Nothing is contracted or reordered: lanes hold the bits that the
// interpreter computes.
#pragma once

#include "codegen/loops/loops.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace megjit::mlir_backend {

struct VectorTarget {
    int native = 4;  // number of 32-bit lanes in a register
    int registers = 32;
    bool truncates = false;  // x86: an instruction gives INT32_MIN for numbers that no i32 holds
};

class ScalarEmitter {
public:
    ScalarEmitter(mlir::ImplicitLocOpBuilder& builder, VectorTarget target)
        : b_(builder), target_(target) {}

    mlir::Type element_of(codegen::loops::Kind kind) const;
    mlir::Type type_of(codegen::loops::Type type) const;
    mlir::Value constant(codegen::loops::Type type, uint64_t bits);
    mlir::Value compute(runtime::ScalarOp op, codegen::loops::Kind kind,
                        llvm::ArrayRef<mlir::Value> v);
    mlir::Value convert(codegen::loops::Kind from, codegen::loops::Type to, mlir::Value value);
    mlir::Value widen(runtime::DType dtype, mlir::Value stored);  // from memory to its compute type
    mlir::Value shorten(runtime::DType dtype, mlir::Value value);  // the reverse
    // Hides `x` from LLVM's optimizations.
    mlir::Value fenced(mlir::Value x);

private:
    mlir::Type like(mlir::Value value, mlir::Type element) const;  // has as many lanes as `value`
    mlir::Value of_reals(runtime::ScalarOp op, llvm::ArrayRef<mlir::Value> v);
    mlir::Value of_integers(runtime::ScalarOp op, bool is_index, llvm::ArrayRef<mlir::Value> v);
    mlir::Value of_truths(runtime::ScalarOp op, llvm::ArrayRef<mlir::Value> v);
    mlir::Value truncated(mlir::Value x);

    mlir::ImplicitLocOpBuilder& b_;
    VectorTarget target_;
};

}  // namespace megjit::mlir_backend
