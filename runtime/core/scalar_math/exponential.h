// runtime/core/scalar_math/exponential.h -- exp, logarithms, pow, and the hyperbolic family.
#pragma once

#include "runtime/core/scalar_math/base.h"

namespace megjit::runtime::math {

// exp(x) = (1 + tail) * 2^n, with x clamped to where the result is 0 or infinite anyway.
template <class V>
struct ExpParts {
    V tail;
    decltype(to_int(std::declval<V>())) n;
};

// `lo` is added to x after the reduction, where it loses no bits.
template <class V>
ExpParts<V> exp_parts(V x, V lo) {
    x = select(x < -105.0, lit(x, -105), select(x > 100.0, lit(x, 100), x));
    const V n = round_even(x * kLog2e);
    V r = fma(n, lit(x, -kLn2), x);  // exact
    r = fma(n, lit(x, -kLn2Lo), r) + lo;
    const V q = poly(
        r, {0.5f, 1.6666667e-01f, 4.166649e-02f, 8.333207e-03f, 1.3932665e-03f, 1.9945095e-04f});
    return {fma(r * r, q, r), to_int(n)};
}

// Adding 1.5 * 2^23 + 254 rounds to an integer n and leaves n + 254 in the lowest bits. Its halves
// are the exponents, as a float stores them, of two powers of two whose product is 2^n; the first
// product is exact, and the second is rounded once, also into the denormals.
template <class V>
V exp(V x) {
    constexpr double kShift = 0x1.8p23 + 254;
    const V below = select(x > 100.0, lit(x, 100), x);
    x = select(below < -105.0, lit(x, -105), below);
    const V shifted = fma(x, lit(x, kLog2e), lit(x, kShift)), n = shifted - kShift;
    V r = fma(n, lit(x, -kLn2), x);  // exact
    r = fma(n, lit(x, -kLn2Lo), r);
    const V q = poly(r, {0.5f, 1.6666521e-01f, 4.166639e-02f, 8.368679e-03f, 1.3941872e-03f});
    const auto both = bits_of(shifted), half = shr_logical(both, 1);
    const auto power = [&](auto exponent) { return float_of(shl(exponent, ilit(x, 23))); };
    return (fma(r * r, q, r) + 1.0) * power(half) * power(both - half);
}

template <class V>
V expm1(V x) {
    const V clamped = select(x < -30.0, lit(x, -30), x);
    const auto e = exp_parts(clamped, lit(x, 0));
    // 2^n (1 + tail) - 1, halved so that 2^n stays finite.
    const V half = power_of_two(e.n - 1);
    const V large = fma(half, e.tail, half - 0.5) * 2.0;
    V y = select(eq(e.n, ilit(x, 0)), e.tail, large);
    y = select(x > 89.0, lit(x, kInf), y);
    return select(abs(x) < 0x1p-25, x, y);
}

// x = 2^e * m with m in [0.699, 1.398), x > 0; denormals are scaled first.
template <class V>
struct LogParts {
    V m;
    V e;
};

template <class V>
LogParts<V> split_exponent(V x) {
    const auto tiny = x < 0x1p-126;
    const auto bits = bits_of(select(tiny, x * 0x1p23, x));
    const auto e = shr(bits - 0x3F330000, ilit(x, 23));
    const V m = float_of(bits - shl(e, ilit(x, 23)));
    return {m, to_float(e) - select(tiny, lit(x, 23), lit(x, 0))};
}

// log(2^e (1 + f)).
template <class V>
V log_of_parts(V f, V e) {
    const V q =
        poly(f, {3.333331e-01f, -2.4999961e-01f, 2.0002186e-01f, -1.6671096e-01f, 1.4221454e-01f,
                 -1.2346999e-01f, 1.1807571e-01f, -1.201834e-01f, 7.378125e-02f});
    const V square = f * f;
    V tail = fma(square * f, q, e * kLn2Lo);
    tail = fma(square, lit(f, -0.5f), tail);
    return fma(e, lit(f, kLn2), f + tail);
}

template <class V>
V log(V x) {
    const auto p = split_exponent(x);
    V y = log_of_parts(p.m - 1.0, p.e);
    y = select(x < kInf, y, x);
    y = select(x < 0.0, lit(x, kNaN), y);
    return select(eq(x, lit(x, 0)), lit(x, -kInf), y);
}

template <class V>
V log1p(V x) {
    const auto u = two_sum(lit(x, 1), x);
    const auto p = split_exponent(u.hi);
    // e <= 127 except for u near the largest float, where the lost part is negligible.
    const auto e = to_int(p.e);
    const V down = power_of_two(ilit(x, 0) - select(e > 126, ilit(x, 126), e));
    V y = log_of_parts((p.m - 1.0) + u.lo * down, p.e);
    y = select(x < kInf, y, x);
    y = select(x < -1.0, lit(x, kNaN), y);
    y = select(eq(x, lit(x, -1)), lit(x, -kInf), y);
    return select(abs(x) < 0x1p-25, x, y);
}

// log(m) as hi + lo, relative error about 2^-36, for m = m.hi + m.lo in [0.699, 1.398):
// 2 atanh(s) with s = (m - 1) / (m + 1).
template <class V>
Two<V> log_mantissa(Two<V> m) {
    const V one = lit(m.hi, 1);
    const V sum = m.hi + one;
    const V sum_lo = (m.hi - (sum - one)) + m.lo;
    const Two<V> s = divide<V>({m.hi - one, m.lo}, {sum, sum_lo});
    Two<V> z = two_product(s.hi, s.hi);
    z.lo = fma(s.hi + s.hi, s.lo, z.lo);
    const V u = z.hi * poly(z.hi, {4.0000153e-01f, 2.8547084e-01f, 2.3419896e-01f});
    Two<V> w = fast_two_sum(lit(u, 0x1.555556p-1f), u);
    w.lo = w.lo - 0x1.555556p-26;
    const Two<V> cubic = multiply(multiply(s, z), w);
    const Two<V> y = fast_two_sum(s.hi + s.hi, cubic.hi);
    return fast_two_sum(y.hi, y.lo + (cubic.lo + (s.lo + s.lo)));
}

// log(x.hi + x.lo) as hi + lo, for x.hi normal and positive, below 2^126.
template <class V>
Two<V> log_two(Two<V> x) {
    const auto p = split_exponent(x.hi);
    const Two<V> m = log_mantissa<V>({p.m, x.lo * power_of_two(ilit(p.m, 0) - to_int(p.e))});
    const Two<V> shift = two_product(p.e, lit(p.e, kLn2));
    const Two<V> y = fast_two_sum(shift.hi, m.hi);
    return fast_two_sum(y.hi, y.lo + (shift.lo + (fma(p.e, lit(p.e, kLn2Lo), m.lo))));
}

// C99's powf: pow(x, 0) and pow(1, y) are 1 even for NaN; a negative base wants an integer
// exponent. Squares are rounded once, so that pow(x, 2) and square(x) have the same bits.
template <class V>
V pow(V x, V y) {
    const V zero = lit(x, 0), one = lit(x, 1), inf = lit(x, kInf);
    const V ax = abs(x);
    const auto p = split_exponent(ax);
    // log2|x| = e + log(m) * log2(e)
    const Two<V> m = multiply<V>(log_mantissa<V>({p.m, zero}), {lit(x, kLog2e), lit(x, kLog2eLo)});
    Two<V> l = fast_two_sum(p.e, m.hi);
    l = fast_two_sum(l.hi, l.lo + m.lo);
    const auto at_edge = eq(ax, zero) | eq(ax, inf);
    l.hi = select(eq(ax, zero), -inf, select(eq(ax, inf), inf, l.hi));
    l.lo = select(at_edge, zero, l.lo);

    Two<V> t = two_product(y, l.hi);
    t.lo = fma(y, l.lo, t.lo);
    const auto inside = abs(t.hi) < 160.0;
    const V high = select(t.hi < -160.0, lit(x, -160), select(t.hi > 160.0, lit(x, 160), t.hi));
    const V n = round_even(high);
    const V f = (high - n) + select(inside, t.lo, zero);
    const V q = poly(f, {6.931472e-01f, 2.402265e-01f, 5.550406e-02f, 9.618088e-03f, 1.3336659e-03f,
                         1.545185e-04f, 1.4673479e-05f});
    V r = scale(fma(f, q, one), to_int(n));

    r = select(eq(ax, one), one, r);
    const auto is_integer = eq(floor(y), y);
    const auto is_odd = is_integer & eq(to_int(y) & ilit(x, 1), ilit(x, 1));
    const auto negative = bits_of(x) < 0;
    r = select((x < 0.0) & !is_integer & ne(ax, inf), lit(x, kNaN), r);
    r = select(negative & is_odd, -r, r);
    r = select(eq(y, lit(y, 2)), x * x, r);
    r = select(ne(x, x) | ne(y, y), x + y, r);
    return select(eq(y, zero) | eq(x, one), one, r);
}

template <class V>
V sinh(V x) {
    const V z = x * x;
    const V small =
        fma(x * z, poly(z, {1.6666667e-01f, 8.333311e-03f, 1.9842632e-04f, 2.783963e-06f}), x);
    const auto e = exp_parts(abs(x), lit(x, 0));
    const V half = scale(e.tail + 1.0, e.n - 1);
    const V large = with_sign(half - 0.25 / half, x);
    return select(abs(x) < 1.0, small, large);
}

template <class V>
V cosh(V x) {
    const auto e = exp_parts(abs(x), lit(x, 0));
    const V half = scale(e.tail + 1.0, e.n - 1);
    return half + 0.25 / half;
}

template <class V>
V tanh(V x) {
    const V z = x * x;
    const V small = fma(
        x * z,
        poly(z, {-3.3333313e-01f, 1.3332437e-01f, -5.3835757e-02f, 2.1000376e-02f, -6.169614e-03f}),
        x);
    const V ax = abs(x);
    const auto e = exp_parts(ax + ax, lit(x, 0));
    const V large = 1.0 - 2.0 / (scale(e.tail + 1.0, e.n) + 1.0);
    return with_sign(select(ax < 0.55, small, large), x);  // the polynomial loses the sign of zero
}

template <class V>
V asinh(V x) {
    const V z = x * x;
    const V small = fma(x * z,
                        poly(z, {-1.6666666e-01f, 7.499907e-02f, -4.4616096e-02f, 3.003356e-02f,
                                 -2.004949e-02f, 9.256393e-03f}),
                        x);
    // log(x + sqrt(x^2 + 1)); log(2x) = log(x) + log(2) where the square would overflow.
    const V ax = abs(x);
    const auto huge = ax > 0x1p14;
    const V a = select(huge, ax * 0x1p-60, ax);
    const Two<V> square = two_product(a, a);
    Two<V> sum = two_sum(square.hi, lit(x, 1));
    sum.lo = sum.lo + square.lo;
    const Two<V> root = square_root(sum);
    Two<V> arg = two_sum(root.hi, a);
    arg.lo = arg.lo + root.lo;
    arg.hi = select(huge, a, arg.hi);
    arg.lo = select(huge, lit(x, 0), arg.lo);
    const Two<V> l = log_two(arg);
    V large = l.hi + l.lo;
    large = select(huge, fma(lit(x, 61), lit(x, kLn2), large), large);
    large = select(ax < kInf, large, ax);
    return with_sign(select(ax < 0.5, small, large), x);
}

template <class V>
V acosh(V x) {
    const auto huge = x > 0x1p14;
    const V a = select(huge, x * 0x1p-60, x);
    // log1p(t + sqrt(t (t + 2))) with t = x - 1, which is exact near 1
    const Two<V> t = two_sum(a, lit(x, -1));
    const Two<V> next = two_sum(a, lit(x, 1));
    const Two<V> root = square_root(multiply(t, next));
    const Two<V> w = two_sum(root.hi, t.hi);
    const V w_lo = w.lo + (root.lo + t.lo);
    const Two<V> u = two_sum(lit(x, 1), w.hi);
    Two<V> arg = {u.hi, u.lo + w_lo};
    arg.hi = select(huge, a, arg.hi);
    arg.lo = select(huge, lit(x, 0), arg.lo);
    const Two<V> l = log_two(arg);
    V y = l.hi + l.lo;
    y = select(huge, fma(lit(x, 61), lit(x, kLn2), y), y);
    y = select(x < kInf, y, x);
    y = select(eq(x, lit(x, 1)), lit(x, 0), y);
    return select(x < 1.0, lit(x, kNaN), y);
}

template <class V>
V atanh(V x) {
    const V z = x * x;
    const V small = fma(x * z,
                        poly(z, {3.3333337e-01f, 1.9999623e-01f, 1.429774e-01f, 1.0930681e-01f,
                                 1.05146006e-01f, 1.7310701e-02f, 1.8467124e-01f}),
                        x);
    const V ax = abs(x);
    const V one = lit(x, 1);
    const V a = select(ax < 1.0, ax, lit(x, 0.5f));
    const Two<V> l = log_two(divide(fast_two_sum(one, a), fast_two_sum(one, -a)));
    V large = 0.5 * (l.hi + l.lo);
    large = select(eq(ax, one), lit(x, kInf), large);
    large = select(ax <= 1.0, large, lit(x, kNaN));
    return select(ax < 0.5, small, with_sign(large, x));
}

}  // namespace megjit::runtime::math
