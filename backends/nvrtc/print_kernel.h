// backends/nvrtc/print_kernel.h -- prints a kernel as CUDA C++. The same text compiles as C++ for
// the host together with tests/backends/cuda_emulation.h, which is how it is tested without a GPU.
#pragma once

#include <string>
#include <string_view>

#include "codegen/gpu_plan.h"

namespace megjit::nvrtc {

// Functions that every kernel may use: loads and stores, conversions, reductions.
std::string_view prelude();

// Prints one function, extern "C" and named `entry`. DeviceError when it has more parameters than a
// launch takes.
std::string print_kernel(const codegen::KernelIR& kernel, const codegen::GpuPlan& plan,
                         std::string_view entry);

}  // namespace megjit::nvrtc
