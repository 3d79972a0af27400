// codegen/window_kernel.h -- kernels of ops that slide a window over [n, c, spatial...], and of
// lookups, for where nothing but generated code computes them: what a place sees lies at strides,
// so that pooling is a reduction and a convolution a contraction. Tensors are row-major, and what a
// window pads is padded already.
#pragma once

#include "codegen/kernel_ir.h"
#include "runtime/ops/conv.h"

namespace megjit::codegen {

// What each place sees, copied: x as [n, c, kernel..., places...].
BoundKernel windows_kernel(const runtime::Type& x, const runtime::Window& window);

// y of x and w. Neighboring columns of the contraction are places along the last axis, along all of
// them where the kernel is a single element in steps of 1.
BoundKernel conv_kernel(const runtime::ConvProblem& problem);

// `kind` of what each place sees.
BoundKernel pool_kernel(const runtime::Type& x, const runtime::Window& window, Reduce kind,
                        const runtime::Type& y);

// Looks elements of x up at i32 places (checked, >= 0): the element of the result at an index is
// x's at index * strides + place * step, where the place lies at index * place_strides.
struct Lookup {
    std::vector<int64_t> strides, place_strides;  // by axis of the result
    int64_t step = 0;
};
BoundKernel lookup_kernel(const runtime::Type& result, Lookup lookup);

}  // namespace megjit::codegen
