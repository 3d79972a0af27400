// memory/step_order.h -- in which order steps run, where several orders are possible.
#pragma once

#include "memory/remat_problem.h"

namespace megjit::memory {

// The steps in another order, with a smaller peak; or in the given one. First, a step that frees as
// much as it takes runs as soon as it can: an optimizer's updates come after the whole backward
// pass, and all gradients wait for them. Then, where it pays, all steps are listed anew, branch by
// branch. Steps that are not repeatable keep their order.
std::vector<uint32_t> order_for_peak(const RematProblem& problem);

// The steps in an order in which updates run behind what they read: where a value (a gradient) is
// read by steps alone whose results, directly or through each other, are kept, these run as soon as
// the value is made and all have run that read what they overwrite. Without a limit such an order
// may win nothing; where activations are computed again, all gradients would wait beside them.
// Empty where no step moves, and where these values are small.
std::vector<uint32_t> early_updates(const RematProblem& problem);

// The problem with its steps in this order.
RematProblem in_order(const RematProblem& problem, const std::vector<uint32_t>& order);

}  // namespace megjit::memory
