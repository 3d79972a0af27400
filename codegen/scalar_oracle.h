// codegen/scalar_oracle.h -- evaluates one scalar instruction on the bits of its operands,
// following the text of runtime/core/scalar.h and nothing else: double precision libm for
// transcendental functions. It shares no code with the eager kernels or with any compiler.
#pragma once

#include "runtime/core/scalar.h"

namespace megjit::codegen {

// `taken` is the type of the first operand (for `select` of the choices); `gives` is the type of
// the result. Values of 32 bits are in the lower half.
uint64_t evaluate(runtime::ScalarOp op, runtime::ScalarType taken, runtime::ScalarType gives,
                  runtime::DType narrow_to, const uint64_t* operands);
uint64_t widened(runtime::DType dtype, uint64_t stored);  // a stored value in its compute type
uint64_t shortened(runtime::DType dtype, uint64_t value);  // a value as it is stored

}  // namespace megjit::codegen
