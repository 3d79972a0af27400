// backends/cpu/kernels/dense_conv.inl -- sums of pixels in registers: see dense_conv.h. Included by
// each_isa.h.

#include "backends/cpu/kernels/conv_panels.inl"

constexpr int kMostVectors = kHasManyRegisters ? 4 : 2;  // of a panel
// Weights of a chunk, which stays in the first-level cache.
constexpr int64_t kChunkFloats = 128 * 64;

// Pixels of a tile: their sums, a row of weights and a factor fill the registers. One vector of
// sums a pixel would wait for itself, if there were no more pixels.
constexpr int pixels_with(int vectors) { return vectors == 1 ? 12 : 6; }

// Adds the products of a chunk to the sums of kPixels pixels, or begins them.
template <bool is_depthwise, int kVectors, int kPixels>
MEGJIT_INLINE void sum_tile(const ConvTiles& t, const float* const (&x)[kPixels],
                            float* const (&to)[kPixels]) {
    Floats sum[kPixels][kVectors] = {};  // kept in registers, for loops over pixels are unrolled
    if (t.adds) {
#pragma GCC unroll 12
        for (int p = 0; p < kPixels; ++p)
            for (int v = 0; v < kVectors; ++v) sum[p][v] = load(to[p] + v * kLanes);
    }
    const float* w = t.w;
    for (int64_t run = 0; run < t.run_count; ++run) {
        const int64_t step = is_depthwise ? t.panel : 1,
                      end = t.runs[run].offset + t.runs[run].count * step;
        for (int64_t i = t.runs[run].offset; i < end; i += step, w += t.panel) {
            Floats weight[kVectors];
            for (int v = 0; v < kVectors; ++v) weight[v] = load(w + v * kLanes);
#pragma GCC unroll 12
            for (int p = 0; p < kPixels; ++p) {
                const Floats one = is_depthwise ? Floats{} : all(x[p][i]);
                for (int v = 0; v < kVectors; ++v)
                    sum[p][v] += (is_depthwise ? load(x[p] + i + v * kLanes) : one) * weight[v];
            }
        }
    }
#pragma GCC unroll 12
    for (int p = 0; p < kPixels; ++p)
        for (int v = 0; v < kVectors; ++v) store(to[p] + v * kLanes, sum[p][v]);
}

// The last tile repeats the last pixel. Sums that are begun come from memory: those of the next
// tile are asked for ahead.
template <bool is_depthwise, int kVectors>
void sum_tiles(const ConvTiles& t) {
    constexpr int kPixels = pixels_with(kVectors);
    const float* x[kPixels];
    float* to[kPixels];
    for (int64_t first = 0; first < t.count; first += kPixels) {
        for (int p = 0; p < kPixels; ++p) {
            const ConvPlace& place = t.places[std::min(first + p, t.count - 1)];
            x[p] = t.x + place.from;
            to[p] = t.to + place.to * t.to_step;
        }
        for (int p = 0; p < kPixels && !t.adds; ++p) {
            const ConvPlace& next = t.places[std::min(first + kPixels + p, t.count - 1)];
            for (int v = 0; v < kVectors; ++v)
                __builtin_prefetch(t.to + next.to * t.to_step + v * kLanes, 1);
        }
        sum_tile<is_depthwise, kVectors, kPixels>(t, x, to);
    }
}

template <bool is_depthwise>
MEGJIT_INLINE void sum_vectors(const ConvTiles& t, int64_t vectors) {
    if constexpr (kMostVectors == 4) {
        if (vectors == 4) return sum_tiles<is_depthwise, 4>(t);
        if (vectors == 3) return sum_tiles<is_depthwise, 3>(t);
    }
    if (vectors == 2) return sum_tiles<is_depthwise, 2>(t);
    sum_tiles<is_depthwise, 1>(t);
}

// Computes tiles of a panel of so many vectors.
void sum_panel(const ConvTiles& t, int64_t vectors) {
    if (t.is_depthwise) sum_vectors<true>(t, vectors);
    else sum_vectors<false>(t, vectors);
}

// Packs weights [lanes][numbers], whose rows lie `step` apart, as [numbers][panel]; lanes that
// there are not become zeros.
void pack_lanes(const float* from, int64_t step, int64_t numbers, int64_t lanes, int64_t panel,
                float* to) {
    transpose_words(reinterpret_cast<const uint32_t*>(from), step, reinterpret_cast<uint32_t*>(to),
                    panel, numbers, lanes);
    for (int64_t i = 0; i < numbers && lanes < panel; ++i)
        std::fill(to + i * panel + lanes, to + (i + 1) * panel, 0.0f);
}

// Copies sums [count][panel] to pixels of the result.
void unpack_pixels(const float* from, int64_t panel, int64_t count, int64_t channels,
                   const PixelSteps& steps, float* to) {
    if (steps.channel != 1)
        return transpose_words(reinterpret_cast<const uint32_t*>(from), panel,
                               reinterpret_cast<uint32_t*>(to), steps.channel, channels, count);
    for (int64_t i = 0; i < count; ++i, from += panel, to += steps.pixel)
        over_lanes(channels, MEGJIT_LANES(V, c) { put(to + c, get<V>(from + c)); });
}
