// backends/cuda/kernels/host_round_trip.h -- ops that the host computes for a GPU, between the
// other work of the stream: what is small and sequential.
#pragma once

#include "backends/cuda/kernels/executables.h"

namespace megjit::cuda {

// Operands come to pinned memory, and results go back from there; the caller does not wait.
Prepared host_round_trip(CudaDevice& device, const OpCall& call, std::span<const Type> outputs);

}  // namespace megjit::cuda
