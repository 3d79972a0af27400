// backends/cpu/lanes.h -- kLanes floats, ints or booleans at a time: the V that scalar_math.h
// wants. GCC vector types do the plain arithmetic, intrinsics the operations that have no operator.
// Each instruction set that includes this file is its own translation unit and its own namespace
// (MEGJIT_LEVEL).
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#ifdef __AVX512F__
#define MEGJIT_LEVEL avx512
#else
#define MEGJIT_LEVEL avx2
#endif

namespace megjit::cpu::MEGJIT_LEVEL {

#ifdef __AVX512F__
inline constexpr int kLanes = 16;
#else
inline constexpr int kLanes = 8;
#endif
typedef float FloatVector __attribute__((vector_size(4 * kLanes)));
typedef int32_t IntVector __attribute__((vector_size(4 * kLanes)));
typedef uint32_t UintVector __attribute__((vector_size(4 * kLanes)));

struct F32 {
    FloatVector v;
};
struct I32 {
    IntVector v;
};
struct B1 {
    IntVector v;
};  // each lane 0 or -1

inline F32 splat(float x) { return {x - FloatVector{}}; }
inline I32 splat(int32_t x) { return {x - IntVector{}}; }

inline F32 operator+(F32 a, F32 b) { return {a.v + b.v}; }
inline F32 operator-(F32 a, F32 b) { return {a.v - b.v}; }
inline F32 operator*(F32 a, F32 b) { return {a.v * b.v}; }
inline F32 operator/(F32 a, F32 b) { return {a.v / b.v}; }
inline F32 operator-(F32 a) { return {-a.v}; }
inline B1 operator<(F32 a, F32 b) { return {a.v < b.v}; }
inline B1 operator<=(F32 a, F32 b) { return {a.v <= b.v}; }
inline B1 operator>(F32 a, F32 b) { return {b.v < a.v}; }
inline B1 operator>=(F32 a, F32 b) { return {b.v <= a.v}; }
inline B1 eq(F32 a, F32 b) { return {a.v == b.v}; }
inline B1 ne(F32 a, F32 b) { return {a.v != b.v}; }
#define MEGJIT_WITH_NUMBER(op, result) \
    inline result operator op(F32 a, double b) { return a op splat(static_cast<float>(b)); } \
    inline result operator op(double a, F32 b) { return splat(static_cast<float>(a)) op b; }
MEGJIT_WITH_NUMBER(+, F32)
MEGJIT_WITH_NUMBER(-, F32)
MEGJIT_WITH_NUMBER(*, F32)
MEGJIT_WITH_NUMBER(/, F32)
MEGJIT_WITH_NUMBER(<, B1)
MEGJIT_WITH_NUMBER(<=, B1)
MEGJIT_WITH_NUMBER(>, B1)
MEGJIT_WITH_NUMBER(>=, B1)
#undef MEGJIT_WITH_NUMBER

// Signed overflow wraps, for lanes are added as unsigned numbers.
inline I32 operator+(I32 a, I32 b) { return {(IntVector)((UintVector)a.v + (UintVector)b.v)}; }
inline I32 operator-(I32 a, I32 b) { return {(IntVector)((UintVector)a.v - (UintVector)b.v)}; }
inline I32 operator*(I32 a, I32 b) { return {(IntVector)((UintVector)a.v * (UintVector)b.v)}; }
inline I32 operator+(I32 a, int32_t b) { return a + splat(b); }
inline I32 operator-(I32 a, int32_t b) { return a - splat(b); }
inline I32 operator&(I32 a, I32 b) { return {a.v & b.v}; }
inline I32 operator|(I32 a, I32 b) { return {a.v | b.v}; }
inline I32 operator^(I32 a, I32 b) { return {a.v ^ b.v}; }
inline B1 operator<(I32 a, I32 b) { return {a.v < b.v}; }
inline B1 operator<=(I32 a, I32 b) { return {a.v <= b.v}; }
inline B1 operator<(I32 a, int32_t b) { return a < splat(b); }
inline B1 operator>(I32 a, int32_t b) { return splat(b) < a; }
inline B1 eq(I32 a, I32 b) { return {a.v == b.v}; }
inline B1 ne(I32 a, I32 b) { return {a.v != b.v}; }
inline I32 shl(I32 a, I32 n) { return {(IntVector)((UintVector)a.v << (UintVector)(n.v & 31))}; }
inline I32 shr(I32 a, I32 n) { return {a.v >> (n.v & 31)}; }
inline I32 shr_logical(I32 a, I32 n) {
    return {(IntVector)((UintVector)a.v >> (UintVector)(n.v & 31))};
}
inline I32 shr_logical(I32 a, int n) { return {(IntVector)((UintVector)a.v >> (n & 31))}; }

inline B1 operator&(B1 a, B1 b) { return {a.v & b.v}; }
inline B1 operator|(B1 a, B1 b) { return {a.v | b.v}; }
inline B1 operator^(B1 a, B1 b) { return {a.v ^ b.v}; }
inline B1 operator!(B1 a) { return {~a.v}; }

inline F32 select(B1 c, F32 a, F32 b) { return {c.v ? a.v : b.v}; }
inline I32 select(B1 c, I32 a, I32 b) { return {c.v ? a.v : b.v}; }
inline B1 select(B1 c, B1 a, B1 b) { return {c.v ? a.v : b.v}; }

inline I32 bits_of(F32 x) { return {(IntVector)x.v}; }
inline F32 float_of(I32 x) { return {(FloatVector)x.v}; }
inline F32 lit(F32, float value) { return splat(value); }
inline F32 lit(I32, float value) { return splat(value); }
inline I32 ilit(F32, int32_t value) { return splat(value); }
inline I32 ilit(I32, int32_t value) { return splat(value); }
inline F32 abs(F32 x) { return float_of(bits_of(x) & splat(0x7FFFFFFF)); }

// mask of the lanes 0..n-1, for 0 <= n <= kLanes
inline IntVector first_lanes(int n) {
#ifdef __AVX512F__
    constexpr IntVector kIndex = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
    constexpr IntVector kIndex = {0, 1, 2, 3, 4, 5, 6, 7};
#endif
    return kIndex < n;
}

// Loads and stores kLanes elements, or the first n (a load fills the other lanes with 0, a store
// leaves the other elements as they are).
template <class T>
T load(const void* from) {
    T x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
template <class T>
void store(void* to, T x) {
    std::memcpy(to, &x, sizeof x);
}

#ifdef __AVX512F__
template <class T>
T load_some(const void* from, int n) {
    return std::bit_cast<T>(_mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << n) - 1), from));
}
template <class T>
void store_some(void* to, T x, int n) {
    _mm512_mask_storeu_epi32(to, static_cast<__mmask16>((1u << n) - 1), std::bit_cast<__m512i>(x));
}
#else
template <class T>
T load_some(const void* from, int n) {
    return std::bit_cast<T>(
        _mm256_maskload_epi32(static_cast<const int*>(from), (__m256i)first_lanes(n)));
}
template <class T>
void store_some(void* to, T x, int n) {
    _mm256_maskstore_epi32(static_cast<int*>(to), (__m256i)first_lanes(n),
                           std::bit_cast<__m256i>(x));
}
#endif

constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC,
              kUp = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
constexpr int kToZero = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC,
              kToEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

#ifdef __AVX512F__
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32 sqrt(F32 x) { return {_mm512_sqrt_ps(x.v)}; }
template <int mode>
F32 round(F32 x) {
    return {_mm512_roundscale_ps(x.v, mode)};
}
inline I32 to_int(F32 x) { return {(IntVector)_mm512_cvttps_epi32(x.v)}; }
inline F32 to_float(I32 x) { return {_mm512_cvtepi32_ps((__m512i)x.v)}; }
inline bool any(B1 c) { return _mm512_test_epi32_mask((__m512i)c.v, (__m512i)c.v) != 0; }
#else
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline F32 sqrt(F32 x) { return {_mm256_sqrt_ps(x.v)}; }
template <int mode>
F32 round(F32 x) {
    return {_mm256_round_ps(x.v, mode)};
}
inline I32 to_int(F32 x) { return {(IntVector)_mm256_cvttps_epi32(x.v)}; }
inline F32 to_float(I32 x) { return {_mm256_cvtepi32_ps((__m256i)x.v)}; }
inline bool any(B1 c) { return !_mm256_testz_si256((__m256i)c.v, (__m256i)c.v); }
#endif
inline F32 floor(F32 x) { return round<kDown>(x); }
inline F32 ceil(F32 x) { return round<kUp>(x); }
inline F32 trunc(F32 x) { return round<kToZero>(x); }
inline F32 round_even(F32 x) { return round<kToEven>(x); }

// A NaN of either operand wins; among equal zeros the first does.
inline F32 max(F32 a, F32 b) { return select(ne(a, a), a, select(ne(b, b) | (a < b), b, a)); }
inline F32 min(F32 a, F32 b) { return select(ne(a, a), a, select(ne(b, b) | (b < a), b, a)); }
inline I32 max(I32 a, I32 b) { return select(a < b, b, a); }
inline I32 min(I32 a, I32 b) { return select(b < a, b, a); }

}  // namespace megjit::cpu::MEGJIT_LEVEL
