// runtime/ops/distributions.h -- random numbers of the distributions that are not uniform, each
// from the bits that its place has in the generator.
//
// Compiled twice, as philox.h is: the host and a GPU draw the same bits, since all operations that
// they use are rounded by IEEE 754 (and neither compiler contracts). So the functions below replace
// a library's; they are exact to 2 ulp.
#pragma once

#ifndef __CUDACC_RTC__
#include <bit>
#include <cmath>

#include "runtime/ops/philox.h"
#endif

namespace megjit::runtime {

#ifdef __CUDACC_RTC__
MEGJIT_ANYWHERE double root(double x) { return __dsqrt_rn(x); }
MEGJIT_ANYWHERE float root(float x) { return __fsqrt_rn(x); }
MEGJIT_ANYWHERE double round_down(double x) { return floor(x); }
MEGJIT_ANYWHERE int64_t bits_of(double x) { return __double_as_longlong(x); }
MEGJIT_ANYWHERE uint32_t bits_of(float x) { return __float_as_uint(x); }
MEGJIT_ANYWHERE double from_bits(int64_t bits) { return __longlong_as_double(bits); }
MEGJIT_ANYWHERE float from_bits(uint32_t bits) { return __uint_as_float(bits); }
#else
MEGJIT_ANYWHERE double root(double x) { return std::sqrt(x); }
MEGJIT_ANYWHERE float root(float x) { return std::sqrt(x); }
MEGJIT_ANYWHERE double round_down(double x) { return std::floor(x); }
MEGJIT_ANYWHERE int64_t bits_of(double x) { return std::bit_cast<int64_t>(x); }
MEGJIT_ANYWHERE uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
MEGJIT_ANYWHERE double from_bits(int64_t bits) { return std::bit_cast<double>(bits); }
MEGJIT_ANYWHERE float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
#endif

// --- normal numbers in float --------------------------------------------------------------------

// log of a float in (0, 1] that is not denormal: m 2^e with m near 1, and 2 atanh((m - 1) / (m +
// 1)). About 1 ulp of log2 e.
MEGJIT_ANYWHERE float fast_log(float x) {
    const uint32_t bits = bits_of(x), shifted = bits - 0x3F3504F3u;  // sqrt(1/2)
    const auto exponent = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
    const float m = from_bits((shifted & 0x007FFFFFu) + 0x3F3504F3u);
    const float t = (m - 1) / (m + 1), s = t * t;
    const float series =
        2 * t +
        t * s *
            (0.66666667f + s * (0.4f + s * (0.28571430f + s * (0.22222222f + s * 0.18181818f))));
    return exponent * 0.69314718f + series;
}

// sin and cos of a quarter turn or less, |a| <= pi / 4, by Taylor's series.
MEGJIT_ANYWHERE float small_sin(float a) {
    const float s = a * a;
    return a + a * s * (-1.0f / 6 + s * (1.0f / 120 + s * (-1.0f / 5040 + s * (1.0f / 362880))));
}
MEGJIT_ANYWHERE float small_cos(float a) {
    const float s = a * a;
    return 1 + s * (-0.5f + s * (1.0f / 24 + s * (-1.0f / 720 + s * (1.0f / 40320))));
}

// Box and Muller 1958: radius sqrt(-2 log u), angle 2 pi v. The word's top three bits choose the
// eighth of the turn, so that the angle itself stays small and no reduction is needed.
MEGJIT_ANYWHERE void normal_pair(uint32_t radius_word, uint32_t angle_word, float* a, float* b) {
    const float u = static_cast<float>(static_cast<int32_t>((radius_word >> 8) + 1)) * 0x1p-24f;
    const float square = -2 * fast_log(u), radius = root(square > 0 ? square : 0.0f);
    const float angle = static_cast<float>(static_cast<int32_t>(angle_word << 2) >> 9) *
                        (0x1p-22f * 0.78539816f);  // [-pi/4, pi/4)
    const float s = small_sin(angle), c = small_cos(angle);
    const bool swap = angle_word >> 31, negate = angle_word >> 30 & 1u;
    const float x = radius * (swap ? s : c), y = radius * (swap ? c : s);
    *a = negate ? -x : x;
    *b = negate ? -y : y;
}

// --- functions in double ------------------------------------------------------------------------

// ln 2 in two parts; any exponent times the first one is exact.
constexpr double kLn2High = 0x1.62e42fec00000p-1, kLn2Low = 0x1.d1cf79abc9e3bp-32;

// Takes a positive number that is not denormal; smaller ones give -inf, as in fast_log.
MEGJIT_ANYWHERE double log_of(double x) {
    if (x < 0x1p-1022) return from_bits(int64_t{0x7FF} << 52) * -1;
    const int64_t bits = bits_of(x), exponent = (bits - 0x3FE6A09E667F3BCD) >> 52;  // sqrt(1/2)
    const double m = from_bits(bits - (exponent << 52)), e = static_cast<double>(exponent);
    const double t = (m - 1) / (m + 1), s = t * t;
    double series = 1.0 / 21;
    for (int k = 19; k >= 3; k -= 2) series = series * s + 1.0 / k;
    return e * kLn2High + (2 * t + (2 * t * s * series + e * kLn2Low));
}

MEGJIT_ANYWHERE double exp_of(double x) {
    if (x < -745.2) return 0;
    if (x > 709.8) return from_bits(int64_t{0x7FF} << 52);
    const double n = round_down(x * 0x1.71547652b82fep+0 + 0.5),
                 r = (x - n * kLn2High) - n * kLn2Low;
    double y = 1;  // Taylor's series
    for (int k = 14; k >= 1; --k) y = 1 + y * r / k;
    const int64_t half = static_cast<int64_t>(n) / 2, rest = static_cast<int64_t>(n) - half;
    return y * from_bits((half + 1023) << 52) * from_bits((rest + 1023) << 52);
}

// cos(2 pi u) for u in [0, 1].
MEGJIT_ANYWHERE double cos_of_turn(double u) {
    const double quarters = round_down(4 * u + 0.5), a = (u - quarters / 4) * 0x1.921fb54442d18p+2;
    const int quarter = static_cast<int>(quarters) & 3;
    const double s = a * a;
    double y = 1;  // Taylor's series of cos or sin
    const int first = quarter & 1;
    for (int k = 16; k >= 2; k -= 2) y = 1 - y * s / ((k + first - 1) * (k + first));
    if (first) y *= a;
    return quarter == 1 || quarter == 2 ? -y : y;
}

// log(k!) for a whole k >= 0: Stirling's series above 16.
MEGJIT_ANYWHERE double log_factorial(double k) {
    if (k < 17) {
        double product = 1;
        for (double i = 2; i <= k; ++i) product *= i;
        return log_of(product);
    }
    const double z = k + 1, r = 1 / z, s = r * r;
    const double series =
        r * (1.0 / 12 - s * (1.0 / 360 - s * (1.0 / 1260 - s * (1.0 / 1680 - s * (1.0 / 1188)))));
    return (z - 0.5) * log_of(z) - z + 0x1.d67f1c864beb4p-1 + series;  // log(2 pi) / 2
}

// --- distributions by rejection -----------------------------------------------------------------

// The stream of one element: it gives as many uniform numbers as the element asks for. `lane`
// separates several streams of one element.
class Draws {
public:
    MEGJIT_ANYWHERE Draws(const Philox& g, int64_t element, uint32_t lane = 0)
        : g_(g), element_(static_cast<uint32_t>(element)), round_(lane << 24) {}
    MEGJIT_ANYWHERE double uniform() {  // in (0, 1); takes a block's last words first
        if (left_ == 0) block_ = g_.block(uint64_t{round_++} << 32 | element_);
        left_ ^= 1;
        const uint32_t high = left_ ? block_[3] : block_[1], low = left_ ? block_[2] : block_[0];
        return unit_double(high, low) + 0x1p-54;
    }
    MEGJIT_ANYWHERE double normal() {  // one of a pair; the other is dropped
        const double radius = root(-2 * log_of(uniform()));
        return radius * cos_of_turn(uniform());
    }

private:
    const Philox& g_;
    uint32_t element_ = 0, round_ = 0;
    Philox::Block block_{};
    int left_ = 0;
};

// Logarithm of a gamma number of scale 1, since the number itself underflows at a small shape.
// Marsaglia and Tsang 2000; a shape below 1 by their section 6: gamma(shape + 1) u^(1 / shape).
MEGJIT_ANYWHERE double log_gamma_number(Draws& draws, double shape) {
    double boost = 0;
    if (shape < 1) {
        boost = log_of(draws.uniform()) / shape;
        shape += 1;
    }
    const double d = shape - 1.0 / 3, c = 1 / root(9 * d);
    for (;;) {
        const double x = draws.normal(), t = 1 + c * x, v = t * t * t;
        if (t > 0 && log_of(draws.uniform()) < 0.5 * x * x + d * (1 - v + log_of(v)))
            return log_of(d * v) + boost;
    }
}

MEGJIT_ANYWHERE float no_number() { return from_bits(0x7FC00000u); }
MEGJIT_ANYWHERE bool is_infinite(float x) { return bits_of(x) == 0x7F800000u; }

MEGJIT_ANYWHERE float gamma_number(const Philox& g, int64_t i, float shape, float scale) {
    if (!(shape > 0) || !(scale > 0)) return no_number();
    if (is_infinite(shape)) return shape;
    Draws draws(g, i);
    return static_cast<float>(exp_of(log_gamma_number(draws, static_cast<double>(shape))) *
                              static_cast<double>(scale));
}

MEGJIT_ANYWHERE float beta_number(const Philox& g, int64_t i, float a, float b) {
    if (!(a > 0) || !(b > 0) || (is_infinite(a) && is_infinite(b))) return no_number();
    if (is_infinite(a) || is_infinite(b)) return is_infinite(a) ? 1.0f : 0.0f;
    Draws first(g, i, 0), second(g, i, 1);
    const double x = log_gamma_number(first, static_cast<double>(a)),
                 y = log_gamma_number(second, static_cast<double>(b));
    return static_cast<float>(1 / (1 + exp_of(y - x)));
}

MEGJIT_ANYWHERE float poisson_number(const Philox& g, int64_t i, float rate) {
    if (!(rate >= 0)) return no_number();
    if (rate == 0 || is_infinite(rate)) return rate;
    Draws draws(g, i);
    const double lam = static_cast<double>(rate);
    if (lam < 10) {  // inversion: multiplies uniforms until the product is below exp(-lam)
        const double limit = exp_of(-lam);
        double product = draws.uniform();
        int k = 0;
        for (; product > limit; ++k) product *= draws.uniform();
        return static_cast<float>(k);
    }
    // PTRS, Hoermann 1993, "The transformed rejection method for generating Poisson random
    // variables".
    const double b = 0.931 + 2.53 * root(lam), a = -0.059 + 0.02483 * b,
                 inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), vr = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        const double u = draws.uniform() - 0.5, v = draws.uniform(), us = 0.5 - (u < 0 ? -u : u),
                     k = round_down((2 * a / us + b) * u + lam + 0.43);
        if (us >= 0.07 && v <= vr) return static_cast<float>(k);
        if (k < 0 || (us < 0.013 && v > us)) continue;
        if (log_of(v * inverse_alpha / (a / (us * us) + b)) <=
            -lam + k * log_of(lam) - log_factorial(k))
            return static_cast<float>(k);
    }
}

}  // namespace megjit::runtime
