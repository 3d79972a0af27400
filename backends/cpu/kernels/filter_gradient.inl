// backends/cpu/kernels/filter_gradient.inl -- packs panels, multiplies them and joins the sums: see
// filter_gradient.h. Included by each_isa.h.

#include "backends/cpu/kernels/transposed_words.inl"

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

// Packs `count` pixels as [pixels][panel], with zeros where the panel has more channels than there
// are. from: the first channel of the first pixel.
void pack_pixels(const PixelSteps& steps, const float* from, int64_t count, int64_t channels,
                 int64_t panel, float* to) {
    if (steps.channel == 1 && steps.pixel == panel && channels == panel) {
        std::memcpy(to, from, static_cast<size_t>(count * panel) * sizeof(float));
        return;
    }
    if (steps.pixel == 1 && steps.channel != 1) {
        transpose_words(reinterpret_cast<const uint32_t*>(from), steps.channel,
                        reinterpret_cast<uint32_t*>(to), panel, count, channels);
        for (int64_t i = 0; i < count && channels < panel; ++i)
            std::fill(to + i * panel + channels, to + (i + 1) * panel, 0.0f);
        return;
    }
    for (int64_t i = 0; i < count; ++i, from += steps.pixel, to += panel) {
        if (steps.channel == 1)
            over_lanes(channels, MEGJIT_LANES(V, c) { put(to + c, get<V>(from + c)); });
        else
            for (int64_t c = 0; c < channels; ++c) to[c] = from[c * steps.channel];
        for (int64_t c = channels; c < panel; ++c) to[c] = 0;
    }
}

template <class V>
MEGJIT_INLINE V joined(const PartialSums& parts, const float* from) {
    V sum = get<V>(from);
    for (int64_t part = 1; part < parts.count; ++part) sum += get<V>(from + part * parts.step);
    return sum;
}

// Joins a panel of sums [taps * panel][lanes] into w [lanes][channels][taps].
void join_turned(const PartialSums& parts, const float* sums, int64_t sums_step, int64_t taps,
                 int64_t panel, int64_t channels, int64_t lanes, float* w, int64_t w_step) {
    const int64_t numbers = channels * taps, whole = numbers / 8 * 8, whole_lanes = lanes / 8 * 8;
    const auto row = [&](int64_t i) { return sums + (i % taps * panel + i / taps) * sums_step; };
    for (int64_t lane = 0; lane < whole_lanes; lane += 8)
        for (int64_t i = 0; i < whole; i += 8) {
            using Float8 = float __attribute__((vector_size(32)));
            Lane8 block[8];
            for (int r = 0; r < 8; ++r) block[r] = (Lane8)joined<Float8>(parts, row(i + r) + lane);
            transpose_lanes(block);
            for (int r = 0; r < 8; ++r) put(w + (lane + r) * w_step + i, block[r]);
        }
    for (int64_t lane = 0; lane < lanes; ++lane)
        for (int64_t i = lane < whole_lanes ? whole : 0; i < numbers; ++i)
            w[lane * w_step + i] = joined<float>(parts, row(i) + lane);
}

// Joins sums [rows][lanes] into w [rows][lanes].
void join_straight(const PartialSums& parts, const float* sums, int64_t sums_step, int64_t rows,
                   int64_t lanes, float* w, int64_t w_step) {
    for (int64_t r = 0; r < rows; ++r, sums += sums_step, w += w_step)
        over_lanes(lanes, MEGJIT_LANES(V, i) { put(w + i, joined<V>(parts, sums + i)); });
}
