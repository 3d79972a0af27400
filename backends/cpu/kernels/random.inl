// backends/cpu/kernels/random.inl -- words of Philox, and normal numbers of them. See each_isa.h.

constexpr int64_t kBatch = 256;  // blocks whose words are made at once

// Words of `count` blocks from `first`; kept apart by place in the block, so that the rounds
// vectorise.
void make_words(const runtime::Philox& g, uint64_t first, int64_t count,
                uint32_t (*words)[kBatch]) {
    uint32_t *w0 = words[0], *w1 = words[1], *w2 = words[2], *w3 = words[3];
    for (int64_t i = 0; i < count; ++i) {
        const runtime::Philox::Block b = g.block(first + static_cast<uint64_t>(i));
        w0[i] = b[0];
        w1[i] = b[1];
        w2[i] = b[2];
        w3[i] = b[3];
    }
}

// log of a float in (0, 1] that is not denormal: m 2^e with m near 1, and 2 atanh((m - 1) / (m +
// 1)). About 1 ulp of log2 e.
MEGJIT_INLINE float fast_log(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), shifted = bits - 0x3F3504F3u;  // sqrt(1/2)
    const auto exponent = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
    const float m = std::bit_cast<float>((shifted & 0x007FFFFFu) + 0x3F3504F3u);
    const float t = (m - 1) / (m + 1), s = t * t;
    const float series =
        2 * t +
        t * s *
            (0.66666667f + s * (0.4f + s * (0.28571430f + s * (0.22222222f + s * 0.18181818f))));
    return exponent * 0.69314718f + series;
}

// sin and cos of a quarter turn or less, |a| <= pi / 4, by Taylor's series.
MEGJIT_INLINE float small_sin(float a) {
    const float s = a * a;
    return a + a * s * (-1.0f / 6 + s * (1.0f / 120 + s * (-1.0f / 5040 + s * (1.0f / 362880))));
}
MEGJIT_INLINE float small_cos(float a) {
    const float s = a * a;
    return 1 + s * (-0.5f + s * (1.0f / 24 + s * (-1.0f / 720 + s * (1.0f / 40320))));
}

// Box and Muller 1958: radius sqrt(-2 log u), angle 2 pi v. The word's top three bits choose the
// eighth of the turn, so that the angle itself stays small and no reduction is needed.
void box_muller(const uint32_t* radius_words, const uint32_t* angle_words, int64_t n, float* a,
                float* b) {
    for (int64_t i = 0; i < n; ++i) {
        const float u =
            static_cast<float>(static_cast<int32_t>((radius_words[i] >> 8) + 1)) * 0x1p-24f;
        const float square = -2 * fast_log(u), radius = std::sqrt(square > 0 ? square : 0);
        const uint32_t w = angle_words[i];
        const float angle = static_cast<float>(static_cast<int32_t>(w << 2) >> 9) *
                            (0x1p-22f * 0.78539816f);  // [-pi/4, pi/4)
        const float s = small_sin(angle), c = small_cos(angle);
        const bool swap = w >> 31, negate = w >> 30 & 1u;
        const float x = radius * (swap ? s : c), y = radius * (swap ? c : s);
        a[i] = negate ? -x : x;
        b[i] = negate ? -y : y;
    }
}
