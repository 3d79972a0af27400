// runtime/core/scalar_math/trigonometric.h -- sin, cos, tan for every finite argument, and their
// inverses.
#pragma once

#include "runtime/core/scalar_math/base.h"

namespace megjit::runtime::math {

// x = n * pi/2 + (hi + lo), |hi| <= pi/4 and a little; n counts modulo 4.
template <class V>
struct Reduced {
    V hi, lo;
    decltype(to_int(std::declval<V>())) n;
};

// The upper 32 bits of the product of m < 2^24 and an unsigned b, from 12- and 16-bit parts.
template <class I>
I high_product(I m, I b) {
    const I m1 = shr_logical(m, 12), m0 = m & ilit(m, 0xFFF);
    const I b1 = shr_logical(b, 16), b0 = b & ilit(b, 0xFFFF);
    const I low = m1 * b0 + shr_logical(m0 * b0, 12);  // unit 2^12
    const I cross = m0 * b1;  // unit 2^16
    const I high = m1 * b1 + shr_logical(cross, 12);  // unit 2^28
    const I middle = shl(cross & ilit(m, 0xFFF), ilit(m, 4)) + low;
    return shr_logical(high + shr_logical(middle, 16), 4);
}

// Payne and Hanek 1983: only the 96 bits of 2/pi matter that the exponent of x does not turn into
// multiples of 4. Requires |x| >= 2^16.
template <class V>
Reduced<V> reduce_large(V x) {
    const auto bits = bits_of(x) & ilit(x, 0x7FFFFFFF);
    const auto m = (bits & ilit(x, 0x7FFFFF)) | ilit(x, 0x800000);
    using I = std::remove_const_t<decltype(m)>;
    // |x| = m * 2^(exponent - 150); the table has a zero word before 2/pi, and two bits stay for n.
    const I first = shr(bits, ilit(x, 23)) - 120;
    const I word = shr(first, ilit(x, 5)), shift = first & ilit(x, 31);
    constexpr uint32_t kBits[] = {0,           0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u,
                                  0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu};
    const auto pick = [&](int i) {
        I w = ilit(x, static_cast<int32_t>(kBits[i + 4]));
        for (int k = 3; k >= 0; --k)
            w = select(eq(word, ilit(x, k)), ilit(x, static_cast<int32_t>(kBits[i + k])), w);
        return w;
    };
    const I w0 = pick(0), w1 = pick(1), w2 = pick(2), w3 = pick(3);
    const I rest = ilit(x, 31) - shift;
    const auto join = [&](I a, I b) {
        return shl(a, shift) | shr_logical(shr_logical(b, 1), rest);
    };
    const I a = join(w0, w1), b = join(w1, w2), c = join(w2, w3);
    // (a, b, c) * m modulo 2^96; its top two bits are n.
    const I b_low = m * b;
    const I middle = b_low + high_product(m, c);
    const I sign = ilit(x, INT32_MIN);
    const auto carry = (middle ^ sign) < (b_low ^ sign);
    const I top = m * a + high_product(m, b) + select(carry, ilit(x, 1), ilit(x, 0));
    const I n = shr_logical(top + 0x20000000, 30);
    const I fraction = top - shl(n, ilit(x, 30));  // signed, unit 2^-30; `middle` follows it
    const V f0 = to_float(shr(fraction, ilit(x, 12))) * 0x1p12;
    const V f1 = to_float(fraction & ilit(x, 0xFFF));
    const V f2 = to_float(shr_logical(middle, 8)) * 0x1p-24;
    const V f3 = to_float(middle & ilit(x, 0xFF)) * 0x1p-32;
    const Two<V> upper = fast_two_sum(f0, f1);
    Two<V> f = two_sum(upper.hi, f2);
    f = fast_two_sum(f.hi, (f.lo + upper.lo) + f3);
    const V scale = with_sign(lit(x, kHalfPi * 0x1p-30f), x);
    const V scale_lo = with_sign(lit(x, -kHalfPiLo * 0x1p-30f), x);
    const Two<V> r = two_product(f.hi, scale);
    return {r.hi, fma(f.lo, scale, r.lo) - f.hi * scale_lo, select(x < 0.0, ilit(x, 0) - n, n)};
}

// Cody and Waite 1980 with fma: n * pi/2 in three parts; the first product is exact.
template <class V>
Reduced<V> reduce(V x) {
    const V n = round_even(x * 0x1.45f306p-1);
    const V r = fma(n, lit(x, -kHalfPi), x);
    const Two<V> p = two_product(n, lit(x, -kHalfPiLo));
    const Two<V> sum = two_sum(r, p.hi);
    Reduced<V> small = {sum.hi, fma(n, lit(x, -kHalfPiLo2), sum.lo + p.lo), to_int(n)};
    const auto is_large = abs(x) >= 0x1p16;
    if (!any(is_large)) return small;
    const Reduced<V> large = reduce_large(x);
    return {select(is_large, large.hi, small.hi), select(is_large, large.lo, small.lo),
            select(is_large, large.n, small.n)};
}

template <class V>
V sin_of(const Reduced<V>& r, V z) {
    const V q = poly(z, {-1.6666655e-01f, 8.33219e-03f, -1.9518408e-04f});
    return r.hi + fma(r.hi * z, q, r.lo);
}

template <class V>
V cos_of(const Reduced<V>& r, V z) {
    const V q = poly(z, {4.1666646e-02f, -1.3887301e-03f, 2.4430668e-05f});
    return 1.0 + fma(z, lit(z, -0.5f), fma(z * z, q, -(r.hi * r.lo)));
}

// sin(x + shift * pi/2)
template <class V>
V sine(V x, int shift) {
    const Reduced<V> r = reduce(x);
    const V z = r.hi * r.hi;
    const auto n = r.n + shift;
    const V y = select(eq(n & ilit(x, 1), ilit(x, 0)), sin_of(r, z), cos_of(r, z));
    const V signed_y = select(eq(n & ilit(x, 2), ilit(x, 0)), y, -y);
    return select(abs(x) < kInf, signed_y, x - x);
}

template <class V>
V sin(V x) {
    const V y = sine(x, 0);
    return select(abs(x) < 0x1p-12, x, y);
}

template <class V>
V cos(V x) {
    return sine(x, 1);
}

template <class V>
V tan(V x) {
    const Reduced<V> r = reduce(x);
    const V z = r.hi * r.hi;
    const V q = poly(z, {3.3333352e-01f, 1.3332586e-01f, 5.4068033e-02f, 2.1242931e-02f,
                         1.0932022e-02f, -2.6643156e-05f, 4.4311956e-03f});
    const Two<V> t = fast_two_sum(r.hi, fma(r.hi * z, q, fma(z, r.lo, r.lo)));
    const V d = -1.0 / t.hi;
    const V cotangent = fma(d, fma(d, t.hi, fma(d, t.lo, lit(x, 1))), d);  // -1 / (t.hi + t.lo)
    V y = select(eq(r.n & ilit(x, 1), ilit(x, 0)), t.hi, cotangent);
    y = select(abs(x) < kInf, y, x - x);
    return select(abs(x) < 0x1p-12, x, y);
}

// asin(r) = r + r * asin_tail(r^2) for |r| <= 1/2
template <class V>
V asin_tail(V z) {
    return z * poly(z, {1.666666e-01f, 7.5005196e-02f, 4.4514194e-02f, 3.1829413e-02f,
                        1.4360783e-02f, 3.762079e-02f});
}

template <class V>
V asin(V x) {
    const V ax = abs(x);
    const V z = select(ax < 0.5, x * x, fma(ax, lit(x, -0.5f), lit(x, 0.5f)));
    const V tail = asin_tail(z);
    const V root = sqrt(z);
    // pi/2 - 2 asin(sqrt((1 - |x|) / 2))
    const V twice = root + root;
    const V large = (kHalfPi - twice) - fma(twice, tail, lit(x, -kHalfPiLo));
    return select(ax < 0.5, fma(x, tail, x), with_sign(select(ax > 1.0, lit(x, kNaN), large), x));
}

template <class V>
V acos(V x) {
    const V ax = abs(x);
    const V z = select(ax < 0.5, x * x, fma(ax, lit(x, -0.5f), lit(x, 0.5f)));
    const V tail = asin_tail(z);
    const V root = sqrt(z);
    const V twice = fma(root + root, tail, root + root);
    const V small = kHalfPi - (fma(x, tail, x) - kHalfPiLo);
    const V large = select(x < 0.0, kPi - (twice - kPiLo), twice);
    return select(ax < 0.5, small, select(ax > 1.0, lit(x, kNaN), large));
}

// atan(t) for 0 <= t <= 1
template <class V>
V atan_of(V t) {
    const V z = t * t;
    const V q =
        poly(z, {-3.33333e-01f, 1.9998531e-01f, -1.4264053e-01f, 1.09511934e-01f, -8.4005535e-02f,
                 5.790809e-02f, -3.1128569e-02f, 1.0888142e-02f, -1.7876966e-03f});
    return fma(t * z, q, t);
}

template <class V>
V atan(V x) {
    const V ax = abs(x);
    const auto big = ax > 1.0;
    const V y = atan_of(select(big, 1.0 / ax, ax));
    return with_sign(select(big, kHalfPi - (y - kHalfPiLo), y), x);
}

template <class V>
V atan2(V y, V x) {
    const V ay = abs(y), ax = abs(x);
    const auto steep = ay > ax;
    const V low = select(steep, ax, ay), high = select(steep, ay, ax);
    V t = low / high;
    t = select(eq(low, high), lit(x, 1), t);  // both are infinite
    t = select(eq(high, lit(x, 0)), lit(x, 0), t);  // both are zero
    V angle = atan_of(t);
    angle = select(steep, kHalfPi - (angle - kHalfPiLo), angle);
    angle = select(bits_of(x) < 0, kPi - (angle - kPiLo), angle);
    return select(ne(x, x) | ne(y, y), x + y, with_sign(angle, y));
}

}  // namespace megjit::runtime::math
