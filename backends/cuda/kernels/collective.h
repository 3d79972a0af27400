// backends/cuda/kernels/collective.h -- which collective operations NCCL computes.
#pragma once

#include <string_view>

#include "runtime/core/dtype.h"

namespace megjit::cuda {

// Does NCCL exchange tensors of this dtype? The others go through the host.
bool exchanged_by_nccl(std::string_view op, runtime::DType dtype);

}  // namespace megjit::cuda
