// backends/cuda/product_kernel.h -- ops that NVIDIA's libraries compute, as executables.
#pragma once

#include <string>

#include "backends/cuda/cuda_device.h"

namespace megjit::cuda {

// Is there a library that plans the op?
bool plans_product(const CudaDevice& device, const runtime::OpCall& call,
                   std::span<const runtime::Type> outputs);

// Follows runtime/host/product_rules.h. Null, with the reason, where no library serves the op.
std::shared_ptr<const runtime::Executable> product_kernel(CudaDevice& device,
                                                          const runtime::OpCall& call,
                                                          std::span<const runtime::Type> outputs,
                                                          std::string* why_not);

}  // namespace megjit::cuda
