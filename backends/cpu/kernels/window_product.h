// backends/cpu/kernels/window_product.h -- convolution and its gradients in float32 and float64 by
// loops of ours: products whose right factor is gathered from windows while it is copied
// (contraction.h). They serve float64, which oneDNN does not compute, and a build without oneDNN.
#pragma once

#include "backends/cpu/executable.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {

// All operands are row-major and none is empty; steps of the problem are not computed. Only
// gradients of weights may be float32.
Prepared prepare_window_products(const runtime::ConvProblem& problem, runtime::ConvRole role);

}  // namespace megjit::cpu
