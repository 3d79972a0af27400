// memory/recompute_greedy.h -- improves a choice of what to recompute: towards a smaller peak, and
// back to a lower cost.
#pragma once

#include <functional>

#include "memory/recompute_schedule.h"

namespace megjit::memory {

struct GreedyOptions {
    // Weight of the cost of what is recomputed together with a value, beside the value's own cost.
    // With a large weight, checkpoints come out evenly spaced.
    double neighbourhood = 1;
    // Refuse a choice after which more is recomputed at once than fits below the peak it lowers.
    bool looks_ahead = true;
    // No gap gets a higher level. Above the usual one the search also goes the way of the usual
    // one, from where the two part.
    uint8_t most_level = kUsualLevel;
    double most_cost = 3;  // as a multiple of the plain order's cost
};

// Called with every plan on the way, which includes the start.
using Offer = std::function<void(const Levels&, const Simulation&)>;
void lower_peak(const RecomputeSchedule& schedule, Levels levels, const GreedyOptions& options,
                const Offer& offer);

// Keeps values again that need not be recomputed for a peak of `most_bytes`. Returns the simulation
// of the new levels.
Simulation lower_cost(const RecomputeSchedule& schedule, Levels& levels, size_t most_bytes);

// Cuts the steps up to the peak of the plain order into blocks. No value waits across a border but
// those that the next blocks read before that peak; a block ends where its values' bytes reach
// `block_bytes`.
Levels cut_in_blocks(const RecomputeSchedule& schedule, const Simulation& plain,
                     size_t block_bytes);

}  // namespace megjit::memory
