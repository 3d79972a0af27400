// runtime/core/scalar_fold.h -- what `emit` knows of instructions: their value on constants, and
// the identities that hold bit for bit. Transcendental instructions are never folded, because the
// host's libm rounds differently from scalar_math.h.
#pragma once

#include <optional>

#include "runtime/core/scalar.h"

namespace megjit::runtime {

// The bits of the result when all operands are constants, or nothing.
std::optional<uint64_t> fold(const ScalarProgram& program, const ScalarInst& inst);

// The value of the program that `inst` always equals, or -1.
int identity_of(const ScalarProgram& program, const ScalarInst& inst);

// A constant narrowed to what `dtype` can hold.
uint32_t narrowed(uint32_t bits, DType dtype);

}  // namespace megjit::runtime
