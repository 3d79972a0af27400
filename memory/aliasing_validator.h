// memory/aliasing_validator.h -- the judge of shared buffers. It runs the schedule on paper: each
// byte remembers which value it holds, and each read checks that. It shares no code with
// memory/inplace.cpp.
#pragma once

#include <string>

#include "memory/inplace.h"

namespace megjit::memory {

// "" if every step reads what it should and every output is whole at the end, else one sentence
// that names step and value.
std::string fault_of_aliasing(const Schedule& schedule, const Aliasing& aliasing);

}  // namespace megjit::memory
