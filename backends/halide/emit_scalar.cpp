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
Expr unordered(const Expr& a) { return Not::make(equal(a, a)); }  // NaN

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
Expr negated(const Expr& a) { return wrapping<Sub>(unsigned_like(a, 0), a); }

// No CPU divides vectors of integers. A quotient of two i32 in double is off by less than 2^-52 of
// itself, and at least 2^-31 of itself away from the next integer unless it is one: its floor is
// exact.
Expr floor_div(const Expr& a, const Expr& b) {
    const Type f64 = Halide::Float(64, a.type().lanes());
    const Expr by_zero = EQ::make(b, unsigned_like(b, 0)),
               by_minus_one = EQ::make(b, unsigned_like(b, ~0u));  // INT32_MIN / -1 wraps
    const Expr divisor = Select::make(Or::make(by_zero, by_minus_one), unsigned_like(b, 1), b);
    const Expr whole = Cast::make(
        a.type(), llvm("llvm.floor.f64", {quotient(Cast::make(f64, a), Cast::make(f64, divisor))}));
    return Select::make(by_zero, unsigned_like(a, 0),
                        Select::make(by_minus_one, negated(a), whole));
}

// max: NaN of either operand wins, of equal operands the first. `b > a ? b : a` gives a when a is
// NaN.
Expr extremum(ScalarOp op, const Expr& a, const Expr& b) {
    if (!a.type().is_float()) return op == ScalarOp::max ? Max::make(a, b) : Min::make(a, b);
    const Expr best = Select::make(op == ScalarOp::max ? less(a, b) : less(b, a), b, a);
    return Select::make(unordered(b), b, best);
}

Expr truncated(const Expr& x) {
    const int lanes = x.type().lanes();
    const auto f32 = [&](float value) {
        return constant(ScalarType::f32, std::bit_cast<uint32_t>(value), lanes);
    };
    const Expr in_range = And::make(less_equal(f32(-0x1p31f), x), less(x, f32(0x1p31f)));
    const Expr whole = Cast::make(Halide::Int(32, lanes), Select::make(in_range, x, f32(0)));
    return Select::make(in_range, whole, constant(ScalarType::i32, 0x80000000u, lanes));
}

Expr apply_f32(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::add: return strict(Call::strict_add, a, b);
        case ScalarOp::sub: return strict(Call::strict_sub, a, b);
        case ScalarOp::mul: return strict(Call::strict_mul, a, b);
        case ScalarOp::div: return quotient(a, b);
        case ScalarOp::mod: return llvm("fmodf", {a, b});  // exact
        case ScalarOp::max:
        case ScalarOp::min: return extremum(op, a, b);
        case ScalarOp::lt: return less(a, b);
        case ScalarOp::le: return less_equal(a, b);
        case ScalarOp::eq: return equal(a, b);
        case ScalarOp::ne: return Not::make(equal(a, b));
        default: return {};
    }
}

Expr apply_i32(ScalarOp op, const Expr& a, const Expr& b) {
    const auto count = [&] {
        return bitwise(Call::bitwise_and, bits(b),
                       Cast::make(bits(b).type(), unsigned_like(b, 31)));
    };
    switch (op) {
        case ScalarOp::add: return wrapping<Add>(a, b);
        case ScalarOp::sub: return wrapping<Sub>(a, b);
        case ScalarOp::mul: return wrapping<Mul>(a, b);
        case ScalarOp::div: return floor_div(a, b);
        case ScalarOp::mod:
            return Select::make(EQ::make(b, unsigned_like(b, 0)), unsigned_like(a, 0),
                                wrapping<Sub>(a, wrapping<Mul>(floor_div(a, b), b)));
        case ScalarOp::max:
        case ScalarOp::min: return extremum(op, a, b);
        case ScalarOp::bit_and: return bitwise(Call::bitwise_and, a, b);
        case ScalarOp::bit_or: return bitwise(Call::bitwise_or, a, b);
        case ScalarOp::bit_xor: return bitwise(Call::bitwise_xor, a, b);
        case ScalarOp::shl: return as_i32(bitwise(Call::shift_left, bits(a), count()));
        case ScalarOp::shr: return bitwise(Call::shift_right, a, count());
        case ScalarOp::shr_logical: return as_i32(bitwise(Call::shift_right, bits(a), count()));
        case ScalarOp::lt: return LT::make(a, b);
        case ScalarOp::le: return LE::make(a, b);
        case ScalarOp::eq: return EQ::make(a, b);
        case ScalarOp::ne: return NE::make(a, b);
        default: return {};
    }
}

