// backends/cpu/kernels/dense_conv.h -- a convolution and the gradient of its data, for any window,
// stride and number of groups, over activations of any layout.
//
// Each result is a sum over taps and channels. Vectors hold channels of the result, and factors are
// single numbers of x: a tile is a few pixels times a panel of channels, whose sums stay in
// registers. A part of the weights stays in the first-level cache while all pixels of a block add
// its products.
//
// Channels-last images without padding are read in place. Others are packed once for each block,
// with their padding, so that a run of taps along a row reads one run of numbers (seven taps of
// three channels are 21 terms). No window is copied.
//
// The gradient of the data is a convolution over the gradient of the result. With strides it is
// several ones: pixels that lie a stride apart meet the same taps, which make a phase.
//
// Each result is one chain of fused products in an order that follows from the window alone: the
// same bits for any number of threads, at every level.
#pragma once

#include "backends/cpu/executable.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {

// Takes float32 and weights in row-major order. Steps of the problem are not computed, and no
// operand is empty.
Prepared prepare_dense_conv(const runtime::ConvProblem& problem, runtime::ConvRole role);

}  // namespace megjit::cpu
