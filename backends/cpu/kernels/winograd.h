// backends/cpu/kernels/winograd.h -- 3x3 convolution in steps of 1 by Winograd's F(2x2, 3x3): tiles
// of 4x4 inputs give 2x2 results through 16 products of channels, where the direct sum takes 36.
// Lavin & Gray 2016, "Fast algorithms for convolutional neural networks". Activations are
// channels-last; weights are transformed when they are packed.
//
// Rounding is no worse than that of the direct sum (docs/numerics.md); an infinity becomes NaN.
//
// Time relative to oneDNN's direct sum, for ResNets at batch 1 on two cores of a Zen 5: 64 channels
// at 56 x 56 0.56, 128 at 28 x 28 0.54, 256 at 14 x 14 0.64, and 512 at 7 x 7 0.88, where weights
// come from memory and are 16 / 9 as many.
#pragma once

#include <cstdint>

#include "backends/cpu/executable.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {

struct WinogradShape {
    static constexpr int64_t kPanel = 64;  // output channels that are computed together

    int64_t images = 1, height = 0, width = 0, in_channels = 0;
    int64_t out_height = 0, out_width = 0, out_channels = 0;
    int64_t padding[2] = {0, 0};
    int64_t tile_rows = 0, tile_columns = 0;

    int64_t tiles() const { return images * tile_rows * tile_columns; }
    int64_t panels() const { return out_channels / kPanel; }
};

struct WinogradEpilogue {
    const float* bias = nullptr;  // one number for each channel
    const float* addend = nullptr;  // has the result's shape and layout
    bool rectifies = false;
};

// Is the convolution one of float32 that Winograd computes faster on this CPU?
bool suits_winograd(const runtime::ConvProblem& problem);
// Can Winograd compute it at all?
bool takes_winograd(const runtime::ConvProblem& problem);

// For weights [oc, ic, 3, 3]: room for the transformed ones, and after them the original ones.
size_t winograd_bytes(const runtime::Type& weights);
void pack_winograd(const runtime::Type& weights, const float* from, float* to);
void unpack_winograd(const runtime::Type& weights, const float* from, float* to);

// The weights must be packed.
Prepared prepare_winograd(const runtime::ConvProblem& problem);

}  // namespace megjit::cpu
