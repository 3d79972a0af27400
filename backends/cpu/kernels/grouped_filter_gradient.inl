// backends/cpu/kernels/grouped_filter_gradient.inl -- sums of taps in registers: see
// grouped_filter_gradient.h. Included by each_isa.h.

#include "backends/cpu/kernels/conv_panels.inl"
#include "backends/cpu/kernels/filter_sums.inl"
#include "backends/cpu/kernels/lane_panels.inl"

// Sums that registers hold, beside a factor and an operand.
constexpr int kTapSums = MEGJIT_LANE_COUNT == 16 ? 28 : 14;
// Runs of taps that are computed together: each has an address in a register.
constexpr int runs_with(int taps) { return std::min(8, kTapSums / taps); }
// Outputs of a group that are computed together.
constexpr int outputs_with(int taps, int runs) {
    return std::clamp(kTapSums / (taps * runs), 1, 3);
}

// sums [kOutputs][output_step], each [kRuns][kTaps][lanes], = or += the products of the places of a
// strip.
template <int kTaps, int kRuns, int kOutputs, bool is_spread>
MEGJIT_INLINE void sum_taps(const TapStrip& s, int64_t run, int64_t output, float* sums) {
    for (int64_t lane = 0; lane < kPanelLanes; lane += kLanes) {
        Floats sum[kOutputs][kRuns][kTaps] = {};  // kept in registers, for loops are unrolled
        Factor factor[kOutputs];
        for (int o = 0; o < kOutputs; ++o)
            factor[o] = factor_of<is_spread>(s.lanes, lane, output + o);
        for (int64_t row = 0; row < s.rows; ++row) {
            const float *at[kRuns], *y = s.y + row * s.y_row_step;
            for (int r = 0; r < kRuns; ++r)
                at[r] = s.x + s.runs[run + r] + row * s.x_row_step + lane;
            for (int64_t i = 0, step = 0; i < s.columns; ++i, step += s.x_column_step) {
                Floats one[kOutputs];
                for (int o = 0; o < kOutputs; ++o) {
                    one[o] = load(y + i * s.y_column_step + factor[o].offset);
                    if (is_spread) one[o] = __builtin_shuffle(one[o], factor[o].lane);
                }
#pragma GCC unroll 8
                for (int r = 0; r < kRuns; ++r)
#pragma GCC unroll 8
                    for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 3
                        for (int o = 0; o < kOutputs; ++o)
                            sum[o][r][t] += one[o] * load(at[r] + step + t * kPanelLanes);
            }
        }
#pragma GCC unroll 3
        for (int o = 0; o < kOutputs; ++o)
#pragma GCC unroll 8
            for (int r = 0; r < kRuns; ++r)
#pragma GCC unroll 8
                for (int t = 0; t < kTaps; ++t) {
                    float* const to =
                        sums + o * s.output_step + (r * kTaps + t) * kPanelLanes + lane;
                    store(to, s.adds ? load(to) + sum[o][r][t] : sum[o][r][t]);
                }
    }
}

template <int kTaps, int kRuns, int kOutputs>
MEGJIT_INLINE void sum_outputs(const TapStrip& s, int64_t run, float* sums) {
    int64_t output = 0;
    for (; output + kOutputs <= s.outputs; output += kOutputs)
        sum_taps<kTaps, kRuns, kOutputs, true>(s, run, output, sums + output * s.output_step);
    if constexpr (kOutputs > 1)
        for (; output < s.outputs; ++output)
            sum_taps<kTaps, kRuns, 1, true>(s, run, output, sums + output * s.output_step);
}

template <int kTaps, int kRuns>
MEGJIT_INLINE void sum_some(int64_t count, const TapStrip& s, int64_t run, float* sums) {
    if (count == kRuns) {
        if (s.is_depthwise) return sum_taps<kTaps, kRuns, 1, false>(s, run, 0, sums);
        return sum_outputs<kTaps, kRuns, outputs_with(kTaps, kRuns)>(s, run, sums);
    }
    if constexpr (kRuns > 1) sum_some<kTaps, kRuns - 1>(count, s, run, sums);
}

// Takes any number of runs, in tiles of about the same height.
template <int kTaps>
void sum_runs(const TapStrip& s, int64_t count, float* sums) {
    constexpr int kMost = runs_with(kTaps);
    const int64_t tiles = (count + kMost - 1) / kMost;
    for (int64_t tile = 0, run = 0; tile < tiles; ++tile) {
        const int64_t height = count * (tile + 1) / tiles - run;
        sum_some<kTaps, kMost>(height, s, run, sums + run * kTaps * kPanelLanes);
        run += height;
    }
}

// Takes `count` runs of `taps` taps.
void sum_strip(const TapStrip& s, int64_t taps, int64_t count, float* sums) {
    switch (taps) {
        case 7: return sum_runs<7>(s, count, sums);
        case 6: return sum_runs<6>(s, count, sums);
        case 5: return sum_runs<5>(s, count, sums);
        case 4: return sum_runs<4>(s, count, sums);
        case 3: return sum_runs<3>(s, count, sums);
        case 2: return sum_runs<2>(s, count, sums);
        default: return sum_runs<1>(s, count, sums);
    }
}
