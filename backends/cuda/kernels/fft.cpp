// backends/cuda/kernels/fft.cpp -- Fourier transforms, which the host computes for the GPU.
#include "backends/cuda/kernels/host_round_trip.h"

namespace megjit::cuda {

void register_fft_kernels() {
    for (const char* op : {"fft", "rfft", "irfft"}) register_kernel(op, host_round_trip);
}

}  // namespace megjit::cuda
