// backends/nvrtc/ -- kernels for NVIDIA GPUs: CUDA C++ as text, compiled in the process by NVRTC.
// In: an expanded KernelIR and a launch. Out: a GpuImage that serves every launch of the same plan.
// Needs no CUDA to build: NVRTC is opened at run time. Knows no driver.
//
// backends/nvrtc/plan.h -- all that the text takes from the numbers of a launch.
#pragma once

#include <string>

#include "codegen/gpu_image.h"

namespace megjit::nvrtc {

struct Plan {
    codegen::Cover cover = codegen::Cover::elements;
    bool wide = false;  // indices need 64 bits
    int vector = 1;     // neighbours on the lane axis that one thread loads and stores together
    int threads = 256;  // of a block
    int team = 1;       // threads that share a row: of reductions a warp, a block, or one of each 32 in a block
    int parts = 1;      // blocks that share a row: of reductions that fill no GPU otherwise
    int slots() const { return threads / team; }  // rows of a block
};

Plan plan_of(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch);
std::string print(const Plan& plan);  // "rows team=256/256 parts=8 i32 x4"

// Operands are numbered as strides are: inputs, then outputs.
const codegen::Operand& operand(const codegen::KernelIR& kernel, size_t at);
bool is_output(const codegen::KernelIR& kernel, size_t at);
// Do neighbours on the lane axis lie side by side, so that they may be loaded or stored together?
bool is_packed(const codegen::KernelIR& kernel, size_t at);

}  // namespace megjit::nvrtc
