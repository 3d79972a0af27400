// codegen/window_kernel.h -- kernels of ops that slide a window over [n, c, spatial...], and of
// lookups, for devices on which only generated code computes them: a place sees elements at fixed
// strides, so that pooling is a reduction and a convolution a contraction. Tensors are row-major,
// and padding must be done beforehand.
#pragma once

#include "codegen/kernel_ir.h"
#include "runtime/ops/conv.h"

namespace megjit::codegen {

// Copies what each place sees: x as [n, c, kernel..., places...].
BoundKernel windows_kernel(const runtime::Type& x, const runtime::Window& window);

// Computes y from x and w. Neighboring columns of the contraction are places along the last axis,
// or along all axes where the kernel is a single element in steps of 1.
BoundKernel conv_kernel(const runtime::ConvProblem& problem);

// Reduces what each place sees by `kind`.
BoundKernel pool_kernel(const runtime::Type& x, const runtime::Window& window, Reduce kind,
                        const runtime::Type& y);

// Looks elements of x up at i32 places (checked, >= 0): the element of the result at an index is
// x's at index * strides + place * step, where the place lies at index * place_strides.
struct Lookup {
    std::vector<int64_t> strides, place_strides;  // indexed by axis of the result
    int64_t step = 0;
};
BoundKernel lookup_kernel(const runtime::Type& result, Lookup lookup);

}  // namespace megjit::codegen
