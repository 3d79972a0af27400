// runtime/core/scalar_double.h -- the functions of reals in double precision, by the C library
// where it has them: what eager kernels compute on float64, and what the oracle rounds to float32.
#pragma once

#include "runtime/core/scalar.h"

namespace megjit::runtime {

// Evaluates exp to digamma; a function of one operand ignores b.
double transcendental_f64(ScalarOp op, double a, double b = 0);

}  // namespace megjit::runtime
