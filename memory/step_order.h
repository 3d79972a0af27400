// memory/step_order.h -- in which order steps run, where several orders are possible.
#pragma once

#include "memory/remat_problem.h"

namespace megjit::memory {

// The steps in another order, with a smaller peak; or in the given one. First, a step that frees as
// much as it takes runs as soon as it can: an optimizer's updates come after the whole backward
// pass, and all gradients wait for them. Then, where it pays, all steps are listed anew, branch by
// branch. Steps that are not repeatable keep their order.
std::vector<uint32_t> order_for_peak(const RematProblem& problem);

}  // namespace megjit::memory
