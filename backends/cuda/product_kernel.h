// backends/cuda/product_kernel.h -- ops that NVIDIA's libraries compute, as executables.
#pragma once

#include <string>

#include "backends/cuda/gpu.h"
#include "runtime/device.h"

namespace megjit::cuda {

// Null, with the reason, where no library serves the op. On an emulated card the library plans, and
// the host's kernels compute, between the kernels of the stream; there they also serve ops that
// nothing else does.
std::shared_ptr<const runtime::Executable> product_kernel(Gpu& gpu, const runtime::OpCall& call,
                                                          std::span<const runtime::Type> outputs,
                                                          std::string* why_not);

}  // namespace megjit::cuda
