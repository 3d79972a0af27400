#include "codegen/scalar_oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/core/scalar_double.h"
#include "runtime/host/error.h"
#include "runtime/host/half.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

// Converts values to bits and back; values of 32 bits use the lower half.
template <class T>
uint64_t bits_of(T value) {
    if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
    else return std::bit_cast<uint64_t>(value);
}
float float_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

// Compares the real number with the bounds of the integer type.
template <class Int>
Int truncated(double value) {
    const double limit = std::ldexp(1.0, 8 * sizeof(Int) - 1);
    const double whole = std::trunc(value);
    return whole >= -limit && whole < limit ? static_cast<Int>(whole)
                                            : std::numeric_limits<Int>::min();
}

template <class Real>
uint64_t cast_real(ScalarType type, Real a) {
    switch (type) {
        case ScalarType::f32: return bits_of(static_cast<float>(a));
        case ScalarType::f64: return bits_of(static_cast<double>(a));
        case ScalarType::i32: return static_cast<uint32_t>(truncated<int32_t>(a));
        case ScalarType::i64: return static_cast<uint64_t>(truncated<int64_t>(a));
        case ScalarType::b1: break;
    }
    throw InternalError("interpreter: a cast to b1");
}

uint64_t cast_integer(ScalarType type, int64_t a) {
    switch (type) {
        case ScalarType::f32: return bits_of(static_cast<float>(a));
        case ScalarType::f64: return bits_of(static_cast<double>(a));
        case ScalarType::i32: return static_cast<uint32_t>(a);
        case ScalarType::i64: return static_cast<uint64_t>(a);
        case ScalarType::b1: break;
    }
    throw InternalError("interpreter: a cast to b1");
}

template <class Real>
uint64_t eval_real(ScalarOp op, ScalarType gives, Real a, Real b, Real c) {
    switch (op) {
        case ScalarOp::add: return bits_of(a + b);
        case ScalarOp::sub: return bits_of(a - b);
        case ScalarOp::mul: return bits_of(a * b);
        case ScalarOp::div: return bits_of(a / b);
        case ScalarOp::mod: return bits_of(std::fmod(a, b));
        case ScalarOp::neg: return bits_of(-a);
        case ScalarOp::abs: return bits_of(std::fabs(a));
        case ScalarOp::max: return bits_of(a != a ? a : b != b ? b : a < b ? b : a);
        case ScalarOp::min: return bits_of(a != a ? a : b != b ? b : b < a ? b : a);
        case ScalarOp::fma: return bits_of(std::fma(a, b, c));
        case ScalarOp::sqrt: return bits_of(std::sqrt(a));
        case ScalarOp::floor: return bits_of(std::floor(a));
        case ScalarOp::ceil: return bits_of(std::ceil(a));
        case ScalarOp::trunc: return bits_of(std::trunc(a));
        case ScalarOp::round_even: return bits_of(std::nearbyint(a));
        case ScalarOp::lt: return a < b;
        case ScalarOp::le: return a <= b;
        case ScalarOp::eq: return a == b;
        case ScalarOp::ne: return a != b;
        case ScalarOp::cast: return cast_real(gives, a);
        case ScalarOp::bits_f32_to_i32: return bits_of(a);
        default: return bits_of(static_cast<Real>(transcendental_f64(op, a, b)));
    }
}

