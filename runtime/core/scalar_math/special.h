// runtime/core/scalar_math/special.h -- erf and its family, lgamma, digamma.
#pragma once

#include "runtime/core/scalar_math/exponential.h"

namespace megjit::runtime::math {

// erf for |x| < 1
template <class V>
V erf_small(V x) {
    const V z = x * x;
    return fma(x,
               poly(z, {1.2837917e-01f, -3.761263e-01f, 1.1283624e-01f, -2.685556e-02f,
                        5.191753e-03f, -8.0397533e-04f, 7.943108e-05f}),
               x);
}

// For larger |x| erf is 1 - 2^log2(erfc(x)), with the logarithm as a polynomial. Adding 1.5 * 2^23
// leaves the exponent of the power of two in the lowest bits: it is in [-26, -2], where nothing is
// denormal.
template <class V>
V erf(V x) {
    const V ax = abs(x);
    const V a = select(ax > 4.0, lit(x, 4), ax);
    const V l = poly(a - 2.0, {-7.739974e+00f, -6.3740573e+00f, -1.3326941e+00f, -2.3783414e-02f,
                               5.1159589e-03f, -1.0272233e-03f, 2.6747942e-04f});
    const V shifted = l + 0x1.8p23;
    const V power = poly(l - (shifted - 0x1.8p23), {1.0f, 6.9314724e-01f, 2.4022204e-01f,
                                                    5.5503e-02f, 9.6732676e-03f, 1.340633e-03f});
    const V large = 1.0 - float_of(bits_of(power) + shl(bits_of(shifted), ilit(x, 23)));
    return select(ax >= 1.0, with_sign(large, x), erf_small(x));  // for NaN the second is chosen
}

// exp(-x^2) P(t) / (1 + 2x) with t = (x - 2) / (x + 2); after Shepherd and Laframboise 1981,
// "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x".
template <class V>
V erfc(V x) {
    const V ax = abs(x);
    const V a = select(ax > 10.2, lit(x, 10.2f), ax);
    const V t = (a - 2.0) / (a + 2.0);
    const V u = t * poly(t, {-9.276381e-02f, -1.6603051e-01f, 1.6404986e-01f, -5.4213036e-02f,
                             -8.014469e-03f, 8.660968e-03f, 1.1753509e-03f, -1.2624919e-03f,
                             -2.5964953e-04f});
    const Two<V> p = fast_two_sum(lit(x, 1.2769784f), u);
    const Two<V> square = two_product(a, a);
    const auto e = exp_parts(-square.hi, -square.lo);
    const Two<V> product = multiply(p, fast_two_sum(lit(x, 1), e.tail));
    const V twice = a + a;
    const V below = twice + 1.0;
    const Two<V> q = divide<V>(product, {below, (twice - below) + 1.0});
    V large = scale(q.hi + q.lo, e.n);
    large = select(x < 0.0, 2.0 - large, large);
    return select(ax < 0.5, 1.0 - erf_small(x), large);
}

// For results that are rounded to halves: 2^log2(erfc(|x|)), the logarithm as one polynomial,
// without a division. The power is 2^24 times as large until the end, where it may be denormal;
// from 9.6 on x erfc(x) rounds to 0 in halves of either kind.
template <class V>
V erfc_of_halves(V x) {
    const V a = abs(x);
    const V l = poly(a - 2.0, {-7.7399378e+00f, -6.3740320e+00f, -1.3328365e+00f, -2.3759060e-02f,
                               5.2458853e-03f, -1.0818610e-03f, 1.8024213e-04f, -2.0668567e-05f,
                               1.3822081e-06f, -3.9916735e-08f});
    constexpr double kShift = 0x1.8p23 + 127 + 24;  // adding it puts the exponent in the low bits
    const V shifted = l + kShift;
    const V power = poly(l - (shifted - kShift), {9.9999928e-01f, 6.9312179e-01f, 2.4024744e-01f,
                                                  5.5917859e-02f, 9.5701003e-03f});
    V tail = power * float_of(shl(bits_of(shifted), ilit(x, 23))) * 0x1p-24;
    tail = select(a > 9.6, lit(x, 0), tail);
    return select(x < 0.0, 2.0 - tail, tail);
}

// The derivative of gelu, Phi(x) + x phi(x), for results that are rounded to halves. At -a it is
// phi(a) (R(a) - a), where R is Mills' ratio, and at a the rest to 1. R is a polynomial, which is
// less exact from 6 on (2**-10), where -a is nearly all of the factor.
template <class V>
V gelu_slope_of_halves(V x) {
    const V a = abs(x);
    const V ratio =
        poly(a - 2.0, {4.2127779e-01f, -1.5734427e-01f, 5.3832371e-02f, -1.6658371e-02f,
                       4.6245167e-03f, -1.3793600e-03f, 4.5530099e-04f, -1.1882242e-04f,
                       1.9764189e-05f, -1.9287124e-06f, 1.0051770e-07f, -2.1576418e-09f});
    const V l = a * a * -0.72134752 + -1.3257481;  // log2(phi(a))
    const V shifted = l + 0x1.8p23;
    const V power = poly(l - (shifted - 0x1.8p23), {9.9999928e-01f, 6.9312179e-01f, 2.4024744e-01f,
                                                    5.5917859e-02f, 9.5701003e-03f});
    const V density = float_of(bits_of(power) + shl(bits_of(shifted), ilit(x, 23)));
    const V below = select(a > 13.0, lit(x, 0), density * (ratio - a));  // phi(13): 8e-38
    return select(x < 0.0, below, 1.0 - below);
}

// x * P(x^2) below 0.6, then x * P(w) with w = -log(1 - x^2); the idea is Giles 2010,
// "Approximating the erfinv function".
template <class V>
V erfinv(V x) {
    const V ax = abs(x), square = x * x;
    const V near_zero =
        poly(square, {-2.8010371e-08f, 2.3201415e-01f, 1.2752907e-01f, 8.712652e-02f,
                      5.9060663e-02f, 8.386266e-02f, -4.9577717e-02f, 1.5851122e-01f});
    const V w = -log<V>(fma(-x, x, lit(x, 1)));
    const V u = w - 2.5;
    const V inner = u * poly(u, {2.4664028e-01f, -4.1776653e-03f, -1.2527549e-03f, 2.1857244e-04f,
                                 -4.9443556e-06f, -3.5219405e-06f, 4.6027247e-07f, 2.8016105e-08f,
                                 -8.27146e-09f});
    const V v = sqrt(w) - 3.1;
    const V outer =
        v * poly(v, {1.0033561e+00f, 7.4640024e-03f, -5.695485e-03f, 4.090529e-03f, -2.7220314e-03f,
                     1.403573e-03f, -2.8444108e-04f, -2.2874631e-04f, 1.2884688e-04f});
    const auto is_small = ax < 0.6, central = w < 5.0;
    const V base = select(is_small, lit(x, 0.886226925f),
                          select(central, lit(x, 1.5014094f), lit(x, 2.9332316f)));
    const Two<V> p = two_sum(base, select(is_small, near_zero, select(central, inner, outer)));
    V y = with_sign(fma(x, p.hi, x * p.lo), x);
    y = select(eq(ax, lit(x, 1)), x * kInf, y);
    return select(ax <= 1.0, y, lit(x, kNaN));
}

// sin(pi f) for |f| <= 1/2
template <class V>
V sin_pi(V f) {
    const V z = f * f;
    const V q =
        poly(z, {-5.1677127e+00f, 2.5501602e+00f, -5.9921294e-01f, 8.1859715e-02f, -6.710912e-03f});
    return f * kPi + fma(f * z, q, f * kPiLo);
}

// x * (c + rest) where |c| >= |rest|: the sum is not rounded before it is multiplied.
template <class V>
V times_sum(V x, float c, V rest) {
    const Two<V> sum = fast_two_sum(lit(x, c), rest);
    return fma(x, sum.hi, x * sum.lo);
}

// log(gamma(a)) for a >= 0: polynomials around 1, the minimum, 2 and 5, then Stirling's series.
template <class V>
V lgamma_positive(V a) {
    const V near_zero = select(a < 0.5, a, a - 1.0);
    const V q1 = near_zero *
                 poly(near_zero, {8.22467e-01f, -4.0068525e-01f, 2.705871e-01f, -2.0739393e-01f,
                                  1.6927382e-01f, -1.4385448e-01f, 1.2993827e-01f, -1.1446154e-01f,
                                  6.9631e-02f, -6.712209e-02f, 1.7377132e-01f, -1.5433675e-01f});
    const V y1 = times_sum(near_zero, -5.772157e-01f, q1);
    const V t2 = a - 2.0;
    const V y2 = t2 * poly(t2, {4.2278433e-01f, 3.2246703e-01f, -6.735204e-02f, 2.0581096e-02f,
                                -7.3867813e-03f, 2.886796e-03f, -1.193209e-03f, 5.3184957e-04f,
                                -2.2834215e-04f, 5.64656e-05f});
    // Next to 3 the sum cancels, and the rounding error of the slope counts three times.
    const V t5 = a - 5.0;
    const Two<V> slope =
        fast_two_sum(lit(a, 1.5061177e+00f),
                     t5 * poly(t5, {1.1066136e-01f, -8.131677e-03f, 8.929162e-04f, -1.172124e-04f,
                                    1.7020815e-05f, -2.6071887e-06f, 4.1674167e-07f, -8.159329e-08f,
                                    1.6849306e-08f, -1.7817254e-09f}));
    const V y5 = fma(t5, slope.hi, lit(a, 3.1780539e+00f)) + t5 * slope.lo;
    // (a - 1/2) (log(a) - 1) + log(2 pi)/2 - 1/2 + series
    const V la = log<V>(a);
    const Two<V> l = log_two<V>({select(a < 0x1p100, a, lit(a, 2)), lit(a, 0)});
    const Two<V> less = two_sum(select(a < 0x1p100, l.hi, la), lit(a, -1));
    const V half_less = a - 0.5;
    const Two<V> p = two_product(half_less, less.hi);
    const V inverse = 1.0 / a;
    const V z = inverse * inverse;
    const V series =
        inverse * poly(z, {8.3333336e-02f, -2.7789383e-03f, 8.582265e-04f}) + 0.41893853f;
    const V stirling =
        select(p.hi < 0x1p120, p.hi + (fma(half_less, less.lo + l.lo, p.lo) + series), p.hi);
    // Around the minimum at 1.4616...
    const V d = (a - 0x1.762d86p+0) - 0x1.ab5f2p-27;
    const V bottom = fma(d * d,
                         poly(d, {4.83836114e-01f, -1.47587746e-01f, 6.46266118e-02f,
                                  -3.2785058e-02f, 1.78569388e-02f, -1.0470056e-02f,
                                  9.31795407e-03f, -1.56396697e-03f, -3.03343292e-02f}),
                         lit(a, 7.534799e-10f)) -
                     0.121486291;
    V y = select(a < 8.0, y5, stirling);
    y = select(a < 3.0, y2, y);
    y = select(a < 1.65, bottom, y);
    y = select(a < 1.3, y1, y);
    return select(a < 0.5, y1 - la, y) + 0.0;  // lgamma(1) is +0
}

template <class V>
V lgamma(V x) {
    const V a = abs(x);
    const V y = lgamma_positive(a);
    const auto negative = x < 0.0;
    if (!any(negative)) return y;
    // Reflection: log(pi / |x sin(pi x)|) - lgamma(|x|)
    const V f = a - round_even(a);
    const V s = abs(sin_pi(f));
    const V reflected = (1.1447299f - log<V>(s)) - (log<V>(a) + y);
    const V below = select(eq(f, lit(x, 0)) | eq(a, lit(x, kInf)), lit(x, kInf), reflected);
    // |x| so small that gamma(x) = 1/x
    return select(negative, select(a < 0x1p-24, -log<V>(a), below), y);
}

template <class V>
V digamma_positive(V a) {
    // Around the zero at 1.4616...; below 1 through digamma(a + 1) - 1/a.
    const auto below_one = a < 1.0;
    const V off = select(below_one, a - 0x0.762d86p+0, a - 0x1.762d86p+0) - 0x1.ab5f2p-27;
    const V u = select(below_one, a - 0.5, a - 1.5);
    const V y1 =
        times_sum(off, 9.510559e-01f,
                  u * poly(u, {-4.2362744e-01f, 2.4054156e-01f, -1.4840126e-01f, 9.500993e-02f,
                               -6.202546e-02f, 4.0604446e-02f, -2.5937103e-02f, 1.8122287e-02f,
                               -1.612299e-02f, 9.426802e-03f}));
    const V y3 = poly(
        a - 3.0, {9.227843e-01f, 3.949342e-01f, -7.705632e-02f, 1.9821191e-02f, -5.6830477e-03f,
                  1.726528e-03f, -5.2136136e-04f, 1.5699219e-04f, -7.257908e-05f, 2.7757975e-05f});
    const V y6 = poly(
        a - 6.0, {1.7061176e+00f, 1.8132295e-01f, -1.6394505e-02f, 1.971344e-03f, -2.6651146e-04f,
                  3.815074e-05f, -5.4099514e-06f, 8.713722e-07f, -1.9393968e-07f, 2.51735e-08f});
    const V inverse = 1.0 / a;
    const V z = inverse * inverse;
    const V series = z * poly(z, {-8.3333336e-02f, 8.334043e-03f, -3.9499267e-03f});
    V y = log<V>(a) + (series - inverse * 0.5);
    y = select(a < 8.0, y6, y);
    y = select(a < 4.0, y3, y);
    y = select(a < 2.0, y1, y);
    const V inverse_lo = fma(-inverse, a, lit(a, 1)) * inverse;
    return select(below_one, select(a < 0x1p-60, -inverse, (y1 - inverse) - inverse_lo), y);
}

template <class V>
V digamma(V x) {
    const auto negative = x < 0.0;
    const V a = select(negative, 1.0 - x, x);
    const V y = digamma_positive(a);
    if (!any(negative)) return select(eq(x, lit(x, 0)), -1.0 / x, y);
    // Reflection: digamma(1 - x) - pi / tan(pi x)
    const V f = x - round_even(x);
    const V c = sin_pi(0.5 - abs(f));
    const V reflected = y - kPi * (c / sin_pi(f));
    const V below = select(eq(f, lit(x, 0)), lit(x, kNaN), reflected);
    return select(eq(x, lit(x, 0)), -1.0 / x, select(negative, below, y));
}

}  // namespace megjit::runtime::math
