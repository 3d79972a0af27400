// Nodes are made by their constructors, not by operators: operators fold constants, and their
// integers do not wrap.
#include "backends/halide/emit_scalar.h"

#include <bit>
#include <limits>

namespace megjit::halide_backend {
namespace {

using namespace Halide::Internal;
using codegen::loops::Kind;
using Halide::Expr;
using Halide::Type;
using runtime::DType;
using runtime::ScalarOp;

Expr strict(Call::IntrinsicOp op, const Expr& a, const Expr& b) {
    return Call::make(a.type(), op, {a, b}, Call::PureIntrinsic);
}
Expr less(const Expr& a, const Expr& b) {
    return Call::make(Halide::Bool(a.type().lanes()), Call::strict_lt, {a, b}, Call::PureIntrinsic);
}
Expr equal(const Expr& a, const Expr& b) {
    return Call::make(Halide::Bool(a.type().lanes()), Call::strict_eq, {a, b}, Call::PureIntrinsic);
}
// strict_le would not do: it is `not b < a`, which holds for NaN.
Expr less_equal(const Expr& a, const Expr& b) { return Or::make(less(a, b), equal(a, b)); }
// A divisor must not be a constant zero; one behind a let may.
Expr quotient(const Expr& a, const Expr& b) {
    return Let::make("divisor", b,
                     strict(Call::strict_div, a, Variable::make(b.type(), "divisor")));
}

// Calls one of LLVM's own functions, "llvm.floor". It is called lane by lane, and LLVM's SLP
// vectorizer makes one vector instruction of the calls. Halide's functions of vectors (floor, ...)
// stop at 8 lanes, and it has no fma.
Expr llvm(std::string name, std::initializer_list<Expr> args) {
    const Type type = args.begin()->type();
    name += type.bits() == 64 ? ".f64" : ".f32";
    return Call::make(type, name, args, Call::PureExtern);
}

// These return the same bits as numbers of another type: unsigned, signed, real.
Expr bits(const Expr& value) {
    return Reinterpret::make(value.type().with_code(Type::UInt), value);
}
Expr as_integer(const Expr& value) {
    return Reinterpret::make(value.type().with_code(Type::Int), value);
}
Expr as_real(const Expr& value) {
    return Reinterpret::make(value.type().with_code(Type::Float), value);
}

Expr bitwise(Call::IntrinsicOp op, const Expr& a, const Expr& b) {
    return Call::make(a.type(), op, {a, b}, Call::PureIntrinsic);
}
// Computes on the bits of a and b as an integer. Unsigned arithmetic wraps; signed overflow would
// be undefined in Halide.
template <class Node>
Expr wrapping(const Expr& a, const Expr& b) {
    return as_integer(Node::make(bits(a), bits(b)));
}

Expr of_reals(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::add: return strict(Call::strict_add, a, b);
        case ScalarOp::sub: return strict(Call::strict_sub, a, b);
        case ScalarOp::mul: return strict(Call::strict_mul, a, b);
        case ScalarOp::div: return quotient(a, b);
        case ScalarOp::mod:  // exact
            return Call::make(a.type(), a.type().bits() == 64 ? "fmod" : "fmodf", {a, b},
                              Call::PureExtern);
        case ScalarOp::lt: return less(a, b);
        case ScalarOp::le: return less_equal(a, b);
        case ScalarOp::eq: return equal(a, b);
        case ScalarOp::ne: return Not::make(equal(a, b));
        default: return {};
    }
}

// Computes a quotient or remainder of i64 or index, which are unsigned here.
Expr without_sign(ScalarOp op, const Expr& a, const Expr& b) {
    const Expr x = bits(a), y = bits(b);
    return as_integer(op == ScalarOp::div ? Div::make(x, y) : Mod::make(x, y));
}

Expr of_integers(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::add: return wrapping<Add>(a, b);
        case ScalarOp::sub: return wrapping<Sub>(a, b);
        case ScalarOp::mul: return wrapping<Mul>(a, b);
        case ScalarOp::div:
        case ScalarOp::mod: return a.type().bits() == 64 ? without_sign(op, a, b) : Expr();
        case ScalarOp::max: return Max::make(a, b);
        case ScalarOp::min: return Min::make(a, b);
        case ScalarOp::bit_and: return bitwise(Call::bitwise_and, a, b);
        case ScalarOp::bit_or: return bitwise(Call::bitwise_or, a, b);
        case ScalarOp::bit_xor: return bitwise(Call::bitwise_xor, a, b);
        case ScalarOp::shl: return as_integer(bitwise(Call::shift_left, bits(a), bits(b)));
        case ScalarOp::shr: return bitwise(Call::shift_right, a, bits(b));
        case ScalarOp::shr_logical: return as_integer(bitwise(Call::shift_right, bits(a), bits(b)));
        case ScalarOp::lt: return LT::make(a, b);
        case ScalarOp::le: return LE::make(a, b);
        case ScalarOp::eq: return EQ::make(a, b);
        case ScalarOp::ne: return NE::make(a, b);
        default: return {};
    }
}

