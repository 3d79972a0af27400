// backends/cpu/kernels/small_product.inl -- products of small matrices that are in the caches. See
// each_isa.h. Each element is one sum, in the order of its terms, whatever the instruction set.

template <class T>
using VectorOf = std::conditional_t<sizeof(T) == sizeof(double), Doubles, Floats>;
template <class T>
constexpr int64_t kLanesOf = sizeof(VectorOf<T>) / sizeof(T);

// These columns are computed together: six rows of them and a row of the right factor fill the
// registers.
constexpr int kVectors = kHasManyRegisters ? 4 : 2;

// The left factor: element (r, i) is at[r * row + i * term]. Its elements are read one by one, so
// that it may be transposed.
template <class T>
struct LeftFactor {
    const T* at;
    int64_t row, term;
};

// Computes c [kRows][kWide vectors] = a b, or c + a b.
template <int kRows, int kWide, class T>
MEGJIT_INLINE void multiply_tile(const LeftFactor<T>& a, const T* b, int64_t b_row, T* c,
                                 int64_t c_row, int64_t terms, bool adds) {
    using V = VectorOf<T>;
    constexpr int64_t kLanes = kLanesOf<T>;
    V sum[kRows][kWide] = {};  // kept in registers, for loops over rows are unrolled
    if (adds) {
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kWide; ++v) sum[r][v] = get<V>(c + r * c_row + v * kLanes);
    }
    for (int64_t i = 0; i < terms; ++i) {
        V w[kWide];
        for (int v = 0; v < kWide; ++v) w[v] = get<V>(b + i * b_row + v * kLanes);
        for (int r = 0; r < kRows; ++r) {
            const V factor = a.at[r * a.row + i * a.term] - V{};  // in all lanes
            for (int v = 0; v < kWide; ++v) sum[r][v] += factor * w[v];
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kWide; ++v) put(c + r * c_row + v * kLanes, sum[r][v]);
}

template <int kWide, class T>
MEGJIT_INLINE void multiply_some(int64_t rows, const LeftFactor<T>& a, const T* b, int64_t b_row,
                                 T* c, int64_t c_row, int64_t terms, bool adds) {
    switch (rows) {
        case 6: return multiply_tile<6, kWide>(a, b, b_row, c, c_row, terms, adds);
        case 5: return multiply_tile<5, kWide>(a, b, b_row, c, c_row, terms, adds);
        case 4: return multiply_tile<4, kWide>(a, b, b_row, c, c_row, terms, adds);
        case 3: return multiply_tile<3, kWide>(a, b, b_row, c, c_row, terms, adds);
        case 2: return multiply_tile<2, kWide>(a, b, b_row, c, c_row, terms, adds);
        default: return multiply_tile<1, kWide>(a, b, b_row, c, c_row, terms, adds);
    }
}

// Computes all rows of kWide vectors of columns, in groups of six or five (or of the rest).
template <int kWide, class T>
void multiply_columns(const LeftFactor<T>& a, const T* b, int64_t b_row, T* c, int64_t c_row,
                      int64_t rows, int64_t terms, bool adds) {
    const int64_t groups = (rows + 5) / 6;
    for (int64_t g = 0, row = 0; g < groups; ++g) {
        const int64_t count = rows * (g + 1) / groups - row;
        multiply_some<kWide>(count, {a.at + row * a.row, a.row, a.term}, b, b_row, c + row * c_row,
                             c_row, terms, adds);
        row += count;
    }
}

// Computes c [rows][columns] = a b, or c + a b, where `columns` is a multiple of the lanes.
template <class T>
MEGJIT_INLINE void multiply(const LeftFactor<T>& a, const T* b, int64_t b_row, T* c, int64_t c_row,
                            int64_t rows, int64_t columns, int64_t terms, bool adds) {
    constexpr int64_t kLanes = kLanesOf<T>;
    int64_t at = 0;
    for (; at + kVectors * kLanes <= columns; at += kVectors * kLanes)
        multiply_columns<kVectors>(a, b + at, b_row, c + at, c_row, rows, terms, adds);
    for (; at < columns; at += kLanes)
        multiply_columns<1>(a, b + at, b_row, c + at, c_row, rows, terms, adds);
}
