// backends/cuda/generated_kernel.h -- launches of a generated kernel.
#pragma once

#include "backends/cuda/gpu.h"
#include "codegen/kernel_ir.h"
#include "runtime/core/device.h"

namespace megjit::cuda {

// One kernel over several spaces; the kernel service has an image for each, or makes it. Without
// `runs` the executable only answers what it needs.
std::shared_ptr<const runtime::Executable> generated_kernel(
    Gpu& gpu, const codegen::KernelIR& kernel, std::vector<codegen::LaunchShape> launches,
    bool runs);

}  // namespace megjit::cuda
