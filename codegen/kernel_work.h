// codegen/kernel_work.h -- what a launch of a generated kernel asks of a GPU, counted from the
// kernel and its numbers: for models of time, where there is no card to ask.
#pragma once

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

struct KernelWork {
    double bytes = 0;  // read from memory and written to it
    double flops = 0;  // of products that tiles compute; other arithmetic is instructions
    double instructions = 0;  // scalar ones of the legal code, of all elements and rows
    bool halves = false;  // tensor cores multiply
    double instructions_of_element = 0;  // of each element of the iteration space
};

// What one walk over a row has read is read again from the GPU's cache (of `cache_bytes`) by the
// next, where all rows that are walked at once fit; else from memory.
KernelWork work_of(const KernelIR& kernel, const LaunchShape& launch, runtime::CodeTarget target,
                   double cache_bytes);

}  // namespace megjit::codegen
