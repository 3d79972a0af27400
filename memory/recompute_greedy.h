// memory/recompute_greedy.h -- from choices to better choices: towards a smaller peak, and back to
// a lower cost.
#pragma once

#include <functional>

#include "memory/recompute_schedule.h"

namespace megjit::memory {

struct GreedyOptions {
    // How much the cost of what is recomputed together counts, beside that of the value itself.
    // Where it counts much, checkpoints come out evenly spaced.
    double neighbourhood = 1;
    // Refuse a choice that makes something recomputed together that is larger than the peak it
    // lowers.
    bool looks_ahead = true;
    double most_cost = 3;  // times the plain order
};

// Called with every plan on the way, which includes the start.
using Offer = std::function<void(const Levels&, const Simulation&)>;
void lower_peak(const RecomputeSchedule& schedule, Levels levels, const GreedyOptions& options,
                const Offer& offer);

// Keeps again what need not be recomputed for a peak of `most_bytes`. Returns the simulation of the
// new levels.
Simulation lower_cost(const RecomputeSchedule& schedule, Levels& levels, size_t most_bytes);

// Nothing waits across a border of blocks up to the peak of the plain order but what the next
// blocks read before that peak; a block ends where its values' bytes reach `block_bytes`.
Levels cut_in_blocks(const RecomputeSchedule& schedule, const Simulation& plain,
                     size_t block_bytes);

}  // namespace megjit::memory
