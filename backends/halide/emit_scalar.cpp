// Nodes are made by their constructors, not by operators: those fold constants, and their integers
// do not wrap.
#include "backends/halide/emit_scalar.h"

#include <bit>
#include <limits>

namespace megjit::halide_backend {
namespace {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Type;
using runtime::DType;
using runtime::ScalarOp;
using runtime::ScalarType;

Expr strict(Call::IntrinsicOp op, const Expr& a, const Expr& b) {
    return Call::make(a.type(), op, {a, b}, Call::PureIntrinsic);
}
Expr less(const Expr& a, const Expr& b) {
    return Call::make(Halide::Bool(a.type().lanes()), Call::strict_lt, {a, b}, Call::PureIntrinsic);
}
Expr equal(const Expr& a, const Expr& b) {
    return Call::make(Halide::Bool(a.type().lanes()), Call::strict_eq, {a, b}, Call::PureIntrinsic);
}
// Not strict_le: that is `not b < a`, which holds for NaN.
Expr less_equal(const Expr& a, const Expr& b) { return Or::make(less(a, b), equal(a, b)); }
// A divisor must not be a constant zero; that of a let may.
Expr quotient(const Expr& a, const Expr& b) {
    return Let::make("divisor", b,
                     strict(Call::strict_div, a, Variable::make(b.type(), "divisor")));
}

// One of LLVM's own functions. It is called lane by lane, and LLVM's SLP vectorizer makes one
// vector instruction of the calls. Halide's functions of vectors (floor, ...) stop at 8 lanes, and
// it has no fma.
Expr llvm(const char* name, std::initializer_list<Expr> args) {
    return Call::make(args.begin()->type(), name, args, Call::PureExtern);
}

Expr bits(const Expr& value) {
    return Reinterpret::make(Halide::UInt(32, value.type().lanes()), value);
}
Expr as_i32(const Expr& value) {
    return Reinterpret::make(Halide::Int(32, value.type().lanes()), value);
}
Expr as_f32(const Expr& value) {
    return Reinterpret::make(Halide::Float(32, value.type().lanes()), value);
}
Expr unsigned_like(const Expr& value, uint32_t number) {
    return constant(ScalarType::i32, number, value.type().lanes());
}

Expr bitwise(Call::IntrinsicOp op, const Expr& a, const Expr& b) {
    return Call::make(a.type(), op, {a, b}, Call::PureIntrinsic);
}
// On the bits of a and b, as an i32. Unsigned arithmetic wraps, signed one is undefined there.
template <class Node>
Expr wrapping(const Expr& a, const Expr& b) {
    return as_i32(Node::make(bits(a), bits(b)));
}

// No CPU divides vectors of integers. A quotient of two i32 in double is off by less than 2^-52 of
// itself, and at least 2^-31 of itself away from the next integer unless it is one: its floor is
// exact.
Expr divided(const Expr& a, const Expr& b) {
    const Type f64 = Halide::Float(64, a.type().lanes());
    return Cast::make(a.type(),
                      llvm("llvm.floor.f64", {quotient(Cast::make(f64, a), Cast::make(f64, b))}));
}

Expr apply_f32(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::add: return strict(Call::strict_add, a, b);
        case ScalarOp::sub: return strict(Call::strict_sub, a, b);
        case ScalarOp::mul: return strict(Call::strict_mul, a, b);
        case ScalarOp::div: return quotient(a, b);
        case ScalarOp::mod: return llvm("fmodf", {a, b});  // exact
        case ScalarOp::lt: return less(a, b);
        case ScalarOp::le: return less_equal(a, b);
        case ScalarOp::eq: return equal(a, b);
        case ScalarOp::ne: return Not::make(equal(a, b));
        default: return {};
    }
}

Expr apply_i32(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::add: return wrapping<Add>(a, b);
        case ScalarOp::sub: return wrapping<Sub>(a, b);
        case ScalarOp::mul: return wrapping<Mul>(a, b);
        case ScalarOp::div: return divided(a, b);
        case ScalarOp::max: return Max::make(a, b);
        case ScalarOp::min: return Min::make(a, b);
        case ScalarOp::bit_and: return bitwise(Call::bitwise_and, a, b);
        case ScalarOp::bit_or: return bitwise(Call::bitwise_or, a, b);
        case ScalarOp::bit_xor: return bitwise(Call::bitwise_xor, a, b);
        case ScalarOp::shl: return as_i32(bitwise(Call::shift_left, bits(a), bits(b)));
        case ScalarOp::shr: return bitwise(Call::shift_right, a, bits(b));
        case ScalarOp::shr_logical: return as_i32(bitwise(Call::shift_right, bits(a), bits(b)));
        case ScalarOp::lt: return LT::make(a, b);
        case ScalarOp::le: return LE::make(a, b);
        case ScalarOp::eq: return EQ::make(a, b);
        case ScalarOp::ne: return NE::make(a, b);
        default: return {};
    }
}

Expr apply_b1(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::bit_and: return And::make(a, b);
        case ScalarOp::bit_or: return Or::make(a, b);
        case ScalarOp::bit_xor: return NE::make(a, b);
        default: return {};
    }
}

