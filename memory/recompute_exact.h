// memory/recompute_exact.h -- for small problems: the cheapest of all lists of steps that keep
// within a peak.
#pragma once

#include <optional>

#include "memory/recompute_schedule.h"

namespace megjit::memory {

// A* over (number of steps of the plain order that are done, set of values in memory). Exact but
// for kLoss; any step may run again at any time. Its cost grows with the number of ways to drop
// values, so that it gives up after a number of states.
class ExactSearch {
public:
    static constexpr double kLoss = 0.01;  // a plan may cost this part more than the best

    explicit ExactSearch(const RecomputeSchedule& schedule);

    // Requires that a set of values fits into one word, and that no value must be dropped.
    static bool is_possible(const RecomputeSchedule& schedule);

    enum class Outcome : uint8_t { found, none, gave_up };
    struct Answer {
        Outcome outcome = Outcome::none;
        RematPlan plan = {};
    };
    // Looks at `states` states at most, and subtracts the number that it has looked at.
    Answer cheapest(size_t most_bytes, double most_cost, size_t& states) const;

    // No list of these steps has a smaller peak.
    size_t least_peak_there_may_be() const;

private:
    friend class ExactRun;
    using Set = uint64_t;  // a set of values that take room

    struct Step {
        double cost = 0;
        Set reads = 0, writes = 0,
            may_eat = 0;  // may_eat: operands that the result may overwrite
        size_t bytes = 0;  // bytes of its results and of scratch
        size_t bytes_again = 0;  // the same for a second run, which computes kept results, too
        uint32_t runs_until = 0;  // it may run again while fewer steps are done; 0: it may not
    };

    const RecomputeSchedule& schedule_;
    std::vector<size_t> bytes_;  // by the value's bit
    std::vector<Step> steps_;
    std::vector<Set> wanted_;  // by steps done: values that others read, and that exist by then
    std::vector<Set> useful_;  // the same, and values that may serve to compute these again
    std::vector<Set> must_stay_;  // those of wanted_ that must stay
    std::vector<double> cost_of_rest_;
    size_t beside_ = 0;  // bytes of results that can never lie where they should
};

// Improves `plans`, which go from the cheapest (the plain order) to the smallest: returns better
// ones where there are any, plans between them and plans that need less than all of them, for costs
// up to `most_cost` times the first one's. At every peak the answer costs at most (1 + kLoss) times
// 1.01 the optimum, unless the search gave up; then the given plans remain.
std::vector<RematPlan> improve_exactly(const RecomputeSchedule& schedule,
                                       std::vector<RematPlan> plans, double most_cost);

}  // namespace megjit::memory
