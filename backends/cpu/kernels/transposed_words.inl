// backends/cpu/kernels/transposed_words.inl -- transposes of 4-byte elements. See each_isa.h.

// Transposes 8 x 8 elements of 4 bytes in three rounds; each round swaps the off-diagonal blocks of
// one size.
using Lane8 = uint32_t __attribute__((vector_size(32)));

template <int W>
MEGJIT_INLINE void swap_blocks(Lane8 (&row)[8]) {
    Lane8 low, high;
    for (uint32_t j = 0; j < 8; ++j) {
        low[j] = (j & W) ? 8 + j - W : j;
        high[j] = (j & W) ? 8 + j : j + W;
    }
    for (int i = 0; i < 8; ++i) {
        if (i & W) continue;
        const Lane8 a = row[i], b = row[i + W];
        row[i] = __builtin_shuffle(a, b, low);
        row[i + W] = __builtin_shuffle(a, b, high);
    }
}

MEGJIT_INLINE void transpose_lanes(Lane8 (&row)[8]) {
    swap_blocks<1>(row);
    swap_blocks<2>(row);
    swap_blocks<4>(row);
}

// to[p * to_step + q] = from[q * from_step + p]. Blocks of 16 x 16 read and write whole cache lines
// at once: with strides of a power of two, lines that are needed again would have been evicted.
void transpose_words(const uint32_t* from, int64_t from_step, uint32_t* to, int64_t to_step,
                     int64_t ps, int64_t qs) {
    const int64_t whole_p = ps / 16 * 16, whole_q = qs / 16 * 16;
    for (int64_t q = 0; q < whole_q; q += 16)
        for (int64_t p = 0; p < whole_p; p += 16)
            for (int64_t pp = p; pp < p + 16; pp += 8) {
                Lane8 left[8], right[8];
                for (int i = 0; i < 8; ++i)
                    std::memcpy(&left[i], from + (q + i) * from_step + pp, sizeof left[i]);
                for (int i = 0; i < 8; ++i)
                    std::memcpy(&right[i], from + (q + 8 + i) * from_step + pp, sizeof right[i]);
                transpose_lanes(left);
                transpose_lanes(right);
                for (int i = 0; i < 8; ++i) {
                    std::memcpy(to + (pp + i) * to_step + q, &left[i], sizeof left[i]);
                    std::memcpy(to + (pp + i) * to_step + q + 8, &right[i], sizeof right[i]);
                }
            }
    for (int64_t p = whole_p; p < ps; ++p)
        for (int64_t q = 0; q < whole_q; ++q) to[p * to_step + q] = from[q * from_step + p];
    for (int64_t q = whole_q; q < qs; ++q)
        for (int64_t p = 0; p < ps; ++p) to[p * to_step + q] = from[q * from_step + p];
}
