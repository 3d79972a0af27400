// backends/halide/emit_gpu.h -- KernelIR to the statement of a GPU kernel, by the same
// instructions, operands and accumulators as on a CPU: a thread is one lane.
#pragma once

#include <Halide.h>

#include "codegen/kernel_ir.h"

namespace megjit::halide_backend {

// The threads of a block: of a kernel of elements they take one each, block after block. With
// reductions, `parts` threads share one row, or each of `columns` neighbours of the last kept axis.
struct Team {
    int columns = 1;  // more than 1 with lanes=kept only
    int parts = 256;  // a power of 2
    int threads() const { return columns * parts; }
};

struct GpuKernel {
    Halide::Internal::Stmt body;
    std::vector<Halide::Internal::DeviceArgument>
        arguments;  // addresses, extents and strides: Parameters::all
};

// The kernel must be sound and free of transcendental instructions.
GpuKernel emit_gpu(const codegen::KernelIR& kernel, Team team);

}  // namespace megjit::halide_backend
