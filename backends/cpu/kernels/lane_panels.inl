// backends/cpu/kernels/lane_panels.inl -- packs planes of channels, one for each lane: see
// conv_panels.h. Included by each_isa.h, behind conv_panels.inl.

// Packs pixels [count][kPanelLanes] of channels that follow each other. fetches: those behind them
// are packed next, and come from memory in time if they are asked for now.
template <bool fetches>
MEGJIT_INLINE void pack_neighbors(const float* from, int64_t step, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i, from += step, to += kPanelLanes) {
        if (fetches) __builtin_prefetch(from + kPanelLanes, 0, 2);
        for (int64_t lane = 0; lane < kPanelLanes; lane += kLanes)
            store(to + lane, load(from + lane));
    }
}

// Packs rows of the grid of some channels of an image, as [rows][columns][channels.floats()].
void pack_plane(const ConvOperand& o, const float* data, int64_t image,
                const ChannelRange& channels, Range rows, int64_t columns, float* to) {
    const int64_t panel = channels.floats();
    const PixelSteps steps = o.steps();
    const bool is_whole = steps.channel == 1 && channels.count == kPanelLanes,
               fetches = o.is_large();
    const auto zeros = [panel](float* to, int64_t points) __attribute__((always_inline)) {
        for (int64_t i = 0; i < points * panel; i += kLanes) store(to + i, Floats{});
    };
    for (int64_t row = rows.begin; row < rows.end; ++row, to += columns * panel) {
        const GridRow at = o.grid_row(row, columns);
        zeros(to, at.before);
        float* const pixels = to + at.before * panel;
        if (at.count > 0) {
            const float* const from = o.pixel(data, image, at.row, at.column, channels.first);
            if (is_whole && fetches) pack_neighbors<true>(from, steps.pixel, at.count, pixels);
            else if (is_whole) pack_neighbors<false>(from, steps.pixel, at.count, pixels);
            else pack_pixels(steps, from, at.count, channels.count, panel, pixels);
        }
        zeros(pixels + at.count * panel, columns - at.before - at.count);
    }
}

// Where the lanes of a vector find their factors: a lane each of a pixel's vector at `offset`.
struct Factor {
    Ints lane;
    int64_t offset = 0;
};
// Returns the factor of the lanes from `first` on, for a channel of their groups. is_spread: groups
// have several channels.
template <bool is_spread>
MEGJIT_INLINE Factor factor_of(const LaneChannels& lanes, int64_t first, int64_t channel) {
    if (!is_spread) return {Ints{}, first};
    Factor f;
    std::memcpy(&f.lane, lanes.data() + first, sizeof f.lane);
    f.offset = f.lane[0] + channel / kLanes * kLanes;
    f.lane += static_cast<int32_t>(channel % kLanes) - f.lane[0];
    return f;
}
