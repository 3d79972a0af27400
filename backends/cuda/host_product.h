// backends/cuda/host_product.h -- on an emulated card: what NVIDIA's libraries would compute is
// computed by the host's kernels, between the kernels of the stream.
#pragma once

#include "backends/cuda/gpu.h"
#include "runtime/device.h"

namespace megjit::cuda {

std::shared_ptr<const runtime::Executable> host_product(Gpu& gpu, const runtime::OpCall& call,
                                                        std::span<const runtime::Type> outputs);

}  // namespace megjit::cuda
