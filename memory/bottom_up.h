// memory/bottom_up.h -- a search for a tight arena where lifetimes interleave, as with
// recomputation.
#pragma once

#include "memory/planner.h"

namespace megjit::memory {

// Renumbers lifetimes by the distinct steps in which some buffer starts; returns how many there
// are. Nothing is lost: two lifetimes overlap exactly if one contains the other's first step.
uint32_t count_in_starts(std::vector<Buffer>& buffers);

// `buffers` need memory and live in steps below `steps`; the fullest step holds `bound` bytes.
// Takes some 100 ms at most, which is counted as work done.
Plan place_bottom_up(std::span<const Buffer> buffers, uint32_t steps, size_t bound);

}  // namespace megjit::memory
