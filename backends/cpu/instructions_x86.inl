// backends/cpu/instructions_x86.inl -- see instructions.inl. Vectors have 8 or 16 lanes.

// The numbers of Rounding are the instruction's; 8 suppresses exceptions.
template <Rounding mode>
constexpr int kRounding = static_cast<int>(mode) | _MM_FROUND_NO_EXC;

#if MEGJIT_LANE_COUNT == 16

MEGJIT_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
MEGJIT_INLINE Floats square_root(Floats x) { return _mm512_sqrt_ps(x); }
template <Rounding mode>
MEGJIT_INLINE Floats rounded(Floats x) {
    return _mm512_roundscale_ps(x, kRounding<mode>);
}
MEGJIT_INLINE Ints truncated(Floats x) { return (Ints)_mm512_cvttps_epi32(x); }
MEGJIT_INLINE bool any_of(Ints mask) {
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}
template <class V>
MEGJIT_INLINE V load_first(const void* from, int n) {
    return (V)_mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << n) - 1), from);
}
template <class V>
MEGJIT_INLINE void store_first(void* to, V x, int n) {
    _mm512_mask_storeu_epi32(to, static_cast<__mmask16>((1u << n) - 1), (__m512i)x);
}
MEGJIT_INLINE Floats floats_of(Halves halves) { return _mm512_cvtph_ps((__m256i)halves); }
MEGJIT_INLINE Halves halves_of(Floats x) {
    return (Halves)_mm512_cvtps_ph(x, kRounding<Rounding::nearest>);
}
template <int part>
MEGJIT_INLINE Floats floats_of_bytes(Bytes bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)bytes));
}
MEGJIT_INLINE Ints ints_of(Naturals bytes) { return (Ints)_mm512_cvtepu8_epi32((__m128i)bytes); }
MEGJIT_INLINE Ints pairs_of_bytes(const int8_t* from) {
    return (Ints)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)from));
}
MEGJIT_INLINE Ints pair_products(Ints a, Ints b) {
    return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
// Needs has_vnni(), which is above this level: hence an instruction that the compiler does not
// know.
MEGJIT_INLINE Ints add_quads(Ints sums, Ints a, Ints b) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(a), "vm"(b));
    return sums;
}

#else

MEGJIT_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
MEGJIT_INLINE Floats square_root(Floats x) { return _mm256_sqrt_ps(x); }
template <Rounding mode>
MEGJIT_INLINE Floats rounded(Floats x) {
    return _mm256_round_ps(x, kRounding<mode>);
}
MEGJIT_INLINE Ints truncated(Floats x) { return (Ints)_mm256_cvttps_epi32(x); }
MEGJIT_INLINE bool any_of(Ints mask) { return !_mm256_testz_si256((__m256i)mask, (__m256i)mask); }
MEGJIT_INLINE __m256i first_lanes(int n) {
    constexpr Ints kIndex = {0, 1, 2, 3, 4, 5, 6, 7};
    return (__m256i)(kIndex < n);
}
template <class V>
MEGJIT_INLINE V load_first(const void* from, int n) {
    return (V)_mm256_maskload_epi32(static_cast<const int*>(from), first_lanes(n));
}
template <class V>
MEGJIT_INLINE void store_first(void* to, V x, int n) {
    _mm256_maskstore_epi32(static_cast<int*>(to), first_lanes(n), (__m256i)x);
}
MEGJIT_INLINE Floats floats_of(Halves halves) { return _mm256_cvtph_ps((__m128i)halves); }
MEGJIT_INLINE Halves halves_of(Floats x) {
    return (Halves)_mm256_cvtps_ph(x, static_cast<int>(Rounding::nearest));
}
template <int part>
MEGJIT_INLINE Floats floats_of_bytes(Bytes bytes) {
    const __m128i all = (__m128i)bytes, own = part ? _mm_unpackhi_epi64(all, all) : all;
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(own));
}
MEGJIT_INLINE Ints pairs_of_bytes(const int8_t* from) {
    return (Ints)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
}
MEGJIT_INLINE Ints pair_products(Ints a, Ints b) {
    return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}

#endif
