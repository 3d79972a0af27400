// jit/plan/known_places.h -- which places ops are known to name before they run, so that nobody
// needs to check them.
#pragma once

#include "jit/step/graph.h"

namespace megjit::jit {

// Is each element of the int32 value at least 0 and less than `extent`, behind a failure, too?
bool are_known_places(const Graph& graph, ValueId id, int64_t extent);

}  // namespace megjit::jit
