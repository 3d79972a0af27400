// memory/lower_bound.h -- bytes that every list of a schedule's steps takes at least, in whatever
// order they run and however often each of them does: the proof that a refused memory limit is too
// small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/inplace.h"

namespace megjit::memory {

struct LowerBound {
    size_t bytes = 0;  // needed by a call: inputs, constants, outputs and the arena
    // While this step runs, these values must be in memory together; kNone: no step needs memory
    // beside inputs, constants and outputs.
    uint32_t step = kNone;
    std::vector<uint32_t> values = {};
};

// A step needs its operands and results at once, except for a result that may overwrite an operand.
// One of the values that a step reads is written last, and while it is written the others exist
// already: the bound follows such writers back for a few steps. It shares no code with the search.
LowerBound lower_bound(const Schedule& schedule);

}  // namespace megjit::memory
