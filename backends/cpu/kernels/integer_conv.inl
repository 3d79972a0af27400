// backends/cpu/kernels/integer_conv.inl -- patches, products and results of integer_conv.cpp. See
// each_isa.h.

#include "backends/cpu/kernels/integer_panel.inl"

// Writes elements [begin, end) of the patch of one place, in order of taps and then channels; 0
// outside of the image.
template <class T>
MEGJIT_INLINE void fill_patch(const IntegerConv& s, const T* x, int64_t group, const Place& place,
                              int64_t begin, int64_t end, int16_t* to) {
    for (int64_t k = begin; k < end;) {
        const int64_t tap = k / s.ic, channel = k % s.ic, run = std::min(s.ic - channel, end - k);
        const int64_t at = s.pixel_of(place, tap);
        if (at < 0) {
            for (int64_t i = 0; i < run; ++i) to[i] = 0;
        } else {
            const T* const from = x + at * s.groups * s.ic + group * s.ic + channel;
            for (int64_t i = 0; i < run; ++i) to[i] = from[i];
        }
        to += run, k += run;
    }
    if ((end - begin) % 2) *to = 0;
}

// Writes acc * scale + bias for n channels of one place, rounded to even and saturated.
template <class R>
MEGJIT_INLINE void finish(const IntegerConv& s, const int32_t* sums, const float* scale,
                          const float* bias, int64_t first, int64_t n, R* to) {
    for (int64_t c = 0; c < n; c += kLanes) {
        const int64_t count = std::min<int64_t>(kLanes, n - c);
        Ints acc;
        std::memcpy(&acc, sums + c, sizeof acc);
        Floats factors, addends{};
        std::memcpy(&addends, bias + first + c, static_cast<size_t>(count) * sizeof(float));
        if (s.one_scale) factors = all(scale[0]);
        else
            factors = Floats{},
            std::memcpy(&factors, scale + first + c, static_cast<size_t>(count) * sizeof(float));
        Floats value = __builtin_convertvector(acc, Floats) * factors;
        value += addends;
        if (s.rectifies) value = value > Floats{} ? value : Floats{};
        if constexpr (std::is_same_v<R, float>) {
            std::memcpy(to + c, &value, static_cast<size_t>(count) * sizeof(float));
        } else {
            const Floats highest = all(std::numeric_limits<R>::max()),
                         lowest = all(std::numeric_limits<R>::min());
            value = value < highest ? value : highest;
            value = value > lowest ? value : lowest;
            const Floats shifted = value + 12582912.0f;  // 1.5 * 2^23 rounds to even
            int32_t bits[kLanes];
            std::memcpy(bits, &shifted, sizeof bits);
            for (int64_t i = 0; i < count; ++i) to[c + i] = static_cast<R>(bits[i] - 0x4B400000);
        }
    }
}

// Computes places [lo, lo + rows) and panels [first, last) of a group.
template <class T, class R>
void compute_tile(const IntegerConv& s, const IntegerRun& run, int64_t group, int64_t lo,
                  int64_t rows, int64_t first, int64_t last) {
    constexpr int64_t kMostSums = IntegerConv::kTileRows * IntegerConv::kTileChannels;
    alignas(64) int16_t patches[IntegerConv::kTileRows * IntegerConv::kTileDepth];
    alignas(64) int32_t sums[kMostSums];
    const int64_t channels = (last - first) * kPanel, panels = (s.oc + kPanel - 1) / kPanel;
    std::fill_n(sums, rows * channels, 0);
    for (int64_t begin = 0; begin < s.depth(); begin += IntegerConv::kTileDepth) {
        const int64_t end = std::min(s.depth(), begin + IntegerConv::kTileDepth),
                      pairs = (end - begin + 1) / 2;
        for (int64_t r = 0; r < rows; ++r)
            fill_patch(s, static_cast<const T*>(run.x), group, s.place(lo + r), begin, end,
                       patches + r * 2 * pairs);
        for (int64_t panel = first; panel < last; ++panel) {
            const int16_t* const weights =
                run.weights + ((group * panels + panel) * s.pairs() + begin / 2) * kPanel * 2;
            multiply_panel<PairsOf16>(rows, patches, pairs, weights, pairs,
                                      sums + (panel - first) * kPanel, channels);
        }
    }
    const int64_t from = group * s.oc + first * kPanel,
                  count = std::min(s.oc - first * kPanel, channels);
    for (int64_t r = 0; r < rows; ++r)
        finish(s, sums + r * channels, run.scale, run.bias, from, count,
               static_cast<R*>(run.y) + (lo + r) * s.groups * s.oc + from);
}

// For one channel in and one out in each group: lanes go along the groups; weights are
// [taps][groups].
template <class T, class R>
void compute_depthwise(const IntegerConv& s, const IntegerRun& run, int64_t lo, int64_t rows) {
    constexpr int64_t kStrip = IntegerConv::kTileChannels;
    for (int64_t r = lo; r < lo + rows; ++r) {
        const Place place = s.place(r);
        for (int64_t first = 0; first < s.groups; first += kStrip) {
            const int64_t n = std::min(kStrip, s.groups - first);
            alignas(64) int32_t sums[kStrip] = {};
            for (int64_t tap = 0; tap < s.taps(); ++tap) {
                const int64_t at = s.pixel_of(place, tap);
                if (at < 0) continue;
                const T* const x = static_cast<const T*>(run.x) + at * s.groups + first;
                const int16_t* const w = run.weights + tap * s.groups + first;
                for (int64_t c = 0; c < n; ++c) sums[c] += int32_t{x[c]} * int32_t{w[c]};
            }
            finish(s, sums, run.scale, run.bias, first, n,
                   static_cast<R*>(run.y) + r * s.groups + first);
        }
    }
}
