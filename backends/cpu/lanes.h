// backends/cpu/lanes.h -- kLanes floats, ints or booleans at a time: the V that scalar_math.h
// wants. The compiler's vectors do the plain arithmetic, instructions.inl does what has no
// operator. Each file that includes this one is compiled once per level of levels.h, in the
// namespace MEGJIT_LEVEL, for vectors of MEGJIT_LANE_COUNT numbers.
#pragma once

#include "backends/cpu/instructions.h"

#include <bit>
#include <cstdint>
#include <cstring>

#define MEGJIT_INLINE inline

namespace megjit::cpu::MEGJIT_LEVEL {

#include "backends/cpu/vectors.inl"

#include "backends/cpu/instructions.inl"

inline constexpr int kLanes = MEGJIT_LANE_COUNT;

struct F32 {
    Floats v;
};
struct I32 {
    Ints v;
};
struct B1 {
    Ints v;
};  // each lane 0 or -1

inline F32 splat(float x) { return {x - Floats{}}; }
inline I32 splat(int32_t x) { return {x - Ints{}}; }

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
inline I32 operator+(I32 a, I32 b) { return {(Ints)((Uints)a.v + (Uints)b.v)}; }
inline I32 operator-(I32 a, I32 b) { return {(Ints)((Uints)a.v - (Uints)b.v)}; }
inline I32 operator*(I32 a, I32 b) { return {(Ints)((Uints)a.v * (Uints)b.v)}; }
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
inline I32 shl(I32 a, I32 n) { return {(Ints)((Uints)a.v << (Uints)(n.v & 31))}; }
inline I32 shr(I32 a, I32 n) { return {a.v >> (n.v & 31)}; }
inline I32 shr_logical(I32 a, I32 n) { return {(Ints)((Uints)a.v >> (Uints)(n.v & 31))}; }
inline I32 shr_logical(I32 a, int n) { return {(Ints)((Uints)a.v >> (n & 31))}; }

inline B1 operator&(B1 a, B1 b) { return {a.v & b.v}; }
inline B1 operator|(B1 a, B1 b) { return {a.v | b.v}; }
inline B1 operator^(B1 a, B1 b) { return {a.v ^ b.v}; }
inline B1 operator!(B1 a) { return {~a.v}; }

inline F32 select(B1 c, F32 a, F32 b) { return {c.v ? a.v : b.v}; }
inline I32 select(B1 c, I32 a, I32 b) { return {c.v ? a.v : b.v}; }
inline B1 select(B1 c, B1 a, B1 b) { return {c.v ? a.v : b.v}; }

inline I32 bits_of(F32 x) { return {(Ints)x.v}; }
inline F32 float_of(I32 x) { return {(Floats)x.v}; }
inline F32 lit(F32, float value) { return splat(value); }
inline F32 lit(I32, float value) { return splat(value); }
inline I32 ilit(F32, int32_t value) { return splat(value); }
inline I32 ilit(I32, int32_t value) { return splat(value); }
inline F32 abs(F32 x) { return float_of(bits_of(x) & splat(0x7FFFFFFF)); }

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

template <class T>
T load_some(const void* from, int n) {
    return std::bit_cast<T>(load_first<Ints>(from, n));
}
template <class T>
void store_some(void* to, T x, int n) {
    store_first(to, std::bit_cast<Ints>(x), n);
}

inline F32 fma(F32 a, F32 b, F32 c) { return {multiply_add(a.v, b.v, c.v)}; }
inline F32 sqrt(F32 x) { return {square_root(x.v)}; }
inline I32 to_int(F32 x) { return {truncated(x.v)}; }
inline F32 to_float(I32 x) { return {__builtin_convertvector(x.v, Floats)}; }
inline bool any(B1 c) { return any_of(c.v); }
inline F32 floor(F32 x) { return {rounded<Rounding::down>(x.v)}; }
inline F32 ceil(F32 x) { return {rounded<Rounding::up>(x.v)}; }
inline F32 trunc(F32 x) { return {rounded<Rounding::to_zero>(x.v)}; }
inline F32 round_even(F32 x) { return {rounded<Rounding::nearest>(x.v)}; }

// A NaN of either operand wins; among equal zeros the first does.
inline F32 max(F32 a, F32 b) { return select(ne(a, a), a, select(ne(b, b) | (a < b), b, a)); }
inline F32 min(F32 a, F32 b) { return select(ne(a, a), a, select(ne(b, b) | (b < a), b, a)); }
inline I32 max(I32 a, I32 b) { return select(a < b, b, a); }
inline I32 min(I32 a, I32 b) { return select(b < a, b, a); }

}  // namespace megjit::cpu::MEGJIT_LEVEL
