// backends/cpu/kernels/integer_product.inl -- packing and tiles of integer_product.cpp. See
// each_isa.h.

#include "backends/cpu/kernels/integer_panel.inl"

// Writes terms [begin, end) of a row, which are `step` apart; missing terms of the last word are 0.
template <class T>
MEGJIT_INLINE void fill_row(const T* from, int64_t step, int64_t begin, int64_t end, Term<T>* to) {
    const int64_t terms = end - begin;
    from += begin * step;
    if (step == 1)
        for (int64_t i = 0; i < terms; ++i) to[i] = static_cast<Term<T>>(from[i]);
    else
        for (int64_t i = 0; i < terms; ++i) to[i] = static_cast<Term<T>>(from[i * step]);
    for (int64_t i = terms; i % kTermsOf<T>; ++i) to[i] = 0;
}

// Packs one term, or two, into a word.
template <class T>
MEGJIT_INLINE int32_t word_of(T first, T second) {
    if constexpr (kTermsOf<T> == 1) return static_cast<int32_t>(first);
    const auto half = [](T term) { return uint32_t{static_cast<uint16_t>(term)}; };
    return static_cast<int32_t>(half(first) | half(second) << 16);
}

// Packs a panel of b, from column `first` on: [words][kPanel]; columns and terms beyond b are 0.
template <class T>
void pack_panel(const IntegerProduct& s, const T* b, int64_t first, int32_t* to) {
    const int64_t columns = std::min(kPanel, s.n - first), full = s.k / kTermsOf<T>;
    b += first * s.b_column;
    if (columns < kPanel || full < s.words) std::fill_n(to, s.words * kPanel, 0);
    if (s.b_column == 1) {
        for (int64_t word = 0; word < full; ++word) {
            const T *const one = b + word * kTermsOf<T> * s.b_row, *const next = one + s.b_row;
            for (int64_t c = 0; c < columns; ++c) to[word * kPanel + c] = word_of(one[c], next[c]);
        }
    } else {
        for (int64_t c = 0; c < columns; ++c) {
            const T* const column = b + c * s.b_column;
            for (int64_t word = 0; word < full; ++word)
                to[word * kPanel + c] =
                    word_of(column[word * kTermsOf<T>], column[(word + 1) * kTermsOf<T> - 1]);
        }
    }
    if (full < s.words)
        for (int64_t c = 0; c < columns; ++c)
            to[full * kPanel + c] = word_of(b[full * kTermsOf<T> * s.b_row + c * s.b_column], T{});
}

// Multiplies rows [lo, lo + rows) of a by packed panels [first, last).
template <class T>
void multiply_tile(const IntegerProduct& s, const T* a, const int32_t* panels, int64_t lo,
                   int64_t rows, int64_t first, int64_t last, int32_t* sums) {
    using Terms = std::conditional_t<kTermsOf<T> == 2, PairsOf16, SinglesOf32>;
    alignas(64) Term<T> part[IntegerProduct::kTileRows * IntegerProduct::kTileWords * kTermsOf<T>];
    const int64_t columns = (last - first) * kPanel;
    std::fill_n(sums, rows * columns, 0);
    for (int64_t begin = 0; begin < s.words; begin += IntegerProduct::kTileWords) {
        const int64_t words = std::min(IntegerProduct::kTileWords, s.words - begin);
        for (int64_t r = 0; r < rows; ++r)
            fill_row(a + (lo + r) * s.a_row, s.a_column, begin * kTermsOf<T>,
                     std::min(s.k, (begin + words) * kTermsOf<T>), part + r * words * kTermsOf<T>);
        for (int64_t panel = first; panel < last; ++panel)
            multiply_panel<Terms>(rows, part, words, panels + (panel * s.words + begin) * kPanel,
                                  words, sums + (panel - first) * kPanel, columns);
    }
}

// Computes columns [lo, hi) of one row, at most kTileColumns, from b in place: packing b would take
// longer than few rows do.
template <class T>
void multiply_row(const IntegerProduct& s, const T* a, const T* b, int64_t lo, int64_t hi,
                  int32_t* y) {
    uint32_t sums[IntegerProduct::kTileColumns] = {};
    b += lo * s.b_column;
    if (s.b_row != 1) {
        for (int64_t i = 0; i < s.k; ++i) {
            const auto factor = static_cast<uint32_t>(a[i * s.a_column]);
            const T* const row = b + i * s.b_row;
            for (int64_t c = 0; c < hi - lo; ++c)
                sums[c] += factor * static_cast<uint32_t>(row[c * s.b_column]);
        }
    } else {
        for (int64_t c = 0; c < hi - lo; ++c) {
            const T* const column = b + c * s.b_column;
            for (int64_t i = 0; i < s.k; ++i)
                sums[c] +=
                    static_cast<uint32_t>(a[i * s.a_column]) * static_cast<uint32_t>(column[i]);
        }
    }
    std::memcpy(y, sums, static_cast<size_t>(hi - lo) * sizeof(int32_t));
}
