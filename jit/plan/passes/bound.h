// jit/plan/passes/bound.h -- values that depend on fixed slots alone, for the passes that move them
// into the prologue.
#pragma once

#include <vector>

#include "jit/plan/passes/passes.h"

namespace megjit::jit {

// Is the interface known, so that a program binds what is computed of fixed slots and of constants,
// and is there memory to keep it?
bool may_bind(const PipelineOptions& options);

// By value: is it a fixed input, a constant, or computed from such alone? Under a limit of memory
// inputs are not: they would stay beside the weights packed from them.
std::vector<bool> fixed_values(const Graph& graph, const PipelineOptions& options);

}  // namespace megjit::jit
