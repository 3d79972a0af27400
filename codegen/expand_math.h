// codegen/expand_math.h -- rewrites transcendental instructions into arithmetic ones, by the same
// formulas (runtime/core/scalar_math.h) that the eager kernels use, so that both give the same bits
// and no backend needs a math library.
#pragma once

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// Returns the same kernel without exp, log, sin, ...; itself when there are none. Throws UserError
// where one is of float64: these are the C library's.
KernelIR expand_math(const KernelIR& kernel);

// Has the program none of these?
bool can_expand_math(const runtime::ScalarProgram& program);

}  // namespace megjit::codegen
