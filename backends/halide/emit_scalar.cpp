// Nodes are made by their constructors, not by operators: those fold constants, and their integers
// do not wrap.
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
    return constant({Kind::i32, value.type().lanes()}, number);
}

Expr bitwise(Call::IntrinsicOp op, const Expr& a, const Expr& b) {
    return Call::make(a.type(), op, {a, b}, Call::PureIntrinsic);
}
// On the bits of a and b, as an i32. Unsigned arithmetic wraps, signed one is undefined there.
template <class Node>
Expr wrapping(const Expr& a, const Expr& b) {
    return as_i32(Node::make(bits(a), bits(b)));
}

Expr of_reals(ScalarOp op, const Expr& a, const Expr& b) {
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

Expr of_words(ScalarOp op, const Expr& a, const Expr& b) {
    switch (op) {
        case ScalarOp::add: return wrapping<Add>(a, b);
        case ScalarOp::sub: return wrapping<Sub>(a, b);
        case ScalarOp::mul: return wrapping<Mul>(a, b);
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

// Quotients and remainders have no sign.
Expr of_indices(ScalarOp op, const Expr& a, const Expr& b) {
    const Type type = a.type(), natural = Halide::UInt(64, type.lanes());
    const auto unsigned_of = [&](auto make) {
        return Cast::make(type, make(Cast::make(natural, a), Cast::make(natural, b)));
    };
    switch (op) {
        case ScalarOp::add: return Add::make(a, b);
        case ScalarOp::sub: return Sub::make(a, b);
        case ScalarOp::mul: return Mul::make(a, b);
        case ScalarOp::div: return unsigned_of([](Expr x, Expr y) { return Div::make(x, y); });
        case ScalarOp::mod: return unsigned_of([](Expr x, Expr y) { return Mod::make(x, y); });
        case ScalarOp::max: return Max::make(a, b);
        case ScalarOp::min: return Min::make(a, b);
        case ScalarOp::bit_and: return bitwise(Call::bitwise_and, a, b);
        case ScalarOp::bit_or: return bitwise(Call::bitwise_or, a, b);
        case ScalarOp::shl: return bitwise(Call::shift_left, a, Cast::make(natural, b));
        case ScalarOp::shr_logical:
            return Cast::make(
                type, bitwise(Call::shift_right, Cast::make(natural, a), Cast::make(natural, b)));
        case ScalarOp::lt: return LT::make(a, b);
        case ScalarOp::le: return LE::make(a, b);
        case ScalarOp::eq: return EQ::make(a, b);
        default: return {};
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
        case DType::i32: return stored;
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
    const int lanes = value.type().lanes();
    return as_f32(bitwise(Call::bitwise_xor, as_i32(value),
                          lanes == 1 ? opaque_zero : Broadcast::make(opaque_zero, lanes)));
}

Expr compute(ScalarOp op, Kind kind, std::span<const Expr> v) {
    if (op == ScalarOp::select) return Select::make(v[0], v[1], v[2]);
    if (op == ScalarOp::fma) return llvm("llvm.fma.f32", {v[0], v[1], v[2]});
    if (kind == Kind::f64 && op == ScalarOp::floor) return llvm("llvm.floor.f64", {v[0]});
    if (runtime::arity_of(op) == 1) return of_one(op, v[0]);
    switch (kind) {
        case Kind::f32:
        case Kind::f64: return of_reals(op, v[0], v[1]);
        case Kind::i32: return of_words(op, v[0], v[1]);
        case Kind::b1: return of_truths(op, v[0], v[1]);
        default: return of_indices(op, v[0], v[1]);
    }
}

}  // namespace megjit::halide_backend
