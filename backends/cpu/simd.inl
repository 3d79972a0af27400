// backends/cpu/simd.inl -- kLanes floats at a time in the compiler's vector extension. Included by
// each_isa.h inside one namespace per instruction set; needs <cstdint> and <cstring>.

#include "backends/cpu/vectors.inl"

constexpr int64_t kLanes = MEGJIT_LANE_COUNT;
// Only vectors of 8 lanes come with 16 registers; all others have 32.
constexpr bool kHasManyRegisters = MEGJIT_LANE_COUNT != 8;

MEGJIT_INLINE Floats load(const float* p) {
    Floats v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
MEGJIT_INLINE void store(float* p, const Floats& v) { std::memcpy(p, &v, sizeof v); }
// (The compiler knows that value - 0 is value; 0 + value is not, for -0.)
MEGJIT_INLINE Floats all(float value) { return value - Floats{}; }
// Runs code for Floats and for single floats: body(Floats{}, i), then body(float{}, i) for the
// rest.
template <class V, class T>
MEGJIT_INLINE V get(const T* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <class V, class T>
MEGJIT_INLINE void put(T* p, const V& v) {
    std::memcpy(p, &v, sizeof v);
}
template <class Body>
MEGJIT_INLINE void over_lanes(int64_t n, const Body& body) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) body(Floats{}, i);
    for (; i < n; ++i) body(float{}, i);
}

// Does the same for bodies that may run twice for an index: a last, overlapping vector replaces
// single floats.
template <class Body>
MEGJIT_INLINE void over_lanes_twice(int64_t n, const Body& body) {
    if (n < kLanes) {
        for (int64_t i = 0; i < n; ++i) body(float{}, i);
        return;
    }
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) body(Floats{}, i);
    if (i < n) body(Floats{}, n - kLanes);
}

// The sum of 2 * half lanes: the upper half is added to the lower one until one lane is left.
template <int64_t half, class T>
MEGJIT_INLINE T joined_by_halves(T* lanes) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    if constexpr (half > 1) return joined_by_halves<half / 2>(lanes);
    else return lanes[0];
}

template <class V>
struct IndexType {
    using Type = Ints;
};
template <>
struct IndexType<float> {
    using Type = int32_t;
};

// The larger number; a NaN of either wins.
MEGJIT_INLINE float larger(float a, float b) { return a >= b || a != a ? a : b; }
MEGJIT_INLINE Floats larger(const Floats& a, const Floats& b) {
    const Ints keep = (a >= b) | (a != a);
    return keep ? a : b;
}

// Must v replace the largest number so far, when the first of equal numbers stays and the first NaN
// wins?
MEGJIT_INLINE bool beats(float v, float best) { return v > best || (v != v && best == best); }
MEGJIT_INLINE Ints beats(const Floats& v, const Floats& best) {
    return (v > best) | ((v != v) & (best == best));
}

// e^x within 2 ulp for x <= 0 (or NaN), denormal results included; -inf gives 0.
// Cody-Waite reduction by ln 2 in two parts and a polynomial of degree 6, as in Cephes' expf.
template <class V, class I>
MEGJIT_INLINE V exp_of_negative(V x) {
    x = x < -104.0f ? V{} - 104.0f : x;  // for smaller x the result is 0; a NaN stays
    const V shifted = x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
    const V n = shifted - 12582912.0f;
    const V r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const V e = (p * r * r + r) + 1.0f;
    I bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    const I exponent = bits - 0x4B400000;  // n as an integer, in -150..0
    const I half = exponent >> 1;  // 2^n in two steps, for n may be below the normal range
    const I low = (half + 127) << 23, high = (exponent - half + 127) << 23;
    V a, b;
    std::memcpy(&a, &low, sizeof a);
    std::memcpy(&b, &high, sizeof b);
    return e * a * b;
}
