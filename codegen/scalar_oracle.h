// codegen/scalar_oracle.h -- one scalar instruction on the bits of its operands, by the words of
// runtime/core/scalar.h and nothing else: double precision libm for transcendental functions. It
// shares no code with the eager kernels or with any compiler.
#pragma once

#include "runtime/core/scalar.h"

namespace megjit::codegen {

// `taken`: the type of the first operand (of `select` that of the choices).
uint32_t evaluate(runtime::ScalarOp op, runtime::ScalarType taken, runtime::DType narrow_to,
                  const uint32_t* operands);
uint32_t widened(runtime::DType dtype, uint32_t stored);  // to the compute type
uint32_t shortened(runtime::DType dtype, uint32_t value);  // to what is stored

}  // namespace megjit::codegen
