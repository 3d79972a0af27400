// backends/cpu/kernels/filter_gradient.inl -- multiplies panels and joins the sums: see
// filter_gradient.h. Included by each_isa.h.

#include "backends/cpu/kernels/conv_panels.inl"
#include "backends/cpu/kernels/filter_sums.inl"

// The lanes operand's channels that are computed together.
constexpr int kMostVectors = kHasManyRegisters ? 4 : 2;
constexpr int64_t kLanePanel = kMostVectors * kLanes;
// Channels of the lanes operand up to which operands are read in place.
constexpr int64_t kInPlace = kHasManyRegisters ? 128 : 64;

// Rows of a tile: their sums, a row of lanes and a factor fill the registers.
constexpr int rows_with(int vectors) {
    if (!kHasManyRegisters) return vectors == 2 ? 6 : 12;
    constexpr int kRows[] = {14, 12, 8, 6};
    return kRows[vectors - 1];
}

// Places after which rows are needed: those that are read in place come from memory.
constexpr int64_t kAhead = 96;

// sums [kRows][kVectors vectors] = or += the products of the places of a strip.
template <int kVectors, int kRows>
MEGJIT_INLINE void sum_tile(const Strip& s, const float* rows, const float* lanes, float* sums,
                            int64_t sums_step, bool adds) {
    Floats sum[kRows][kVectors] = {};  // kept in registers, for loops over rows are unrolled
    for (int64_t image = 0; image < s.images; ++image)
        for (int64_t row = 0; row < s.rows; ++row) {
            const float* at = rows + image * s.image_step + row * s.row_step;
            for (int64_t column = 0; column < s.columns; ++column) {
                __builtin_prefetch(at + kAhead * s.column_step);
                Floats factor[kVectors];
                for (int v = 0; v < kVectors; ++v) factor[v] = load(lanes + v * kLanes);
#pragma GCC unroll 14
                for (int r = 0; r < kRows; ++r) {
                    const Floats one = all(at[r]);
                    for (int v = 0; v < kVectors; ++v) sum[r][v] += one * factor[v];
                }
                at += s.column_step, lanes += s.lanes_step;
            }
        }
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kVectors; ++v) {
            float* const to = sums + r * sums_step + v * kLanes;
            store(to, adds ? load(to) + sum[r][v] : sum[r][v]);
        }
}

template <int kVectors, int kRows>
MEGJIT_INLINE void sum_some(int64_t count, const Strip& s, const float* rows, const float* lanes,
                            float* sums, int64_t sums_step, bool adds) {
    if (count == kRows) return sum_tile<kVectors, kRows>(s, rows, lanes, sums, sums_step, adds);
    if constexpr (kRows > 1)
        sum_some<kVectors, kRows - 1>(count, s, rows, lanes, sums, sums_step, adds);
}

// Takes any number of rows, in tiles of about the same height.
template <int kVectors>
void sum_rows(int64_t count, const Strip& s, const float* rows, const float* lanes, float* sums,
              int64_t sums_step, bool adds) {
    constexpr int kMost = rows_with(kVectors);
    const int64_t tiles = (count + kMost - 1) / kMost;
    for (int64_t tile = 0, row = 0; tile < tiles; ++tile) {
        const int64_t height = count * (tile + 1) / tiles - row;
        sum_some<kVectors, kMost>(height, s, rows + row, lanes, sums + row * sums_step, sums_step,
                                  adds);
        row += height;
    }
}

// Takes any number of lanes of a panel.
void sum_strip(int64_t count, int64_t wide, const Strip& s, const float* rows, const float* lanes,
               float* sums, int64_t sums_step, bool adds) {
    const int64_t vectors = (wide + kLanes - 1) / kLanes;
    if constexpr (kMostVectors == 4) {
        if (vectors == 4) return sum_rows<4>(count, s, rows, lanes, sums, sums_step, adds);
        if (vectors == 3) return sum_rows<3>(count, s, rows, lanes, sums, sums_step, adds);
    }
    switch (vectors) {
        case 2: return sum_rows<2>(count, s, rows, lanes, sums, sums_step, adds);
        default: return sum_rows<1>(count, s, rows, lanes, sums, sums_step, adds);
    }
}

// Joins sums [rows][lanes] into w [rows][lanes].
void join_straight(const PartialSums& parts, const float* sums, int64_t sums_step, int64_t rows,
                   int64_t lanes, float* w, int64_t w_step) {
    for (int64_t r = 0; r < rows; ++r, sums += sums_step, w += w_step)
        over_lanes(lanes, MEGJIT_LANES(V, i) { put(w + i, joined<V>(parts, sums + i)); });
}
