// memory/bottom_up.h -- a search for a tight arena where lifetimes interleave: those of
// recomputation, for instance.
#pragma once

#include "memory/planner.h"

namespace megjit::memory {

// Counts lifetimes in the distinct steps in which some buffer starts; returns how many there are.
// Nothing is lost: two lifetimes overlap exactly if one contains the other's first step.
uint32_t count_in_starts(std::vector<Buffer>& buffers);

// `buffers` need memory and live in steps below `steps`, of which the fullest holds `bound` bytes.
// Some 100 ms at most, counted in work.
Plan place_bottom_up(std::span<const Buffer> buffers, uint32_t steps, size_t bound);

}  // namespace megjit::memory
