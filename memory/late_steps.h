// memory/late_steps.h -- a list of steps in which those that take more than they free run later.
#pragma once

#include "memory/recompute_schedule.h"

namespace megjit::memory {

// Each step that makes more bytes than it keeps longer from being let go of moves behind the steps
// that follow it, up to the first that reads it: what runs again for that reader then runs before
// the others of its operands are there, and a gradient of weights before that of what they are
// multiplied with. Returns by place the position in `order`. Steps that are not repeatable stay
// where they are, and nothing moves behind what overwrites an operand.
std::vector<uint32_t> late_steps(const RecomputeSchedule& schedule,
                                 const std::vector<uint32_t>& order);

}  // namespace megjit::memory
