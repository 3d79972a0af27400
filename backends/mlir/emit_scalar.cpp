#include "backends/mlir/emit_scalar.h"

#include <numeric>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace megjit::mlir_backend {

using namespace mlir;
using codegen::loops::Kind;
using runtime::DType;
using runtime::ScalarOp;
using FCmp = arith::CmpFPredicate;
using ICmp = arith::CmpIPredicate;

Type ScalarEmitter::element_of(Kind kind) const {
    switch (kind) {
        case Kind::b1: return b_.getI1Type();
        case Kind::i8: return b_.getI8Type();
        case Kind::i16: return b_.getI16Type();
        case Kind::i32: return b_.getI32Type();
        case Kind::i64:
        case Kind::index: return b_.getI64Type();
        case Kind::f32: return b_.getF32Type();
        case Kind::f64: return b_.getF64Type();
    }
    return {};
}

Type ScalarEmitter::type_of(codegen::loops::Type type) const {
    if (type.is_pointer) return LLVM::LLVMPointerType::get(b_.getContext());
    const Type element = element_of(type.kind);
    return type.lanes == 1 ? element : VectorType::get({type.lanes}, element);
}

Type ScalarEmitter::like(Value value, Type element) const {
    const auto vector = dyn_cast<VectorType>(value.getType());
    return vector ? VectorType::get(vector.getShape(), element) : element;
}

Value ScalarEmitter::constant(codegen::loops::Type type, uint64_t bits) {
    const Type element = element_of(type.kind);
    const auto number = [&]() -> TypedAttr {
        if (auto real = dyn_cast<FloatType>(element))
            return FloatAttr::get(element,
                                  llvm::APFloat(real.getFloatSemantics(),
                                                llvm::APInt(real.getWidth(), bits, false, true)));
        const unsigned width = element.getIntOrFloatBitWidth();
        return IntegerAttr::get(element, llvm::APInt(width, bits, false, true));
    }();
    if (type.lanes == 1) return arith::ConstantOp::create(b_, number);
    return arith::ConstantOp::create(
        b_, SplatElementsAttr::get(VectorType::get({type.lanes}, element), number));
}

Value ScalarEmitter::convert(Kind from, codegen::loops::Type to, Value value) {
    const Type type = type_of(to);
    const auto is_real = [](Kind kind) { return kind == Kind::f32 || kind == Kind::f64; };
    const auto bits = [&](Type of) { return getElementTypeOrSelf(of).getIntOrFloatBitWidth(); };
    const bool grows = bits(type) > bits(value.getType());
    if (is_real(from) && is_real(to.kind))
        return grows ? Value(arith::ExtFOp::create(b_, type, value, arith::FastMathFlagsAttr()))
                     : Value(arith::TruncFOp::create(b_, type, value));
    if (is_real(to.kind)) return arith::SIToFPOp::create(b_, type, value);
    if (from == Kind::f32 && to.kind == Kind::i32) return truncated(value);
    if (is_real(from)) return arith::FPToSIOp::create(b_, type, value);
    if (from == Kind::b1) return arith::ExtUIOp::create(b_, type, value);
    if (bits(type) == bits(value.getType())) return value;
    return grows ? Value(arith::ExtSIOp::create(b_, type, value))
                 : Value(arith::TruncIOp::create(b_, type, value));
}

Value ScalarEmitter::widen(DType dtype, Value stored) {
    const Type i32 = like(stored, b_.getI32Type());
    switch (dtype) {
        case DType::f16:
            return fenced(arith::ExtFOp::create(
                b_, like(stored, b_.getF32Type()),
                arith::BitcastOp::create(b_, like(stored, b_.getF16Type()), stored),
                arith::FastMathFlagsAttr()));
        case DType::i16:
        case DType::i8: return arith::ExtSIOp::create(b_, i32, stored);
        case DType::u8:
        case DType::u16: return arith::ExtUIOp::create(b_, i32, stored);
        default: return {};  // stored in the compute type, or not legal
    }
}

