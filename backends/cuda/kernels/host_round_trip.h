// backends/cuda/kernels/host_round_trip.h -- ops that the host computes for a GPU, between the
// other work of the stream, as they are small and sequential.
#pragma once

#include "backends/cuda/kernels/executables.h"

namespace megjit::cuda {

// Operands are copied to pinned memory, and results back from it; the caller does not wait.
Prepared host_round_trip(CudaDevice& device, const OpCall& call, std::span<const Type> outputs);

}  // namespace megjit::cuda
