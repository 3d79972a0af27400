// backends/cpu/kernels/filter_gradient.h -- the gradient of a convolution's weights. For each tap
// it is a product of matrices, w [oc, ic] = sum over places of y [oc] x [ic], and its sums are as
// long as there are places.
//
// Blocks of images or rows are packed by panels of channels, so that all taps read the same copy of
// x; nothing is copied for each tap. Products of a strip of places are added in registers, strips
// are added in memory. Small gradients are sums of parts, each of which one thread computes
// alone; threads share the panels of large ones. Strips, blocks and parts follow from the shapes
// alone, and so do the bits of the result: they are the same for any number of threads.
//
// The figures stand in benchmarks/README.md, "Convolutions of training steps".
#pragma once

#include "backends/cpu/executable.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {

// Can this kernel compute the gradient of the weights? It takes float32, one group, and one or two
// spatial axes (or a 1x1 kernel in steps of 1).
bool takes_filter_gradient(const runtime::ConvProblem& problem);

Prepared prepare_filter_gradient(const runtime::ConvProblem& problem);

}  // namespace megjit::cpu
