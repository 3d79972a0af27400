#include "backends/mlir/emit_scalar.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

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
        case DType::bf16: {
            const Value high = arith::ShLIOp::create(b_, arith::ExtUIOp::create(b_, i32, stored),
                                                     ints(16, b_.getI32Type()));
            return arith::BitcastOp::create(b_, f32, high);
        }
        case DType::i16:
        case DType::i8: return arith::ExtSIOp::create(b_, i32, stored);
        case DType::u8:
        case DType::u16: return arith::ExtUIOp::create(b_, i32, stored);
        case DType::b8: return arith::CmpIOp::create(b_, ICmp::ne, stored, ints(0, b_.getI8Type()));
        case DType::c64: break;
    }
    return {};
}

Value ScalarEmitter::shorten(DType dtype, Value value) {
    const Type i32 = b_.getI32Type();
    switch (dtype) {
        case DType::f32:
        case DType::i32: return value;
        case DType::f16:
            return arith::BitcastOp::create(
                b_, storage_vector(dtype),
                arith::TruncFOp::create(b_, vector_of(b_.getF16Type()), fenced(value)));
        case DType::bf16: {
            // On integers: the instruction of AVX512_BF16 takes denormals for zero.
            const Value bits = arith::BitcastOp::create(b_, vector_of(i32), value);
            const Value high = arith::ShRUIOp::create(b_, bits, ints(16, i32));
            const Value odd = arith::AndIOp::create(b_, high, ints(1, i32));
            const Value sum =
                arith::AddIOp::create(b_, bits, arith::AddIOp::create(b_, odd, ints(0x7FFF, i32)));
            const Value rounded = arith::ShRUIOp::create(b_, sum, ints(16, i32));
            const Value quiet = arith::OrIOp::create(b_, high, ints(0x40, i32));
            const Value is_nan = arith::CmpFOp::create(b_, FCmp::UNO, value, value);
            return arith::TruncIOp::create(b_, storage_vector(dtype),
                                           arith::SelectOp::create(b_, is_nan, quiet, rounded));
        }
        case DType::i16:
        case DType::u16:
        case DType::i8:
        case DType::u8: return arith::TruncIOp::create(b_, storage_vector(dtype), value);
        case DType::b8: return arith::ExtUIOp::create(b_, storage_vector(dtype), value);
        case DType::c64: break;
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
    if (inst.op == ScalarOp::narrow) return widen(inst.narrow_to, shorten(inst.narrow_to, v[0]));
    switch (program[inst.args[0]].type) {
        case ScalarType::f32: return emit_f32(program, inst, v);
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

// max: NaN of either operand wins, of equal operands the first. `b > a ? b : a` is one maxps, and
// gives a when a is NaN.
Value ScalarEmitter::extremum(const ScalarProgram& program, const ScalarInst& inst, Value a,
                              Value b) {
    const FCmp better = inst.op == ScalarOp::max ? FCmp::OGT : FCmp::OLT;
    const Value best =
        fenced(arith::SelectOp::create(b_, arith::CmpFOp::create(b_, better, b, a), b, a));
    const ScalarInst& second = program[inst.args[1]];
    const bool never_nan =
        second.op == ScalarOp::constant && (second.bits & 0x7FFFFFFF) <= 0x7F800000;
    if (never_nan) return best;
    return arith::SelectOp::create(b_, arith::CmpFOp::create(b_, FCmp::UNO, b, b), b, best);
}

Value ScalarEmitter::truncate_to_i32(Value x) {
    const VectorType i32 = vector_of(b_.getI32Type());
    if (target_.has_cvttps && target_.width == 16) {
        const Value all = arith::ConstantOp::create(b_, b_.getI16IntegerAttr(-1));
        const Value current_rounding = arith::ConstantOp::create(b_, b_.getI32IntegerAttr(4));
        return LLVM::CallIntrinsicOp::create(
                   b_, i32, b_.getStringAttr("llvm.x86.avx512.mask.cvttps2dq.512"),
                   ValueRange{x, ints(0, b_.getI32Type()), all, current_rounding})
            .getResult(0);
    }
    if (target_.has_cvttps && target_.width == 8)
        return LLVM::CallIntrinsicOp::create(
                   b_, i32, b_.getStringAttr("llvm.x86.avx.cvtt.ps2dq.256"), ValueRange{x})
            .getResult(0);
    const auto f32 = [&](float value) {
        return constant(ScalarType::f32, std::bit_cast<uint32_t>(value));
    };
    const Value in_range =
        arith::AndIOp::create(b_, arith::CmpFOp::create(b_, FCmp::OGE, x, f32(-0x1p31f)),
                              arith::CmpFOp::create(b_, FCmp::OLT, x, f32(0x1p31f)));
    const Value safe = arith::SelectOp::create(b_, in_range, x, f32(0));
    return arith::SelectOp::create(b_, in_range, arith::FPToSIOp::create(b_, i32, safe),
                                   ints(INT32_MIN, b_.getI32Type()));
}

Value ScalarEmitter::emit_f32(const ScalarProgram& program, const ScalarInst& inst,
                              ArrayRef<Value> v) {
    const auto compare = [&](FCmp predicate) {
        return arith::CmpFOp::create(b_, predicate, v[0], v[1]);
    };
    switch (inst.op) {
        case ScalarOp::add: return arith::AddFOp::create(b_, v[0], v[1]);
        case ScalarOp::sub: return arith::SubFOp::create(b_, v[0], v[1]);
        case ScalarOp::mul: return arith::MulFOp::create(b_, v[0], v[1]);
        case ScalarOp::div: return arith::DivFOp::create(b_, v[0], v[1]);
        case ScalarOp::mod:
            return arith::RemFOp::create(b_, v[0], v[1]);  // becomes fmodf, which is exact
        case ScalarOp::neg: return arith::NegFOp::create(b_, v[0]);
        case ScalarOp::abs: return math::AbsFOp::create(b_, v[0]);
        case ScalarOp::max:
        case ScalarOp::min: return extremum(program, inst, v[0], v[1]);
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
        case ScalarOp::f32_to_i32: return truncate_to_i32(v[0]);
        case ScalarOp::bits_f32_to_i32:
            return arith::BitcastOp::create(b_, vector_of(b_.getI32Type()), v[0]);
        default: return {};  // expanded before it came here
    }
}

// No CPU divides vectors of integers. A quotient of two i32 in double is off by less than 2^-52 of
// itself, and at least 2^-31 of itself away from the next integer unless it is one: its floor is
// exact.
Value ScalarEmitter::floor_div(Value a, Value b) {
    const Type i32 = b_.getI32Type();
    const VectorType f64 = vector_of(b_.getF64Type());
    const Value zero = ints(0, i32), minus_one = ints(-1, i32);
    const Value by_zero = arith::CmpIOp::create(b_, ICmp::eq, b, zero);
    const Value by_minus_one =
        arith::CmpIOp::create(b_, ICmp::eq, b, minus_one);  // INT32_MIN / -1 wraps
    const Value special = arith::OrIOp::create(b_, by_zero, by_minus_one);
    const Value divisor = arith::SelectOp::create(b_, special, ints(1, i32), b);
    const Value quotient = arith::DivFOp::create(b_, arith::SIToFPOp::create(b_, f64, a),
                                                 arith::SIToFPOp::create(b_, f64, divisor));
    Value result = arith::FPToSIOp::create(b_, vector_of(i32), math::FloorOp::create(b_, quotient));
    result = arith::SelectOp::create(b_, by_minus_one, arith::SubIOp::create(b_, zero, a), result);
    return arith::SelectOp::create(b_, by_zero, zero, result);
}

Value ScalarEmitter::emit_i32(ScalarOp op, ArrayRef<Value> v) {
    const Type i32 = b_.getI32Type();
    const auto compare = [&](ICmp predicate) {
        return arith::CmpIOp::create(b_, predicate, v[0], v[1]);
    };
    const auto count = [&] { return arith::AndIOp::create(b_, v[1], ints(31, i32)); };
    const auto negated = [&] { return arith::SubIOp::create(b_, ints(0, i32), v[0]); };
    switch (op) {
        case ScalarOp::add: return arith::AddIOp::create(b_, v[0], v[1]);
        case ScalarOp::sub: return arith::SubIOp::create(b_, v[0], v[1]);
        case ScalarOp::mul: return arith::MulIOp::create(b_, v[0], v[1]);
        case ScalarOp::div: return floor_div(v[0], v[1]);
        case ScalarOp::mod: {
            const Value by_zero = arith::CmpIOp::create(b_, ICmp::eq, v[1], ints(0, i32));
            const Value whole = arith::MulIOp::create(b_, floor_div(v[0], v[1]), v[1]);
            return arith::SelectOp::create(b_, by_zero, ints(0, i32),
                                           arith::SubIOp::create(b_, v[0], whole));
        }
        case ScalarOp::neg: return negated();
        case ScalarOp::abs: return arith::MaxSIOp::create(b_, v[0], negated());  // INT32_MIN stays
        case ScalarOp::max: return arith::MaxSIOp::create(b_, v[0], v[1]);
        case ScalarOp::min: return arith::MinSIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_and: return arith::AndIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_or: return arith::OrIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_xor: return arith::XOrIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_not: return arith::XOrIOp::create(b_, v[0], ints(-1, i32));
        case ScalarOp::shl: return arith::ShLIOp::create(b_, v[0], count());
        case ScalarOp::shr: return arith::ShRSIOp::create(b_, v[0], count());
        case ScalarOp::shr_logical: return arith::ShRUIOp::create(b_, v[0], count());
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
        case ScalarOp::bit_and:
        case ScalarOp::min: return arith::AndIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_or:
        case ScalarOp::max: return arith::OrIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_xor:
        case ScalarOp::ne: return arith::XOrIOp::create(b_, v[0], v[1]);
        case ScalarOp::bit_not: return arith::XOrIOp::create(b_, v[0], constant(ScalarType::b1, 1));
        case ScalarOp::eq: return arith::CmpIOp::create(b_, ICmp::eq, v[0], v[1]);
        case ScalarOp::lt: return arith::CmpIOp::create(b_, ICmp::ult, v[0], v[1]);
        case ScalarOp::le: return arith::CmpIOp::create(b_, ICmp::ule, v[0], v[1]);
        case ScalarOp::b1_to_i32:
            return arith::ExtUIOp::create(b_, vector_of(b_.getI32Type()), v[0]);
        default: return {};
    }
}

}  // namespace megjit::mlir_backend
