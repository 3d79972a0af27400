// backends/cpu/vm/vm_kernels.h -- the loops of the element-wise VM: one for each scalar instruction
// and type, and loads and stores that widen and narrow. Compiled once for each instruction set
// (vm_kernels_avx2.cpp and vm_kernels_avx512.cpp from vm_kernels.inl: their intrinsics need files
// of their own), chosen by runtime::isa().
#pragma once

#include <bit>
#include <cstdint>

#include "runtime/core/scalar.h"

namespace megjit::cpu {

using runtime::DType;
using runtime::ScalarOp;
using runtime::ScalarType;

// Values are 32 bits wide (f32, i32, or b1 as 0 and -1) or 64 (f64 and i64). `out` may be one of
// the operands of its width.
using StepFn = void (*)(void* out, const void* a, const void* b, const void* c, int64_t n);
using LoadFn = void (*)(void* out, const void* from, int64_t stride,
                        int64_t n);  // stride in elements
using StoreFn = void (*)(void* to, const void* values, int64_t n);

struct VmKernels {
    // `taken` is the type of the first operand, `gives` the type of the result. Null for
    // instructions without a loop: inputs, constants and narrow.
    StepFn (*step)(ScalarOp op, ScalarType taken, ScalarType gives) = nullptr;
    StepFn (*narrow)(DType dtype) = nullptr;
    LoadFn (*load)(DType dtype) = nullptr;
    StoreFn (*store)(DType dtype) = nullptr;
};

namespace avx2 {
VmKernels vm_kernels();
}
namespace avx512 {
VmKernels vm_kernels();
}

// The best ones for runtime::isa().
const VmKernels& vm_kernels();

}  // namespace megjit::cpu
