// runtime/core/scalar_math/base.h -- the vocabulary of scalar_math.h: constants, bits, polynomials
// and unevaluated sums hi + lo ("double-float", Dekker 1971; the fused forms are from Muller et
// al., Handbook of Floating-Point Arithmetic, 2nd ed., chapter 4).
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "runtime/core/scalar.h"

namespace megjit::runtime {

// The words that lanes must offer too.
inline Expr to_int(Expr x) { return to_type(x, ScalarType::i32); }
inline Expr to_float(Expr x) { return to_type(x, ScalarType::f32); }
inline Expr bits_of(Expr x) { return make(ScalarOp::bits_f32_to_i32, {x}); }
inline Expr float_of(Expr x) { return make(ScalarOp::bits_i32_to_f32, {x}); }
inline Expr shr_logical(Expr a, Expr b) { return make(ScalarOp::shr_logical, {a, b}); }
inline Expr shr_logical(Expr a, int n) { return shr_logical(a, a.constant(n)); }
inline Expr lit(Expr like, float value) { return like.constant(ScalarType::f32, value); }
inline Expr ilit(Expr like, int32_t value) { return like.constant(ScalarType::i32, value); }
// Does any lane meet the condition? A program cannot branch: it computes both sides and selects.
inline bool any(Expr) { return true; }

namespace math {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

inline constexpr float kLog2e = 0x1.715476p+0f, kLog2eLo = 0x1.4ae0cp-26f;
inline constexpr float kLn2 = 0x1.62e43p-1f, kLn2Lo = -0x1.05c61p-29f;
inline constexpr float kPi = 0x1.921fb6p+1f, kPiLo = -0x1.777a5cp-24f;
inline constexpr float kHalfPi = 0x1.921fb6p+0f, kHalfPiLo = -0x1.777a5cp-25f,
                       kHalfPiLo2 = -0x1.ee59dap-50f;

// c[0] + x*(c[1] + x*(...)), Horner with fma.
template <class V, int N>
V poly(V x, const float (&c)[N]) {
    V sum = lit(x, c[N - 1]);
    for (int i = N - 2; i >= 0; --i) sum = fma(sum, x, lit(x, c[i]));
    return sum;
}

// hi + lo, |lo| at most about half an ulp of hi.
template <class V>
struct Two {
    V hi, lo;
};

template <class V>
Two<V> two_sum(V a, V b) {
    const V sum = a + b;
    const V moved = sum - a;
    return {sum, (a - (sum - moved)) + (b - moved)};
}

// Requires |a| >= |b| or a == 0.
template <class V>
Two<V> fast_two_sum(V a, V b) {
    const V sum = a + b;
    return {sum, (a - sum) + b};
}

template <class V>
Two<V> two_product(V a, V b) {
    const V product = a * b;
    return {product, fma(a, b, -product)};
}

template <class V>
Two<V> multiply(Two<V> a, Two<V> b) {
    const Two<V> p = two_product(a.hi, b.hi);
    return {p.hi, fma(a.hi, b.lo, fma(a.lo, b.hi, p.lo))};
}

template <class V>
Two<V> divide(Two<V> a, Two<V> b) {
    const V q = a.hi / b.hi;
    return {q, ((fma(-q, b.hi, a.hi) + a.lo) - q * b.lo) / b.hi};
}

template <class V>
Two<V> square_root(Two<V> a) {
    const V root = sqrt(a.hi);
    return {root, (fma(-root, root, a.hi) + a.lo) / (root + root)};
}

// 2^n for the normal range of exponents.
template <class I>
auto power_of_two(I n) {
    return float_of(shl(n + 127, ilit(n, 23)));
}

// x * 2^n rounded once, also into the denormals and beyond the largest float; |n| <= 250.
template <class V, class I>
V scale(V x, I n) {
    const auto half = shr(n, ilit(n, 1));
    return x * power_of_two(half) * power_of_two(n - half);
}

// |x| with the sign bit of s.
template <class V>
V with_sign(V x, V s) {
    return float_of((bits_of(x) & ilit(x, 0x7FFFFFFF)) | (bits_of(s) & ilit(s, INT32_MIN)));
}

}  // namespace math
}  // namespace megjit::runtime
