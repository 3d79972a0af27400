#include "backends/mlir/emit_scalar.h"

#include <numeric>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace megjit::mlir_backend {

using namespace mlir;
using runtime::DType;
using runtime::ScalarInst;
using runtime::ScalarOp;
using runtime::ScalarProgram;
using runtime::ScalarType;
using FCmp = arith::CmpFPredicate;
using ICmp = arith::CmpIPredicate;

Type ScalarEmitter::storage_type(DType dtype) const {
    switch (runtime::size_of(dtype)) {
        case 1: return b_.getI8Type();
        case 2: return b_.getI16Type();
        default: return dtype == DType::f32 ? Type(b_.getF32Type()) : Type(b_.getI32Type());
    }
}

Value ScalarEmitter::ints(int64_t value, Type element) {
    const VectorType type = vector_of(element);
    return arith::ConstantOp::create(
        b_, DenseElementsAttr::get(type, b_.getIntegerAttr(element, value).getValue()));
}

Value ScalarEmitter::constant(ScalarType type, uint32_t bits) {
    switch (type) {
        case ScalarType::f32:
            return arith::ConstantOp::create(
                b_, DenseElementsAttr::get(
                        vector_of(b_.getF32Type()),
                        llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, bits))));
        case ScalarType::i32: return ints(static_cast<int32_t>(bits), b_.getI32Type());
        case ScalarType::b1:
            return arith::ConstantOp::create(
                b_, DenseElementsAttr::get(vector_of(b_.getI1Type()), bits != 0));
    }
    return {};
}

Value ScalarEmitter::widen(DType dtype, Value stored) {
    const VectorType i32 = vector_of(b_.getI32Type()), f32 = vector_of(b_.getF32Type());
    switch (dtype) {
        case DType::f32:
        case DType::i32: return stored;
        case DType::f16:
            return fenced(arith::ExtFOp::create(
                b_, f32, arith::BitcastOp::create(b_, vector_of(b_.getF16Type()), stored),
                arith::FastMathFlagsAttr()));
        case DType::i16:
        case DType::i8: return arith::ExtSIOp::create(b_, i32, stored);
        case DType::u8:
        case DType::u16: return arith::ExtUIOp::create(b_, i32, stored);
        case DType::bf16:
        case DType::b8:
        case DType::c64: break;  // not legal
    }
    return {};
}

Value ScalarEmitter::shorten(DType dtype, Value value) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return value;
        case DType::f16:
            return arith::BitcastOp::create(
                b_, storage_vector(dtype),
                arith::TruncFOp::create(b_, vector_of(b_.getF16Type()), fenced(value)));
        case DType::i16:
        case DType::u16:
        case DType::i8:
        case DType::u8: return arith::TruncIOp::create(b_, storage_vector(dtype), value);
        case DType::bf16:
        case DType::b8:
        case DType::c64: break;  // not legal
    }
    return {};
}

Value ScalarEmitter::emit(const ScalarProgram& program, int id, ArrayRef<Value> v) {
    const ScalarInst& inst = program[id];
    if (inst.op == ScalarOp::constant) return constant(inst.type, inst.bits);
    if (inst.op == ScalarOp::select) {
        const Value chosen = arith::SelectOp::create(b_, v[0], v[1], v[2]);
        return inst.type == ScalarType::f32 && program.is_extremum(id) ? fenced(chosen) : chosen;
    }
    if (inst.op == ScalarOp::narrow) return widen(DType::f16, shorten(DType::f16, v[0]));
    switch (program[inst.args[0]].type) {
        case ScalarType::f32: return emit_f32(inst.op, v);
        case ScalarType::i32: return emit_i32(inst.op, v);
        case ScalarType::b1: return emit_b1(inst.op, v);
    }
    return {};
}

// LLVM takes the larger of (the larger of x and 0) and 0 for the larger of x and 0, whatever its
// comparisons say of NaN and of the sign of 0, and computes in half what comes from half or goes
// there: not across a fence.
Value ScalarEmitter::fenced(Value x) {
    return LLVM::CallIntrinsicOp::create(b_, x.getType(), b_.getStringAttr("llvm.arithmetic.fence"),
                                         ValueRange{x})
        .getResult(0);
}

Value ScalarEmitter::truncated(Value x) {
    const VectorType i32 = vector_of(b_.getI32Type());
    if (!target_.truncates) return arith::FPToSIOp::create(b_, i32, x);
    const bool is_wide = target_.native == 16;
    const auto one = [&](Value lanes) {
        SmallVector<Value> operands = {lanes};
        const Type result = VectorType::get({target_.native}, b_.getI32Type());
        if (is_wide) {
            const Value nothing =
                arith::ConstantOp::create(b_, cast<TypedAttr>(b_.getZeroAttr(result)));
            const Value all = arith::ConstantOp::create(b_, b_.getI16IntegerAttr(-1));
            const Value current_rounding = arith::ConstantOp::create(b_, b_.getI32IntegerAttr(4));
            operands.append({nothing, all, current_rounding});
        }
        return LLVM::CallIntrinsicOp::create(
                   b_, result,
                   b_.getStringAttr(is_wide ? "llvm.x86.avx512.mask.cvttps2dq.512"
                                            : "llvm.x86.avx.cvtt.ps2dq.256"),
                   operands)
            .getResult(0);
    };
    if (target_.width == target_.native) return one(x);
    SmallVector<int64_t> places(static_cast<size_t>(target_.width));
    std::iota(places.begin(), places.end(), 0);
    const ArrayRef<int64_t> all(places), low = all.take_front(all.size() / 2),
                                         high = all.drop_front(all.size() / 2);
    return vector::ShuffleOp::create(b_, one(vector::ShuffleOp::create(b_, x, x, low)),
                                     one(vector::ShuffleOp::create(b_, x, x, high)), all);
}