Expr apply_unary(ScalarOp op, const Expr& a) {
    const Type type = a.type();
    const auto with_bits = [&](Call::IntrinsicOp how, uint32_t mask) {
        return as_f32(bitwise(how, as_i32(a), unsigned_like(a, mask)));
    };
    switch (op) {
        case ScalarOp::neg: return with_bits(Call::bitwise_xor, 0x80000000u);
        case ScalarOp::abs: return with_bits(Call::bitwise_and, 0x7FFFFFFFu);
        case ScalarOp::sqrt: return llvm("llvm.sqrt.f32", {a});
        case ScalarOp::floor: return llvm("llvm.floor.f32", {a});
        case ScalarOp::ceil: return llvm("llvm.ceil.f32", {a});
        case ScalarOp::trunc: return llvm("llvm.trunc.f32", {a});
        case ScalarOp::round_even: return llvm("llvm.roundeven.f32", {a});
        case ScalarOp::f32_to_i32: return Cast::make(Halide::Int(32, type.lanes()), a);
        case ScalarOp::b1_to_i32: return Select::make(a, unsigned_like(a, 1), unsigned_like(a, 0));
        case ScalarOp::i32_to_f32: return Cast::make(Halide::Float(32, type.lanes()), a);
        case ScalarOp::bits_f32_to_i32: return as_i32(a);
        case ScalarOp::bits_i32_to_f32: return as_f32(a);
        default: return {};  // not legal
    }
}

}  // namespace

Type type_of(ScalarType type, int lanes) {
    return type == ScalarType::f32   ? Halide::Float(32, lanes)
           : type == ScalarType::i32 ? Halide::Int(32, lanes)
                                     : Halide::Bool(lanes);
}

Type storage_type(DType dtype, int lanes) {
    switch (runtime::size_of(dtype)) {
        case 1: return Halide::UInt(8, lanes);
        case 2: return Halide::UInt(16, lanes);
        default: return dtype == DType::f32 ? Halide::Float(32, lanes) : Halide::Int(32, lanes);
    }
}

Expr spread(const Expr& value, int lanes) {
    return value.type().lanes() == lanes ? value : Broadcast::make(value, lanes);
}

Expr constant(ScalarType type, uint32_t bits, int lanes) {
    switch (type) {
        case ScalarType::f32:
            return spread(FloatImm::make(Halide::Float(32), std::bit_cast<float>(bits)), lanes);
        case ScalarType::i32:
            return spread(IntImm::make(Halide::Int(32), static_cast<int32_t>(bits)), lanes);
        case ScalarType::b1: return spread(UIntImm::make(Halide::Bool(), bits != 0), lanes);
    }
    return {};
}

Expr widen(DType dtype, const Expr& stored) {
    const int lanes = stored.type().lanes();
    const Type i32 = Halide::Int(32, lanes);
    switch (dtype) {
        case DType::f32:
        case DType::i32: return stored;
        // Not by a cast: LLVM moves comparisons to before it, where they lose the sign of 0.
        case DType::f16:
            return Halide::Internal::float16_to_float32(
                Reinterpret::make(Halide::Float(16, lanes), stored));
        case DType::i16: return Cast::make(i32, Reinterpret::make(Halide::Int(16, lanes), stored));
        case DType::i8: return Cast::make(i32, Reinterpret::make(Halide::Int(8, lanes), stored));
        case DType::u8:
        case DType::u16: return Cast::make(i32, stored);
        case DType::bf16:
        case DType::b8:
        case DType::c64: break;  // not legal
    }
    return {};
}

Expr shorten(DType dtype, const Expr& value) {
    const int lanes = value.type().lanes();
    const Type stored = storage_type(dtype, lanes);
    switch (dtype) {
        case DType::f32:
        case DType::i32: return value;
        case DType::f16:
            return Reinterpret::make(stored, Cast::make(Halide::Float(16, lanes), value));
        case DType::i16:
        case DType::u16:
        case DType::i8:
        case DType::u8: return Cast::make(stored, bits(value));
        case DType::bf16:
        case DType::b8:
        case DType::c64: break;  // not legal
    }
    return {};
}

Expr fenced(const Expr& value, const Expr& opaque_zero) {
    return as_f32(
        bitwise(Call::bitwise_xor, as_i32(value), spread(opaque_zero, value.type().lanes())));
}

Expr apply(ScalarOp op, const Expr& a, const Expr& b) {
    return a.type().is_bool()    ? apply_b1(op, a, b)
           : a.type().is_float() ? apply_f32(op, a, b)
                                 : apply_i32(op, a, b);
}

Expr emit(const runtime::ScalarInst& inst, std::span<const Expr> v) {
    switch (inst.op) {
        case ScalarOp::constant: return constant(inst.type, inst.bits);
        case ScalarOp::select: return Select::make(v[0], v[1], v[2]);
        case ScalarOp::narrow: return widen(DType::f16, shorten(DType::f16, v[0]));
        case ScalarOp::fma: return llvm("llvm.fma.f32", {v[0], v[1], v[2]});
        default:
            return runtime::arity_of(inst.op) == 1 ? apply_unary(inst.op, v[0])
                                                   : apply(inst.op, v[0], v[1]);
    }
}

}  // namespace megjit::halide_backend
