// codegen/scalar_oracle.h -- one scalar instruction on the bits of its operands, by the words of
// runtime/core/scalar.h and nothing else: double precision libm for transcendental functions. It
// shares no code with the eager kernels or with any compiler.
#pragma once

#include "runtime/core/scalar.h"

namespace megjit::codegen {

// `taken`: the type of the first operand (of `select` that of the choices); `gives`: that of the
// result. Values of 32 bits lie in the lower half.
uint64_t evaluate(runtime::ScalarOp op, runtime::ScalarType taken, runtime::ScalarType gives,
                  runtime::DType narrow_to, const uint64_t* operands);
uint64_t widened(runtime::DType dtype, uint64_t stored);  // to the compute type
uint64_t shortened(runtime::DType dtype, uint64_t value);  // to what is stored

}  // namespace megjit::codegen
