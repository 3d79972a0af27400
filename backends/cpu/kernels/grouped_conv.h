// backends/cpu/kernels/grouped_conv.h -- a depthwise convolution in steps of 1, or one whose groups
// are narrow, and the gradient of its data, which is such a convolution with its taps in reverse
// order. Lanes are channels of the result.
//
// A panel of 16 channels is packed with its padding. Sums of up to 14 neighbors of a row stay in
// registers until all taps and all channels of the group are added, one after the other, so the
// bits are the same for any number of threads.
//
// The figures stand in benchmarks/README.md, "Convolutions of training steps".
#pragma once

#include "backends/cpu/executable.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {

// Does the kernel compute this (float32, several groups, one or two spatial axes), and faster than
// others do? Depthwise kernels of oneDNN and of dense_conv.h reach the bandwidth of the caches with
// 3x3 taps, but oneDNN's only for results and without dilation for data; for narrow groups it falls
// back to plain loops.
bool takes_grouped_conv(const runtime::ConvProblem& problem, runtime::ConvRole role);

// The role is forward or data.
Prepared prepare_grouped_conv(const runtime::ConvProblem& problem, runtime::ConvRole role);

}  // namespace megjit::cpu
