// backends/cpu/kernels/grouped_filter_gradient.h -- the gradient of the weights of a depthwise
// convolution, or of one whose groups are narrow. Lanes are channels of x; for each of them, each
// channel of y in its group, and each tap there is a sum of x times y over places.
//
// A panel of 16 channels of x is packed with its padding, so that every tap reads the same copy and
// no border is a case of its own. Factors come from y, one for the lanes of each group. Sums of all
// taps, or of some rows of the kernel, stay in registers for a strip of at most 128 places, strips
// are added in memory. Threads share panels and, where these are few, parts of sums. Strips and
// parts follow from the shapes alone, and so do the bits of the result: they are the same for any
// number of threads.
//
// The figures stand in benchmarks/README.md, "Convolutions of training steps".
#pragma once

#include "backends/cpu/executable.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {

// Does the kernel compute this? It takes float32, several groups, and one or two spatial axes.
bool fits_grouped_filter_gradient(const runtime::ConvProblem& problem);

// Is it also faster than the library? oneDNN has kernels of its own for depthwise windows of up to
// three columns without dilation; for groups it falls back to plain loops, unless a group fills its
// vectors.
bool takes_grouped_filter_gradient(const runtime::ConvProblem& problem);

Prepared prepare_grouped_filter_gradient(const runtime::ConvProblem& problem);

}  // namespace megjit::cpu
