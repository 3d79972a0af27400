// backends/mlir/emit_scalar.h -- one legal scalar instruction (codegen/legalize.h) over `width`
// lanes, as arith and math ops. Nothing is contracted or reordered: lanes hold the bits that the
// interpreter computes.
#pragma once

#include "codegen/kernel_ir.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace megjit::mlir_backend {

struct VectorTarget {
    int width = 4;  // lanes of 32 bits in a value: one register of the machine, or two
    int native = 4;  // lanes in a register
    bool truncates = false;  // x86: one instruction gives INT32_MIN for what no i32 holds
    bool is_aligned = false;  // contiguous vectors in memory begin at multiples of their size
};

class ScalarEmitter {
public:
    ScalarEmitter(mlir::ImplicitLocOpBuilder& builder, VectorTarget target)
        : b_(builder), target_(target) {}

    mlir::VectorType vector_of(mlir::Type element) const {
        return mlir::VectorType::get({target_.width}, element);
    }
    mlir::VectorType storage_vector(runtime::DType dtype) const {
        return vector_of(storage_type(dtype));
    }
    // Memory is read and written as f32, i32, i16 or i8.
    mlir::Type storage_type(runtime::DType dtype) const;

    mlir::Value constant(runtime::ScalarType type, uint32_t bits);
    mlir::Value widen(runtime::DType dtype, mlir::Value stored);  // from memory to the compute type
    mlir::Value shorten(runtime::DType dtype, mlir::Value value);  // and back
    // `x` in a way that LLVM does not look through.
    mlir::Value fenced(mlir::Value x);
    // Instruction `id`; `operands` holds the values of its args.
    mlir::Value emit(const runtime::ScalarProgram& program, int id,
                     llvm::ArrayRef<mlir::Value> operands);

private:
    mlir::Value emit_f32(runtime::ScalarOp op, llvm::ArrayRef<mlir::Value> v);
    mlir::Value emit_i32(runtime::ScalarOp op, llvm::ArrayRef<mlir::Value> v);
    mlir::Value emit_b1(runtime::ScalarOp op, llvm::ArrayRef<mlir::Value> v);
    mlir::Value truncated(mlir::Value x);
    mlir::Value divided(mlir::Value a, mlir::Value b);
    mlir::Value ints(int64_t value, mlir::Type element);

    mlir::ImplicitLocOpBuilder& b_;
    VectorTarget target_;
};

}  // namespace megjit::mlir_backend