Value ScalarEmitter::emit_f32(ScalarOp op, ArrayRef<Value> v) {
    const auto compare = [&](FCmp predicate) {
        return arith::CmpFOp::create(b_, predicate, v[0], v[1]);
    };
    switch (op) {
        case ScalarOp::add: return arith::AddFOp::create(b_, v[0], v[1]);
        case ScalarOp::sub: return arith::SubFOp::create(b_, v[0], v[1]);
        case ScalarOp::mul: return arith::MulFOp::create(b_, v[0], v[1]);
        case ScalarOp::div: return arith::DivFOp::create(b_, v[0], v[1]);
        case ScalarOp::mod:
            return arith::RemFOp::create(b_, v[0], v[1]);  // becomes fmodf, which is exact
        case ScalarOp::neg: return arith::NegFOp::create(b_, v[0]);
        case ScalarOp::abs: return math::AbsFOp::create(b_, v[0]);
        case ScalarOp::fma: return math::FmaOp::create(b_, v[0], v[1], v[2]);
        case ScalarOp::sqrt: return math::SqrtOp::create(b_, v[0]);
        case ScalarOp::floor: return math::FloorOp::create(b_, v[0]);
        case ScalarOp::ceil: return math::CeilOp::create(b_, v[0]);
        case ScalarOp::trunc: return math::TruncOp::create(b_, v[0]);
        case ScalarOp::round_even: return math::RoundEvenOp::create(b_, v[0]);
        case ScalarOp::lt: return compare(FCmp::OLT);
        case ScalarOp::le: return compare(FCmp::OLE);
        case ScalarOp::eq: return compare(FCmp::OEQ);
        case ScalarOp::ne: return compare(FCmp::UNE);
        case ScalarOp::f32_to_i32: return truncated(v[0]);
        case ScalarOp::bits_f32_to_i32:
            return arith::BitcastOp::create(b_, vector_of(b_.getI32Type()), v[0]);
        default: return {};  // not legal
    }
}

// No CPU divides vectors of integers. A quotient of two i32 in double is off by less than 2^-52 of
// itself, and at least 2^-31 of itself away from the next integer unless it is one: its floor is
// exact.
Value ScalarEmitter::divided(Value a, Value b) {
    const VectorType f64 = vector_of(b_.getF64Type());
    const Value quotient = arith::DivFOp::create(b_, arith::SIToFPOp::create(b_, f64, a),
                                                 arith::SIToFPOp::create(b_, f64, b));
    return arith::FPToSIOp::create(b_, vector_of(b_.getI32Type()),
                                   math::FloorOp::create(b_, quotient));
}

Value ScalarEmitter::emit_i32(ScalarOp op, ArrayRef<Value> v) {
    const auto compare = [&](ICmp predicate) {
        return arith::CmpIOp::create(b_, predicate, v[0], v[1]);
    };
    switch (op) {
        case ScalarOp::add: return arith::AddIOp::create(b_, v[0], v[1]);
        case ScalarOp::sub: return arith::SubIOp::create(b_, v[0], v[1]);
        case ScalarOp::mul: return arith::MulIOp::create(b_, v[0], v[1]);
        case ScalarOp::div: return divided(v[0], v[1]);
        case ScalarOp::max: return arith::MaxSIOp::create(b_, v[0], v[1]);
        case ScalarOp::min: return arith::MinSIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_and: return arith::AndIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_or: return arith::OrIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_xor: return arith::XOrIOp::create(b_, v[0], v[1]);
        case ScalarOp::shl: return arith::ShLIOp::create(b_, v[0], v[1]);
        case ScalarOp::shr: return arith::ShRSIOp::create(b_, v[0], v[1]);
        case ScalarOp::shr_logical: return arith::ShRUIOp::create(b_, v[0], v[1]);
        case ScalarOp::lt: return compare(ICmp::slt);
        case ScalarOp::le: return compare(ICmp::sle);
        case ScalarOp::eq: return compare(ICmp::eq);
        case ScalarOp::ne: return compare(ICmp::ne);
        case ScalarOp::i32_to_f32:
            return arith::SIToFPOp::create(b_, vector_of(b_.getF32Type()), v[0]);
        case ScalarOp::bits_i32_to_f32:
            return arith::BitcastOp::create(b_, vector_of(b_.getF32Type()), v[0]);
        default: return {};
    }
}

Value ScalarEmitter::emit_b1(ScalarOp op, ArrayRef<Value> v) {
    switch (op) {
        case ScalarOp::bit_and: return arith::AndIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_or: return arith::OrIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_xor: return arith::XOrIOp::create(b_, v[0], v[1]);
        case ScalarOp::b1_to_i32:
            return arith::ExtUIOp::create(b_, vector_of(b_.getI32Type()), v[0]);
        default: return {};
    }
}

}  // namespace megjit::mlir_backend
