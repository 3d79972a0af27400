// backends/cpu/kernels/conv_panels.inl -- packs panels of channels: see conv_panels.h. Included by
// each_isa.h.

#include "backends/cpu/kernels/transposed_words.inl"

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