// Computes in 128 bits, so that nothing overflows before it wraps.
template <class Int>
uint64_t eval_integer(ScalarOp op, ScalarType gives, uint64_t ua, uint64_t ub) {
    using Wide = __int128;
    using Natural = std::make_unsigned_t<Int>;
    constexpr Natural kBits = 8 * sizeof(Int);
    const Wide a = static_cast<Int>(ua), b = static_cast<Int>(ub);
    const auto floor_div = [&] {
        return b == 0 ? Wide(0) : a / b - (a % b != 0 && (a < 0) != (b < 0));
    };
    const Natural shifts = static_cast<Natural>(ub) % kBits;
    Wide result = 0;
    switch (op) {
        case ScalarOp::add: result = a + b; break;
        case ScalarOp::sub: result = a - b; break;
        case ScalarOp::mul: result = a * b; break;
        case ScalarOp::div: result = floor_div(); break;
        case ScalarOp::mod: result = b == 0 ? Wide(0) : a - floor_div() * b; break;
        case ScalarOp::neg: result = -a; break;
        case ScalarOp::abs: result = a < 0 ? -a : a; break;
        case ScalarOp::max: result = std::max(a, b); break;
        case ScalarOp::min: result = std::min(a, b); break;
        case ScalarOp::bit_and: result = a & b; break;
        case ScalarOp::bit_or: result = a | b; break;
        case ScalarOp::bit_xor: result = a ^ b; break;
        case ScalarOp::bit_not: result = ~a; break;
        case ScalarOp::shl: result = static_cast<Wide>(static_cast<Natural>(ua)) << shifts; break;
        case ScalarOp::shr: result = a >> shifts; break;
        case ScalarOp::shr_logical: result = static_cast<Natural>(ua) >> shifts; break;
        case ScalarOp::lt: return a < b;
        case ScalarOp::le: return a <= b;
        case ScalarOp::eq: return a == b;
        case ScalarOp::ne: return a != b;
        case ScalarOp::cast: return cast_integer(gives, static_cast<Int>(ua));
        case ScalarOp::bits_i32_to_f32: return static_cast<uint32_t>(ua);
        default: throw InternalError(cat("interpreter: ", name_of(op), " does not take integers"));
    }
    return static_cast<Natural>(result);
}

uint64_t eval_b1(ScalarOp op, bool a, bool b) {
    switch (op) {
        case ScalarOp::bit_and:
        case ScalarOp::min: return a && b;
        case ScalarOp::bit_or:
        case ScalarOp::max: return a || b;
        case ScalarOp::bit_xor:
        case ScalarOp::ne: return a != b;
        case ScalarOp::eq: return a == b;
        case ScalarOp::bit_not: return !a;
        case ScalarOp::lt: return !a && b;
        case ScalarOp::le: return !a || b;
        case ScalarOp::cast: return a;
        default: throw InternalError(cat("interpreter: ", name_of(op), " does not take b1"));
    }
}

}  // namespace

uint64_t widened(DType dtype, uint64_t stored) {
    switch (dtype) {
        case DType::f32:
        case DType::i32:
        case DType::f64:
        case DType::i64: return stored;
        case DType::f16: return bits_of(half_to_float(static_cast<uint16_t>(stored)));
        case DType::bf16: return bits_of(bfloat_to_float(static_cast<uint16_t>(stored)));
        case DType::i16: return static_cast<uint32_t>(static_cast<int16_t>(stored));
        case DType::i8: return static_cast<uint32_t>(static_cast<int8_t>(stored));
        case DType::u8: return static_cast<uint8_t>(stored);
        case DType::u16: return static_cast<uint16_t>(stored);
        case DType::b8: return static_cast<uint8_t>(stored) != 0;
        case DType::c64: break;
    }
    throw InternalError("interpreter: complex64 has no scalar");
}

uint64_t shortened(DType dtype, uint64_t value) {
    switch (dtype) {
        case DType::f32:
        case DType::i32:
        case DType::f64:
        case DType::i64: return value;
        case DType::f16: return float_to_half(float_of(value));
        case DType::bf16: return float_to_bfloat(float_of(value));
        case DType::i16:
        case DType::u16: return static_cast<uint16_t>(value);
        case DType::i8:
        case DType::u8:
        case DType::b8: return static_cast<uint8_t>(value);
        case DType::c64: break;
    }
    throw InternalError("interpreter: complex64 has no scalar");
}

uint64_t evaluate(ScalarOp op, ScalarType taken, ScalarType gives, DType narrow_to,
                  const uint64_t* v) {
    if (op == ScalarOp::select) return v[0] ? v[1] : v[2];
    if (op == ScalarOp::narrow) return widened(narrow_to, shortened(narrow_to, v[0]));
    const auto f64 = [&](int k) { return std::bit_cast<double>(v[k]); };
    switch (taken) {
        case ScalarType::f32:
            return eval_real(op, gives, float_of(v[0]), float_of(v[1]), float_of(v[2]));
        case ScalarType::f64: return eval_real(op, gives, f64(0), f64(1), f64(2));
        case ScalarType::i32: return eval_integer<int32_t>(op, gives, v[0], v[1]);
        case ScalarType::i64: return eval_integer<int64_t>(op, gives, v[0], v[1]);
        case ScalarType::b1: return eval_b1(op, v[0], v[1]);
    }
    return 0;
}

}  // namespace megjit::codegen
