// memory/parts.h -- pieces of a value that need no storage beside it: operands of a concat, slices.
#pragma once

#include "memory/inplace.h"

namespace megjit::memory {

// Puts an operand that is a part of a result into the result's buffer, and a slice into what it was
// cut from, where nothing is overwritten that is still needed. A piece alone may keep a large
// buffer alive: never makes the peak of the arena larger.
void share_parts(const Schedule& schedule, const std::vector<Lifetime>& live, Aliasing& aliasing);

}  // namespace megjit::memory
