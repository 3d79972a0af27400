// codegen/expand_math.h -- rewrites transcendental instructions into arithmetic ones, by the same
// formulas (runtime/core/scalar_math.h) that the eager kernels use, so that both give the same bits
// and no backend needs a math library.
#pragma once

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// Returns the same kernel without exp, log, sin, ...; the kernel itself when it has none. Throws
// UserError where one is of float64: the C library computes these.
KernelIR expand_math(const KernelIR& kernel);

// Is the program free of transcendental instructions of float64?
bool can_expand_math(const runtime::ScalarProgram& program);

}  // namespace megjit::codegen
