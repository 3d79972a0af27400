// backends/cpu/onednn/dnn_convert.inl -- float16 and bfloat16 to and from float. See each_isa.h.

using Halves = uint16_t __attribute__((vector_size(2 * MEGJIT_LANE_COUNT)));
using Words = uint32_t __attribute__((vector_size(4 * MEGJIT_LANE_COUNT)));

void bfloat_to_floats(const uint16_t* from, float* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Halves halves;
        std::memcpy(&halves, from + i, sizeof halves);
        const Words bits = __builtin_convertvector(halves, Words) << 16;
        std::memcpy(to + i, &bits, sizeof bits);
    }
    for (; i < n; ++i) to[i] = runtime::bfloat_to_float(from[i]);
}

void floats_to_bfloat(const float* from, uint16_t* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Words bits;
        std::memcpy(&bits, from + i, sizeof bits);
        const Words rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16,
                    nan = (bits >> 16) | 0x40u;
        const Words chosen = (bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded;
        const Halves halves = __builtin_convertvector(chosen, Halves);
        std::memcpy(to + i, &halves, sizeof halves);
    }
    for (; i < n; ++i) to[i] = runtime::float_to_bfloat(from[i]);
}

void half_to_floats(const uint16_t* from, float* to, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    for (; i < n; ++i) to[i] = runtime::half_to_float(from[i]);
}

void floats_to_half(const float* from, uint16_t* to, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; ++i) to[i] = runtime::float_to_half(from[i]);
}
