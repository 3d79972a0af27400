// backends/cpu/vm/vm_kernels.h -- the loops of the element-wise VM: one for each scalar instruction
// and type, and loads and stores that widen and narrow. vm_kernels.inl is compiled once per level
// of levels.h, in a file of its own (backends/cpu/CMakeLists.txt).
#pragma once

#include <bit>
#include <cstdint>

#include "backends/cpu/levels.h"
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

MEGJIT_AT_EACH_LEVEL(VmKernels vm_kernels();)

// The best ones for runtime::isa().
const VmKernels& vm_kernels();

}  // namespace megjit::cpu