Expr apply_b1(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::bit_and:
        case ScalarOp::min: return And::make(a, b);
        case ScalarOp::bit_or:
        case ScalarOp::max: return Or::make(a, b);
        case ScalarOp::bit_xor:
        case ScalarOp::ne: return NE::make(a, b);
        case ScalarOp::eq: return EQ::make(a, b);
        case ScalarOp::lt: return And::make(Not::make(a), b);
        case ScalarOp::le: return Or::make(Not::make(a), b);
        default: return {};
    }
}

Expr apply_unary(ScalarOp op, const Expr& a) {
    const Type type = a.type();
    if (type.is_bool()) {
        if (op == ScalarOp::bit_not) return Not::make(a);
        return op == ScalarOp::b1_to_i32 ? Select::make(a, unsigned_like(a, 1), unsigned_like(a, 0))
                                         : Expr();
    }
    const auto with_bits = [&](Call::IntrinsicOp how, uint32_t mask) {
        return as_f32(bitwise(how, as_i32(a), unsigned_like(a, mask)));
    };
    switch (op) {
        case ScalarOp::neg:
            return type.is_float() ? with_bits(Call::bitwise_xor, 0x80000000u) : negated(a);
        case ScalarOp::abs:
            return type.is_float() ? with_bits(Call::bitwise_and, 0x7FFFFFFFu)
                                   : Max::make(a, negated(a));  // INT32_MIN stays
        case ScalarOp::sqrt: return llvm("llvm.sqrt.f32", {a});
        case ScalarOp::floor: return llvm("llvm.floor.f32", {a});
        case ScalarOp::ceil: return llvm("llvm.ceil.f32", {a});
        case ScalarOp::trunc: return llvm("llvm.trunc.f32", {a});
        case ScalarOp::round_even: return llvm("llvm.roundeven.f32", {a});
        case ScalarOp::bit_not: return bitwise(Call::bitwise_xor, a, unsigned_like(a, ~0u));
        case ScalarOp::f32_to_i32: return truncated(a);
        case ScalarOp::i32_to_f32: return Cast::make(Halide::Float(32, type.lanes()), a);
        case ScalarOp::bits_f32_to_i32: return as_i32(a);
        case ScalarOp::bits_i32_to_f32: return as_f32(a);
        default: return {};  // expanded before it came here
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
        case DType::bf16: {
            const Expr wide = Cast::make(Halide::UInt(32, lanes), stored);
            return as_f32(bitwise(Call::shift_left, wide,
                                  Cast::make(wide.type(), constant(ScalarType::i32, 16, lanes))));
        }
        case DType::i16: return Cast::make(i32, Reinterpret::make(Halide::Int(16, lanes), stored));
        case DType::i8: return Cast::make(i32, Reinterpret::make(Halide::Int(8, lanes), stored));
        case DType::u8:
        case DType::u16: return Cast::make(i32, stored);
        case DType::b8:
            return NE::make(stored, Cast::make(stored.type(), constant(ScalarType::i32, 0, lanes)));
        case DType::c64: break;
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
        case DType::bf16: {
            // On integers: the instruction of AVX512_BF16 takes denormals for zero.
            const auto number = [&](uint32_t n) {
                return Cast::make(Halide::UInt(32, lanes), constant(ScalarType::i32, n, lanes));
            };
            const Expr all = bits(value), high = bitwise(Call::shift_right, all, number(16));
            const Expr odd = bitwise(Call::bitwise_and, high, number(1));
            const Expr rounded = bitwise(
                Call::shift_right, Add::make(all, Add::make(odd, number(0x7FFF))), number(16));
            return Cast::make(stored,
                              Select::make(unordered(value),
                                           bitwise(Call::bitwise_or, high, number(0x40)), rounded));
        }
        case DType::i16:
        case DType::u16:
        case DType::i8:
        case DType::u8: return Cast::make(stored, bits(value));
        case DType::b8: return Cast::make(stored, value);
        case DType::c64: break;
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
        case ScalarOp::narrow: return widen(inst.narrow_to, shorten(inst.narrow_to, v[0]));
        case ScalarOp::fma: return llvm("llvm.fma.f32", {v[0], v[1], v[2]});
        default:
            return runtime::arity_of(inst.op) == 1 ? apply_unary(inst.op, v[0])
                                                   : apply(inst.op, v[0], v[1]);
    }
}

}  // namespace megjit::halide_backend