// Indices do not overflow, and Halide simplifies signed integers.
Expr of_indices(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::add: return Add::make(a, b);
        case ScalarOp::sub: return Sub::make(a, b);
        case ScalarOp::mul: return Mul::make(a, b);
        default: return of_integers(op, a, b);
    }
}

Expr of_truths(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::bit_and: return And::make(a, b);
        case ScalarOp::bit_or: return Or::make(a, b);
        case ScalarOp::bit_xor: return NE::make(a, b);
        default: return {};
    }
}

Expr of_one(ScalarOp op, const Expr& a) {
    const Type type = a.type();
    const bool is_double = type.bits() == 64;
    const auto with_bits = [&](Call::IntrinsicOp how, uint64_t mask) {
        const Kind kind = is_double ? Kind::i64 : Kind::i32;
        return as_real(bitwise(how, as_integer(a), constant({kind, type.lanes()}, mask)));
    };
    const uint64_t sign = uint64_t{1} << (type.bits() - 1);
    switch (op) {
        case ScalarOp::neg: return with_bits(Call::bitwise_xor, sign);
        case ScalarOp::abs: return with_bits(Call::bitwise_and, sign - 1);
        case ScalarOp::sqrt: return llvm("llvm.sqrt", {a});
        case ScalarOp::floor: return llvm("llvm.floor", {a});
        case ScalarOp::ceil: return llvm("llvm.ceil", {a});
        case ScalarOp::trunc: return llvm("llvm.trunc", {a});
        case ScalarOp::round_even: return llvm("llvm.roundeven", {a});
        case ScalarOp::bits_f32_to_i32: return as_integer(a);
        case ScalarOp::bits_i32_to_f32: return as_real(a);
        default: return {};  // not legal
    }
}

}  // namespace

Type type_of(codegen::loops::Type type) {
    switch (type.kind) {
        case Kind::b1: return Halide::Bool(type.lanes);
        case Kind::i8: return Halide::UInt(8, type.lanes);
        case Kind::i16: return Halide::UInt(16, type.lanes);
        case Kind::i32: return Halide::Int(32, type.lanes);
        case Kind::i64:
        case Kind::index: return Halide::Int(64, type.lanes);
        case Kind::f32: return Halide::Float(32, type.lanes);
        case Kind::f64: return Halide::Float(64, type.lanes);
    }
    return {};
}

Type memory_type(Kind kind, int lanes) {
    return kind == Kind::b1 ? Halide::UInt(8, lanes) : type_of({kind, lanes});
}

Expr constant(codegen::loops::Type type, uint64_t bits) {
    const Type one = type_of({type.kind});
    const Expr value = [&]() -> Expr {
        switch (type.kind) {
            case Kind::f32:
                return FloatImm::make(one, std::bit_cast<float>(static_cast<uint32_t>(bits)));
            case Kind::f64: return FloatImm::make(one, std::bit_cast<double>(bits));
            case Kind::b1: return UIntImm::make(one, bits != 0);
            case Kind::i8:
            case Kind::i16: return UIntImm::make(one, bits);
            case Kind::i32: return IntImm::make(one, static_cast<int32_t>(bits));
            default: return IntImm::make(one, static_cast<int64_t>(bits));
        }
    }();
    return type.lanes == 1 ? value : Broadcast::make(value, type.lanes);
}

Expr widen(DType dtype, const Expr& stored) {
    const int lanes = stored.type().lanes();
    const Type i32 = Halide::Int(32, lanes);
    switch (dtype) {
        case DType::f32:
        case DType::i32:
        case DType::f64:
        case DType::i64: return stored;
        case DType::f16:
            return Cast::make(Halide::Float(32, lanes),
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
    const Type stored = memory_type(codegen::loops::storage_of(dtype), lanes);
    switch (dtype) {
        case DType::f32:
        case DType::i32:
        case DType::f64:
        case DType::i64: return value;
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

Expr convert(const Type& to, const Expr& value) {
    if (!value.type().is_bool()) return Cast::make(to, value);
    const Kind kind = to.bits() == 64 ? Kind::i64 : Kind::i32;
    return Select::make(value, constant({kind, to.lanes()}, 1), constant({kind, to.lanes()}, 0));
}

Expr fenced(const Expr& value, const Expr& opaque_zero) {
    const Type type = value.type().with_code(Type::Int);
    const Expr zero = type.bits() == 64 ? Cast::make(Halide::Int(64), opaque_zero) : opaque_zero;
    return as_real(bitwise(Call::bitwise_xor, as_integer(value),
                           type.lanes() == 1 ? zero : Broadcast::make(zero, type.lanes())));
}

Expr compute(ScalarOp op, Kind kind, std::span<const Expr> v) {
    if (op == ScalarOp::select) return Select::make(v[0], v[1], v[2]);
    if (op == ScalarOp::fma) return llvm("llvm.fma", {v[0], v[1], v[2]});
    if (runtime::arity_of(op) == 1) return of_one(op, v[0]);
    switch (kind) {
        case Kind::f32:
        case Kind::f64: return of_reals(op, v[0], v[1]);
        case Kind::b1: return of_truths(op, v[0], v[1]);
        case Kind::index: return of_indices(op, v[0], v[1]);
        default: return of_integers(op, v[0], v[1]);
    }
}

}  // namespace megjit::halide_backend