Value ScalarEmitter::shorten(DType dtype, Value value) {
    const Type stored = like(value, element_of(codegen::loops::storage_of(dtype)));
    if (dtype != DType::f16) return arith::TruncIOp::create(b_, stored, value);
    return arith::BitcastOp::create(
        b_, stored, arith::TruncFOp::create(b_, like(value, b_.getF16Type()), fenced(value)));
}

Value ScalarEmitter::compute(ScalarOp op, Kind kind, ArrayRef<Value> v) {
    if (op == ScalarOp::select) return arith::SelectOp::create(b_, v[0], v[1], v[2]);
    if (op == ScalarOp::narrow) return widen(DType::f16, shorten(DType::f16, v[0]));
    switch (kind) {
        case Kind::f32:
        case Kind::f64: return of_reals(op, v);
        case Kind::b1: return of_truths(op, v);
        default: return of_integers(op, kind != Kind::i32, v);
    }
}

// LLVM computes in half where operands or results are halves; a fence prevents that.
Value ScalarEmitter::fenced(Value x) {
    return LLVM::CallIntrinsicOp::create(b_, x.getType(), b_.getStringAttr("llvm.arithmetic.fence"),
                                         ValueRange{x})
        .getResult(0);
}

Value ScalarEmitter::truncated(Value x) {
    const auto vector = dyn_cast<VectorType>(x.getType());
    if (!target_.truncates || !vector)
        return arith::FPToSIOp::create(b_, like(x, b_.getI32Type()), x);
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
    if (vector.getNumElements() == target_.native) return one(x);
    SmallVector<int64_t> places(static_cast<size_t>(vector.getNumElements()));
    std::iota(places.begin(), places.end(), 0);
    const ArrayRef<int64_t> all(places), low = all.take_front(all.size() / 2),
                                         high = all.drop_front(all.size() / 2);
    return vector::ShuffleOp::create(b_, truncated(vector::ShuffleOp::create(b_, x, x, low)),
                                     truncated(vector::ShuffleOp::create(b_, x, x, high)), all);
}

Value ScalarEmitter::of_reals(ScalarOp op, ArrayRef<Value> v) {
    const auto compare = [&](FCmp predicate) {
        return arith::CmpFOp::create(b_, predicate, v[0], v[1]);
    };
    switch (op) {
        case ScalarOp::add: return arith::AddFOp::create(b_, v[0], v[1]);
        case ScalarOp::sub: return arith::SubFOp::create(b_, v[0], v[1]);
        case ScalarOp::mul: return arith::MulFOp::create(b_, v[0], v[1]);
        case ScalarOp::div: return arith::DivFOp::create(b_, v[0], v[1]);
        case ScalarOp::mod:
            return arith::RemFOp::create(b_, v[0], v[1]);  // a call of fmodf, which is exact
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
        case ScalarOp::bits_f32_to_i32:
            return arith::BitcastOp::create(b_, like(v[0], b_.getI32Type()), v[0]);
        default: return {};  // not legal
    }
}

Value ScalarEmitter::of_integers(ScalarOp op, bool is_index, ArrayRef<Value> v) {
    const auto compare = [&](ICmp predicate) {
        return arith::CmpIOp::create(b_, predicate, v[0], v[1]);
    };
    switch (op) {
        case ScalarOp::add: return arith::AddIOp::create(b_, v[0], v[1]);
        case ScalarOp::sub: return arith::SubIOp::create(b_, v[0], v[1]);
        case ScalarOp::mul: return arith::MulIOp::create(b_, v[0], v[1]);
        case ScalarOp::div:
            if (!is_index) return {};  // Target::divides excludes these
            return arith::DivUIOp::create(b_, v[0], v[1]);
        case ScalarOp::mod: return arith::RemUIOp::create(b_, v[0], v[1]);
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
        case ScalarOp::bits_i32_to_f32:
            return arith::BitcastOp::create(b_, like(v[0], b_.getF32Type()), v[0]);
        default: return {};
    }
}

Value ScalarEmitter::of_truths(ScalarOp op, ArrayRef<Value> v) {
    switch (op) {
        case ScalarOp::bit_and: return arith::AndIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_or: return arith::OrIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_xor: return arith::XOrIOp::create(b_, v[0], v[1]);
        default: return {};
    }
}

}  // namespace megjit::mlir_backend
