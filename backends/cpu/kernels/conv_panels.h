// backends/cpu/kernels/conv_panels.h -- how kernels of convolutions read x and y: as panels of
// channels over a grid of pixels that includes the padding. Each kernel packs what it needs
// (conv_panels.inl).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/host/parallel.h"
#include "runtime/ops/window.h"

namespace megjit::cpu {

inline int64_t parts_of(int64_t n, int64_t part) { return (n + part - 1) / part; }
// The size of equal parts of at most `most`.
inline int64_t even_part(int64_t n, int64_t most) { return parts_of(n, parts_of(n, most)); }
inline int64_t aligned_floats(int64_t n) { return parts_of(n, 16) * 16; }

// A range of indexes.
struct Range {
    int64_t begin = 0, end = 0;
};
// The index-th of `count` equal ranges of [0, n).
inline Range share_of(int64_t n, int64_t index, int64_t count) {
    return {n * index / count, n * (index + 1) / count};
}

// How many threads so many products are worth.
inline int64_t threads_for(int64_t products) {
    constexpr int64_t kProducts = 1 << 19;  // of a thread
    return std::clamp<int64_t>(products / kProducts, 1, runtime::thread_count());
}

// Elements from one pixel to the next, and from one channel to the next.
struct PixelSteps {
    int64_t pixel = 1, channel = 1;
};

// A row of a grid: points of padding, `count` pixels from (row, column) on, and padding again.
struct GridRow {
    int64_t row = 0, column = 0, before = 0, count = 0;
};

// A window of one or two axes, as one of two. (A window of three axes is one pixel.)
struct WindowTaps {
    explicit WindowTaps(const runtime::Window& window) : dims(window.dims) {
        for (int i = 0; i < dims; ++i)
            kernel[axis(i)] = window.kernel[i], dilation[axis(i)] = window.dilation[i];
        run_taps = dilation[1] == 1 ? kernel[1] : 1;
    }
    int axis(int i) const { return std::max(0, 2 - dims + i); }
    int64_t count() const { return kernel[0] * kernel[1]; }
    int64_t runs() const { return count() / run_taps; }
    bool is_dilated() const {
        return (kernel[0] > 1 && dilation[0] > 1) || (kernel[1] > 1 && dilation[1] > 1);
    }
    // Cuts longer runs into equal ones.
    void cut_runs(int64_t most) {
        run_taps = std::min(run_taps, most);
        while (kernel[1] % run_taps) --run_taps;
    }
    // Grid points from the first tap to the first one of a run, in a grid of that many columns.
    int64_t run_at(int64_t run, int64_t columns) const {
        const int64_t row_runs = kernel[1] / run_taps;
        return run / row_runs * dilation[0] * columns + run % row_runs * run_taps * dilation[1];
    }

    int dims = 0;
    int64_t kernel[2] = {1, 1}, dilation[2] = {1, 1};
    // The taps of a kernel's row are neighbors in packed x, unless it is dilated: they make a run.
    int64_t run_taps = 1;
};

// x or y: how it lies in memory, and which of its pixels a grid has. The grid includes the padding
// and leaves out what a 1x1 kernel steps over.
struct ConvOperand {
    explicit ConvOperand(const runtime::Type& type)
        : channels(type.shape[1]), is_planar(type.layout == runtime::Layout::row_major) {
        for (int axis = 2; axis < type.rank(); ++axis)
            (axis + 1 < type.rank() ? extent[0] : extent[1]) *= type.shape[axis];
    }
    // Makes the grid that of x under the window.
    void set_window(const runtime::Window& window) {
        const WindowTaps taps(window);
        for (int i = 0; i < window.dims; ++i) {
            const int axis = taps.axis(i);
            padding[axis] = window.padding[i];
            (window.kernel[i] == 1 ? step : stride)[axis] = window.stride[i];
            reach[axis] = (window.kernel[i] - 1) * window.dilation[i];
        }
    }

    int64_t channels = 0, extent[2] = {1, 1};
    bool is_planar = false;
    int64_t step[2] = {1, 1}, padding[2] = {};  // grid point i is pixel i * step - padding
    int64_t stride[2] = {1, 1}, reach[2] = {};  // of the window, in grid points

    int64_t grid(int axis, int64_t places) const {
        return (places - 1) * stride[axis] + reach[axis] + 1;
    }
    // The grid's row, of that many columns.
    GridRow grid_row(int64_t index, int64_t columns) const {
        GridRow at{.row = index * step[0] - padding[0], .before = columns};
        if (at.row >= 0 && at.row < extent[0])
            at.before = std::min(parts_of(padding[1], step[1]), columns);
        at.column = at.before * step[1] - padding[1];
        at.count =
            std::clamp<int64_t>(parts_of(extent[1] - at.column, step[1]), 0, columns - at.before);
        return at;
    }
    const float* pixel(const float* data, int64_t image, int64_t row, int64_t column,
                       int64_t channel) const {
        const int64_t pixels = extent[0] * extent[1], at = row * extent[1] + column;
        return data + (is_planar ? (image * channels + channel) * pixels + at
                                 : (image * pixels + at) * channels + channel);
    }
    // Does an image leave the second-level cache before all of its channels are packed?
    bool is_large() const { return image() > 1 << 18; }
    int64_t image() const { return extent[0] * extent[1] * channels; }  // in floats
    PixelSteps steps() const {
        return is_planar ? PixelSteps{step[1], extent[0] * extent[1]}
                         : PixelSteps{step[1] * channels, 1};
    }
};

// Channels of panels whose lanes are channels: those of a cache line, at AVX2, too.
inline constexpr int64_t kPanelLanes = 16;
// The channel that each lane reads.
using LaneChannels = std::array<int32_t, kPanelLanes>;
// Channels that are packed together.
struct ChannelRange {
    int64_t first = 0, count = 0;
    int64_t floats() const { return parts_of(count, kPanelLanes) * kPanelLanes; }  // of a pixel
};

// How many channels each group of x has, and of y, or the other way round: the lanes are channels
// of `lanes`, and read those of `others`.
struct LaneGroups {
    int64_t channels = 1;  // of all groups of the lanes' operand
    int64_t lanes = 1, others = 1;

    int64_t panels() const { return parts_of(channels, kPanelLanes); }
    ChannelRange lanes_of(int64_t panel) const {
        const int64_t first = panel * kPanelLanes;
        return {first, std::min(kPanelLanes, channels - first)};
    }
    // The other operand's channels of the panel's groups.
    ChannelRange others_of(int64_t panel) const {
        const ChannelRange in = lanes_of(panel);
        const int64_t group = in.first / lanes, last = (in.first + in.count - 1) / lanes;
        return {group * others, (last + 1 - group) * others};
    }
    // The first of them in the group of each lane.
    LaneChannels firsts_of(int64_t panel) const {
        const ChannelRange in = lanes_of(panel);
        LaneChannels firsts;
        for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
            const int64_t group = (in.first + std::min(lane, in.count - 1)) / lanes;
            firsts[static_cast<size_t>(lane)] =
                static_cast<int32_t>((group - in.first / lanes) * others);
        }
        return firsts;
    }
    bool is_depthwise() const { return lanes == 1 && others == 1; }
    // Does a vector of the other operand hold the channels of each vector of lanes?
    bool fit_vectors() const {
        return (kPanelLanes % lanes == 0 || lanes % kPanelLanes == 0) && others <= lanes;
    }
};

// Sums that lie `step` elements apart and are added in turn.
struct PartialSums {
    int64_t count = 1, step = 0;
};

}  // namespace megjit::cpu
