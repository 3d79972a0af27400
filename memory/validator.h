// memory/validator.h -- the judge of an arena plan. It shares no code with the planner.
#pragma once

#include <span>
#include <string>

#include "memory/planner.h"

namespace megjit::memory {

// "" if the plan is sound, else one sentence that names the buffers. Looks at every pair.
std::string fault_of(std::span<const Buffer> buffers, const Plan& plan);

}  // namespace megjit::memory
