// memory/late_steps.h -- a list of steps in which those that take more than they free run later.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/copies.h"

namespace megjit::memory {

// Delays each step whose results take more bytes than it sets free: the step moves after those that
// follow it, up to the first one that reads its results. So a step that is repeated for a reader
// runs before the reader's other operands exist, and the gradient of weights before that of their
// input. Returns for each new place the position in `order`. Steps that are not repeatable keep
// their place, and no step moves past one that overwrites an operand of it. `copies` are those of
// `order`.
std::vector<uint32_t> late_steps(const Copies& copies, const std::vector<uint32_t>& order);

}  // namespace megjit::memory
