// tests/card/emulator/ptx/rounding_rules.h -- what a kernel may not contain if its bits are
// promised.
#pragma once

#include <string>

#include "tests/card/emulator/ptx/syntax.h"

namespace megjit::card::ptx {

// Generated kernels have this entry: their bits are those of the host.
inline constexpr const char* kExactEntry = "megjit_kernel";

// An instruction whose result the card's assembler or its hardware may choose: an approximation of
// a function, or a product without rounding that a sum without rounding reads, which may become
// one fused instruction. Refuses the text, with the line.
void refuse_loose_rounding(const FunctionText& function);

}  // namespace megjit::card::ptx
