// memory/parts.h -- values that need no storage of their own, as they are parts of others: operands
// of a concat, slices.
#pragma once

#include "memory/inplace.h"

namespace megjit::memory {

// Puts an operand that is a part of a result into the result's buffer, and a slice into what it was
// cut from, unless that overwrites a value that is still needed. A single piece may keep a large
// buffer alive: the change is undone if it makes the peak of the arena larger.
void share_parts(const Schedule& schedule, const std::vector<Lifetime>& live, Aliasing& aliasing);

}  // namespace megjit::memory
