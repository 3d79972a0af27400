// tests/card/emulator/ptx/rounding.h -- narrow floating types, and results rounded as an
// instruction says.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>

namespace megjit::card::ptx {

enum class Rounding : uint8_t { nearest, zero, down, up, away };  // away: ties away from zero

constexpr uint32_t kNan32 = 0x7fffffff;
constexpr uint16_t kNanHalf = 0x7fff;  // float16 and bfloat16

inline float flushed(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return bits & 0x7f800000 ? x : std::bit_cast<float>(bits & 0x80000000);
}
inline float saturated(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }  // NaN gives 0
inline double saturated(double x) { return x > 0 ? (x < 1 ? x : 1.0) : 0.0; }

inline float from_half(uint16_t h) { return _cvtsh_ss(h); }
inline float from_bfloat(uint16_t h) {
    return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}
inline uint16_t to_half(float x) {
    return x != x ? kNanHalf : static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}
inline uint16_t to_bfloat(float x) {
    if (x != x) return kNanHalf;
    const auto bits = std::bit_cast<uint32_t>(x);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A value with `digits` significant bits, exponents as the type has them, from a double. Works on
// the integer of the double's significand, so that each mode is exact. Values beyond the type's
// largest become infinite where the mode says so; `x` must not be NaN.
inline double rounded(double x, Rounding mode, int digits, int min_exponent, double largest) {
    if (x == 0 || std::isinf(x)) return x;
    int exponent = 0;
    std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
    const int unit = std::max(exponent - digits, min_exponent - digits + 1);
    const double scaled = std::ldexp(x, -unit);  // exact: digits bits before the point
    double whole = std::trunc(scaled);
    const double rest = std::fabs(scaled - whole);
    const double away = std::copysign(1.0, x);
    switch (mode) {
        case Rounding::nearest:
            if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0)) whole += away;
            break;
        case Rounding::away:
            if (rest >= 0.5) whole += away;
            break;
        case Rounding::zero: break;
        case Rounding::down:
            if (rest != 0 && x < 0) whole -= 1;
            break;
        case Rounding::up:
            if (rest != 0 && x > 0) whole += 1;
            break;
    }
    const double result = std::copysign(std::ldexp(whole, unit), x);
    if (std::fabs(result) <= largest) return result;
    const bool to_infinity = mode == Rounding::nearest || mode == Rounding::away ||
                             (mode == Rounding::up && x > 0) || (mode == Rounding::down && x < 0);
    return to_infinity ? std::copysign(INFINITY, x) : std::copysign(largest, x);
}
inline float rounded_to_float(double x, Rounding mode) {
    if (mode == Rounding::nearest || x != x) return static_cast<float>(x);
    return static_cast<float>(rounded(x, mode, 24, -126, 3.4028234663852886e38));
}
inline uint16_t rounded_to_half(double x, Rounding mode) {
    if (x != x) return kNanHalf;
    return to_half(static_cast<float>(rounded(x, mode, 11, -14, 65504)));
}
inline uint16_t rounded_to_bfloat(double x, Rounding mode) {
    if (x != x) return kNanHalf;
    return to_bfloat(static_cast<float>(rounded(x, mode, 8, -126, 3.3895313892515355e38)));
}

// a * b + c for values of narrow types: rounded to odd, so that rounding it again is exact.
inline double fused_to_odd(double a, double b, double c) {
    const double product = a * b;  // exact
    const double sum = product + c;
    if (!std::isfinite(sum)) return sum;
    const double back = sum - product;
    const double error = (product - (sum - back)) + (c - back);
    if (error == 0) return sum;
    auto bits = std::bit_cast<uint64_t>(sum);
    if (bits & 1) return sum;
    // Towards the exact value, which is never the neighbour itself.
    bits += (error > 0) == (sum > 0) ? 1 : -1;
    return std::bit_cast<double>(bits);
}

// The mode of the host's arithmetic, within a scope.
class HostRounding {
public:
    explicit HostRounding(Rounding mode) {
        constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD,
                                  FE_TONEAREST};
        if (mode != Rounding::nearest) std::fesetround(kModes[static_cast<int>(mode)]);
        changed_ = mode != Rounding::nearest;
    }
    ~HostRounding() {
        if (changed_) std::fesetround(FE_TONEAREST);
    }

private:
    bool changed_;
};

}  // namespace megjit::card::ptx
