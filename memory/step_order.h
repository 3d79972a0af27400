// memory/step_order.h -- in which order steps run that may run in several.
#pragma once

#include "memory/rematerialize.h"

namespace megjit::memory {

// The steps in another order, with a smaller peak; or in theirs. Steps move forward in time only: one that frees as
// much as it takes runs as soon as it can. Why: an optimizer's updates stand behind the whole backward pass, and
// all gradients wait for them.
std::vector<uint32_t> order_for_peak(const RematProblem& problem);

}  // namespace megjit::memory
