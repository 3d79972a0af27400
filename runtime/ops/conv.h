// runtime/ops/conv.h -- a convolution as type rules and kernels see it: the op's attributes are
// read here, once.
#pragma once

#include "runtime/ops/epilogue.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {

// Which of the three tensors y, x and w an op computes.
enum class ConvRole : uint8_t {
    forward,  // y from x and w
    data,  // x from y and w
    filter,  // w from x and y
};

struct ConvProblem {
    Type x, w, y;
    Window window = {};  // the window of w
    int64_t groups = 1;
    std::vector<EpilogueStep> steps = {};  // steps on y; in quantized_conv before it saturates
};

// Describes a call of conv, conv_epilogue, quantized_conv or a gradient, whose results have the
// types `outputs`.
ConvProblem conv_problem(const OpCall& call, std::span<const Type> outputs,
                         ConvRole role = ConvRole::forward);

// The type of sums over all axes but the channels, float32 [1, channels, 1...].
Type sums_by_channel(const Type& of);

// The gradient that a call of conv_backward_data_sums adds up: a call of
// conv_backward_data_epilogue. The other operands are pairs of a tensor and the means of its
// channels.
OpCall gradient_of_sums(const OpCall& call);

// Is it a dense convolution with a 1x1 kernel in steps of 1? Then it is a product of matrices.
bool is_pointwise(const ConvProblem& problem);
// Is it one of float32 whose row-major images have enough pixels for a product with each of them?
bool multiplies_images(const ConvProblem& problem);

// The window of `call` over weights of that type, before the result's type is known.
Window window_over(const OpCall& call, const Type& w);

}  // namespace megjit::runtime
