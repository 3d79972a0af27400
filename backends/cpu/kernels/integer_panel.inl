// backends/cpu/kernels/integer_panel.inl -- rows times a panel of columns, in integers. See
// each_isa.h. Factors are stored in words of 32 bits, which hold one term of a sum or two
// neighboring ones.

#include "backends/cpu/instructions.inl"

constexpr int64_t kPanel = 2 * MEGJIT_LANE_COUNT;  // columns that are computed together
constexpr int kMostRows = kHasManyRegisters ? 12 : 6;  // rows: they fill the registers
using Words = Ints;

// Loads words from the i-th on; memory holds terms of either size.
template <class V>
MEGJIT_INLINE V words_at(const void* words, int64_t i) {
    V v;
    std::memcpy(&v, static_cast<const char*>(words) + i * 4, sizeof v);
    return v;
}

// Words of two signed terms of 16 bits, or of one of 32 bits: the products of each word's terms are
// added, modulo 2^32.
struct PairsOf16 {
    static MEGJIT_INLINE Ints multiply(const Words& a, const Words& b) {
        return pair_products(a, b);
    }
};
struct SinglesOf32 {
    static MEGJIT_INLINE Ints multiply(const Words& a, const Words& b) {
        return (Ints)((Uints)a * (Uints)b);
    }
};

// sums [rows][kPanel] += a [rows][words] times a panel b [words][kPanel].
template <class Terms, int rows>
MEGJIT_INLINE void multiply_rows(const void* a, int64_t a_stride, const void* b, int64_t words,
                                 int32_t* sums, int64_t sums_stride) {
    Ints sum[rows][2];
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < 2; ++v)
            std::memcpy(&sum[r][v], sums + r * sums_stride + v * kLanes, sizeof(Ints));
    for (int64_t i = 0; i < words; ++i) {
        const Words w[2] = {words_at<Words>(b, i * kPanel),
                            words_at<Words>(b, i * kPanel + kLanes)};
        for (int r = 0; r < rows; ++r) {
            const Words factor = Words{} + words_at<int32_t>(a, r * a_stride + i);
            for (int v = 0; v < 2; ++v) sum[r][v] += Terms::multiply(factor, w[v]);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < 2; ++v)
            std::memcpy(sums + r * sums_stride + v * kLanes, &sum[r][v], sizeof(Ints));
}
template <class Terms, int most>
MEGJIT_INLINE void multiply_some(int64_t rows, const void* a, int64_t a_stride, const void* b,
                                 int64_t words, int32_t* sums, int64_t sums_stride) {
    if (rows == most) return multiply_rows<Terms, most>(a, a_stride, b, words, sums, sums_stride);
    if constexpr (most > 1)
        multiply_some<Terms, most - 1>(rows, a, a_stride, b, words, sums, sums_stride);
}

// Takes any number of rows.
template <class Terms>
MEGJIT_INLINE void multiply_panel(int64_t rows, const void* a, int64_t a_stride, const void* b,
                                  int64_t words, int32_t* sums, int64_t sums_stride) {
    for (int64_t r = 0; r < rows; r += kMostRows)
        multiply_some<Terms, kMostRows>(std::min<int64_t>(kMostRows, rows - r),
                                        static_cast<const char*>(a) + 4 * r * a_stride, a_stride, b,
                                        words, sums + r * sums_stride, sums_stride);
}
