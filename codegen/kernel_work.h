// codegen/kernel_work.h -- what a launch of a generated kernel asks of a GPU, counted from the
// kernel and its numbers: for models of time, where no card can be asked.
#pragma once

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

struct KernelWork {
    double bytes = 0;  // read from memory and written to it
    double flops = 0;  // flops of tiles' products; other arithmetic is instructions
    double instructions = 0;  // scalar instructions of the legal code, over all elements and rows
    bool halves = false;  // tensor cores multiply
    double instructions_of_element = 0;  // instructions for each element of the iteration space
};

// When a row is walked again, its elements come from the GPU's cache (of `cache_bytes`) if all rows
// that are walked at once fit into it; else from memory.
KernelWork work_of(const KernelIR& kernel, const LaunchShape& launch, runtime::CodeTarget target,
                   double cache_bytes);

}  // namespace megjit::codegen
