// memory/recompute_exact.h -- small problems: the cheapest of all lists of steps that keep within a
// peak.
#pragma once

#include <optional>

#include "memory/recompute_schedule.h"

namespace megjit::memory {

// A* over (steps of the plain order that are done, values that are there). Exact but for kLoss; any
// step may run again at any time. What it costs grows with the number of ways to let go of values,
// so that it gives up after a number of states.
class ExactSearch {
public:
    static constexpr double kLoss = 0.01;  // a plan costs at most so much more than the cheapest

    explicit ExactSearch(const RecomputeSchedule& schedule);

    // Few enough values for a set of them to be one word, and none that must be let go of.
    static bool is_possible(const RecomputeSchedule& schedule);

    enum class Outcome : uint8_t { found, none, gave_up };
    struct Answer {
        Outcome outcome = Outcome::none;
        RematPlan plan = {};
    };
    // Looks at `states` states at most, and takes off what it has looked at.
    Answer cheapest(size_t most_bytes, double most_cost, size_t& states) const;

    // No list of these steps has a smaller peak.
    size_t least_peak_there_may_be() const;

private:
    friend class ExactRun;
    using Set = uint64_t;  // of values that take room

    struct Step {
        double cost = 0;
        Set reads = 0, writes = 0,
            may_eat = 0;  // may_eat: operands whose place the result may take
        size_t bytes = 0;  // of its results, and scratch
        size_t bytes_again = 0;  // the same for a second run, which has kept results too
        uint32_t runs_until = 0;  // it may run again while fewer steps are done; 0: it runs once
    };

    const RecomputeSchedule& schedule_;
    std::vector<size_t> bytes_;  // by bit
    std::vector<Step> steps_;
    std::vector<Set> wanted_;  // by steps done: what the others read, and is made by then
    std::vector<Set> useful_;  // the same, and what may serve to compute it again
    std::vector<Set> must_stay_;  // of wanted_
    std::vector<double> cost_of_rest_;
    size_t beside_ = 0;  // results that cannot lie where they are to lie, in any order of these
};

// `plans`, from the cheapest (the plain order) to the smallest: better ones where there are, what
// lies between them and what needs less than all of them, for costs up to `most_cost` times the
// first one's. At every peak the answer costs at most (1 + kLoss) times 1.01 the optimum, unless
// the search gave up; then what was known stands.
std::vector<RematPlan> improve_exactly(const RecomputeSchedule& schedule,
                                       std::vector<RematPlan> plans, double most_cost);

}  // namespace megjit::memory
