// backends/cpu/kernels/grouped_conv.inl -- sums of neighbors in registers: see grouped_conv.h.
// Included by each_isa.h.

#include "backends/cpu/kernels/conv_panels.inl"
#include "backends/cpu/kernels/lane_panels.inl"

// Neighbors that are computed together: their sums, the weights of a run and an operand fill the
// registers. Rows of fewer places are computed in pairs, or the sums would wait for each other.
constexpr int kNeighbors = MEGJIT_LANE_COUNT == 16 ? 14 : 7;

// to [kRows][kColumns][to_step] = the sums of all taps, for neighbors from x on.
template <int kTaps, int kRows, int kColumns, bool is_spread>
MEGJIT_INLINE void conv_tile(const LaneConv& s, const float* x, float* to) {
    for (int64_t lane = 0; lane < s.lane_count; lane += kLanes) {
        Floats sum[kRows][kColumns] = {};  // kept in registers, for loops are unrolled
        const float* w = s.w + lane;
        for (int64_t input = 0; input < s.inputs; ++input) {
            const Factor factor = factor_of<is_spread>(s.lanes, lane, input);
            for (int64_t run = 0; run < s.run_count; ++run, w += kTaps * kPanelLanes) {
                const float* const at = x + s.runs[run] + factor.offset;
                Floats weight[kTaps];
#pragma GCC unroll 8
                for (int t = 0; t < kTaps; ++t) weight[t] = load(w + t * kPanelLanes);
#pragma GCC unroll 32
                for (int i = 0; i < kColumns + kTaps - 1; ++i)
#pragma GCC unroll 2
                    for (int r = 0; r < kRows; ++r) {
                        Floats one = load(at + r * s.x_row_step + i * kPanelLanes);
                        if (is_spread) one = __builtin_shuffle(one, factor.lane);
#pragma GCC unroll 8
                        for (int t = 0; t < kTaps; ++t)
                            if (i - t >= 0 && i - t < kColumns) sum[r][i - t] += one * weight[t];
                    }
            }
        }
#pragma GCC unroll 2
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 14
            for (int i = 0; i < kColumns; ++i)
                store(to + r * s.to_row_step + i * s.to_step + lane, sum[r][i]);
    }
}

// The places of kRows rows from `first` to `end` in tiles of kColumns. The last one ends with them,
// so it may compute some places a second time.
template <int kTaps, int kRows, int kColumns, bool is_spread>
MEGJIT_INLINE void conv_tiles(const LaneConv& s, const float* x, float* to, int64_t first,
                              int64_t end) {
    for (int64_t i = first; i < end; i += kColumns) {
        const int64_t column = std::min(i, end - kColumns);
        conv_tile<kTaps, kRows, kColumns, is_spread>(s, x + column * kPanelLanes,
                                                     to + column * s.to_step);
    }
}

template <int kTaps, int kRows, bool is_spread>
MEGJIT_INLINE void conv_row(const LaneConv& s, const float* x, float* to) {
    constexpr int kMost = kNeighbors / kRows;
    const int64_t n = s.columns;
    if (n < 4) return conv_tiles<kTaps, kRows, 1, is_spread>(s, x, to, 0, n);
    if (n < 7) return conv_tiles<kTaps, kRows, 4, is_spread>(s, x, to, 0, n);
    int64_t whole = 0;  // places in tiles of kMost
    if (n >= kMost) whole = n % kMost > 7 ? n : n / kMost * kMost;
    conv_tiles<kTaps, kRows, kMost, is_spread>(s, x, to, 0, whole);
    if constexpr (kMost > 7) conv_tiles<kTaps, kRows, 7, is_spread>(s, x, to, whole, n);
    else if (whole < n) conv_tiles<kTaps, kRows, kMost, is_spread>(s, x, to, n - kMost, n);
}

template <int kTaps, bool is_spread>
void conv_rows(const LaneConv& s, const float* x, float* to) {
    int64_t row = 0;
    if constexpr (kNeighbors > 7)
        for (; s.columns < kNeighbors && row + 2 <= s.rows; row += 2)
            conv_row<kTaps, 2, is_spread>(s, x + row * s.x_row_step, to + row * s.to_row_step);
    for (; row < s.rows; ++row)
        conv_row<kTaps, 1, is_spread>(s, x + row * s.x_row_step, to + row * s.to_row_step);
}

// Computes rows of places, with runs of kTaps taps.
template <int kTaps>
void conv_any(const LaneConv& s, const float* x, float* to) {
    if (s.is_depthwise) conv_rows<kTaps, false>(s, x, to);
    else conv_rows<kTaps, true>(s, x, to);
}
void conv_plane(const LaneConv& s, int64_t taps, const float* x, float* to) {
    switch (taps) {
        case 7: return conv_any<7>(s, x, to);
        case 6: return conv_any<6>(s, x, to);
        case 5: return conv_any<5>(s, x, to);
        case 4: return conv_any<4>(s, x, to);
        case 3: return conv_any<3>(s, x, to);
        case 2: return conv_any<2>(s, x, to);
        default: return conv_any<1>(s, x, to);
    }
}

// Packs weights [lanes][taps], whose rows lie `step` apart, as [taps][kPanelLanes]. turned: the
// last tap comes first.
void pack_weights(const float* from, int64_t step, int64_t taps, int64_t lanes, bool turned,
                  float* to) {
    transpose_words(reinterpret_cast<const uint32_t*>(from), step,
                    reinterpret_cast<uint32_t*>(to + (turned ? (taps - 1) * kPanelLanes : 0)),
                    turned ? -kPanelLanes : kPanelLanes, taps, lanes);
}

// Copies a packed plane [count][kPanelLanes] to pixels of the result.
void unpack_plane(const float* from, int64_t count, int64_t channels, const PixelSteps& steps,
                  float* to) {
    if (steps.channel != 1)
        return transpose_words(reinterpret_cast<const uint32_t*>(from), kPanelLanes,
                               reinterpret_cast<uint32_t*>(to), steps.channel, channels, count);
    for (int64_t i = 0; i < count; ++i, from += kPanelLanes, to += steps.pixel) {
        int64_t channel = 0;
        for (; channel + 8 <= channels; channel += 8)
            std::memcpy(to + channel, from + channel, 8 * sizeof(float));
        for (; channel < channels; ++channel) to[channel] = from[channel];
    }
}
