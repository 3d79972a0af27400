#include "codegen/scalar_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/host/error.h"
#include "runtime/host/half.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// psi(x): recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18),
// reflection (6.3.7) below 0. NaN at 0, -1, -2, ... but -inf and inf at +0 and -0, as SciPy.
double digamma_f64(double x) {
    if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
    if (x < 0) {
        if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
        const double part = x - std::floor(x);
        return digamma_f64(1 - x) - M_PI / std::tan(M_PI * part);
    }
    double sum = 0;
    for (; x < 10; x += 1) sum -= 1 / x;
    const double r = 1 / (x * x);
    return sum + std::log(x) - 0.5 / x -
           r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132)))));
}

// The root y of erf(y) = x by Newton's method on erfc, which keeps its digits near |x| = 1.
double erfinv_f64(double x) {
    if (x != x || std::fabs(x) > 1) return std::numeric_limits<double>::quiet_NaN();
    if (std::fabs(x) == 1) return std::copysign(std::numeric_limits<double>::infinity(), x);
    if (std::fabs(x) < 1e-9) return x * (std::sqrt(M_PI) / 2);
    const double tail = 1 - std::fabs(x);
    double y = std::fabs(x) < 0.7 ? std::fabs(x) * 0.9 : std::sqrt(-std::log(tail));
    for (int i = 0; i < 60; ++i) {
        const double error = std::fabs(x) < 0.5 ? std::fabs(x) - std::erf(y) : std::erfc(y) - tail;
        const double step = error * (std::sqrt(M_PI) / 2) * std::exp(y * y);
        y += std::clamp(step, -0.5, 0.5);
        if (std::fabs(step) < 1e-16 * y) break;
    }
    return std::copysign(y, x);
}

double lgamma_f64(double x) {
    int sign = 0;
    return ::lgamma_r(x, &sign);
}

float transcendental(ScalarOp op, double a, double b) {
    switch (op) {
        case ScalarOp::exp: return static_cast<float>(std::exp(a));
        case ScalarOp::expm1: return static_cast<float>(std::expm1(a));
        case ScalarOp::log: return static_cast<float>(std::log(a));
        case ScalarOp::log1p: return static_cast<float>(std::log1p(a));
        case ScalarOp::sin: return static_cast<float>(std::sin(a));
        case ScalarOp::cos: return static_cast<float>(std::cos(a));
        case ScalarOp::tan: return static_cast<float>(std::tan(a));
        case ScalarOp::asin: return static_cast<float>(std::asin(a));
        case ScalarOp::acos: return static_cast<float>(std::acos(a));
        case ScalarOp::atan: return static_cast<float>(std::atan(a));
        case ScalarOp::atan2: return static_cast<float>(std::atan2(a, b));
        case ScalarOp::sinh: return static_cast<float>(std::sinh(a));
        case ScalarOp::cosh: return static_cast<float>(std::cosh(a));
        case ScalarOp::tanh: return static_cast<float>(std::tanh(a));
        case ScalarOp::asinh: return static_cast<float>(std::asinh(a));
        case ScalarOp::acosh: return static_cast<float>(std::acosh(a));
        case ScalarOp::atanh: return static_cast<float>(std::atanh(a));
        case ScalarOp::erf: return static_cast<float>(std::erf(a));
        case ScalarOp::erfc: return static_cast<float>(std::erfc(a));
        case ScalarOp::erfinv: return static_cast<float>(erfinv_f64(a));
        case ScalarOp::pow: return static_cast<float>(std::pow(a, b));
        case ScalarOp::lgamma: return static_cast<float>(lgamma_f64(a));
        case ScalarOp::digamma: return static_cast<float>(digamma_f64(a));
        default: throw InternalError(cat("interpreter: unknown instruction ", name_of(op)));
    }
}

uint32_t eval_f32(ScalarOp op, float a, float b, float c) {
    switch (op) {
        case ScalarOp::add: return bits_of(a + b);
        case ScalarOp::sub: return bits_of(a - b);
        case ScalarOp::mul: return bits_of(a * b);
        case ScalarOp::div: return bits_of(a / b);
        case ScalarOp::mod: return bits_of(std::fmod(a, b));
        case ScalarOp::neg: return bits_of(a) ^ 0x80000000u;
        case ScalarOp::abs: return bits_of(a) & 0x7FFFFFFFu;
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
        case ScalarOp::f32_to_i32:
            return a >= -0x1p31f && a < 0x1p31f ? static_cast<uint32_t>(static_cast<int32_t>(a))
                                                : 0x80000000u;
        case ScalarOp::bits_f32_to_i32: return bits_of(a);
        default: return bits_of(transcendental(op, a, b));
    }
}

// Everything in 64 bits, so that nothing overflows before it wraps.
uint32_t eval_i32(ScalarOp op, uint32_t ua, uint32_t ub) {
    const int64_t a = static_cast<int32_t>(ua), b = static_cast<int32_t>(ub);
    const auto floor_div = [&] { return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0)); };
    int64_t result = 0;
    switch (op) {
        case ScalarOp::add: result = a + b; break;
        case ScalarOp::sub: result = a - b; break;
        case ScalarOp::mul: result = a * b; break;
        case ScalarOp::div: result = floor_div(); break;
        case ScalarOp::mod: result = b == 0 ? 0 : a - floor_div() * b; break;
        case ScalarOp::neg: result = -a; break;
        case ScalarOp::abs: result = std::abs(a); break;
        case ScalarOp::max: result = std::max(a, b); break;
        case ScalarOp::min: result = std::min(a, b); break;
        case ScalarOp::bit_and: result = a & b; break;
        case ScalarOp::bit_or: result = a | b; break;
        case ScalarOp::bit_xor: result = a ^ b; break;
        case ScalarOp::bit_not: result = ~a; break;
        case ScalarOp::shl: return ua << (ub % 32);
        case ScalarOp::shr: result = a >> (ub % 32); break;
        case ScalarOp::shr_logical: return ua >> (ub % 32);
        case ScalarOp::lt: result = a < b; break;
        case ScalarOp::le: result = a <= b; break;
        case ScalarOp::eq: result = a == b; break;
        case ScalarOp::ne: result = a != b; break;
        case ScalarOp::i32_to_f32: return bits_of(static_cast<float>(static_cast<int32_t>(ua)));
        case ScalarOp::bits_i32_to_f32: return ua;
        default: throw InternalError(cat("interpreter: ", name_of(op), " does not take i32"));
    }
    return static_cast<uint32_t>(result);
}

uint32_t eval_b1(ScalarOp op, bool a, bool b) {
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
        case ScalarOp::b1_to_i32: return a;
        default: throw InternalError(cat("interpreter: ", name_of(op), " does not take b1"));
    }
}

}  // namespace

uint32_t widened(DType dtype, uint32_t stored) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return stored;
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

uint32_t shortened(DType dtype, uint32_t value) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return value;
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

uint32_t evaluate(ScalarOp op, ScalarType taken, DType narrow_to, const uint32_t* v) {
    if (op == ScalarOp::select) return v[0] ? v[1] : v[2];
    if (op == ScalarOp::narrow) return widened(narrow_to, shortened(narrow_to, v[0]));
    switch (taken) {
        case ScalarType::f32: return eval_f32(op, float_of(v[0]), float_of(v[1]), float_of(v[2]));
        case ScalarType::i32: return eval_i32(op, v[0], v[1]);
        case ScalarType::b1: return eval_b1(op, v[0], v[1]);
    }
    return 0;
}

}  // namespace megjit::codegen
