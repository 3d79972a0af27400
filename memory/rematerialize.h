// memory/rematerialize.h -- which steps run again, so that their results need not be kept.
// In: steps in their order, with costs and sizes. Out: plans, from the cheapest to the smallest; a
// plan is a list of steps in which some stand more than once. A read takes what the last run of the
// value's step has written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace megjit::memory {

struct RematStep {
    double cost = 0;  // of one run, in any unit
    std::vector<uint32_t> reads = {};  // value ids
    std::vector<uint32_t> writes = {};  // value ids; a value is written by one step
    bool repeatable = true;  // may run again, with the same results
    bool in_place =
        false;  // may write over an operand of the same size that nobody reads afterwards
    size_t scratch = 0;  // bytes that it takes while it runs, and for nothing else
    // Values that are there from the start, in whose storage its results are to lie. Where somebody
    // reads such a value afterwards, the results need storage of their own.
    std::vector<uint32_t> overwrites = {};
    uint32_t region = 0;
};

struct RematValue {
    size_t bytes = 0;
    // Has storage of its own for the whole run (inputs, constants, outputs): it costs nothing to
    // keep.
    bool is_kept = false;
    bool must_stay = false;  // is never let go of before its last use
    // Not 0: it must be let go of behind the steps of this region, and is computed again for the
    // others.
    uint32_t region = 0;
};

struct RematProblem {
    std::vector<RematValue> values = {};
    std::vector<RematStep> steps = {};
};

struct RematPlan {
    std::vector<uint32_t> order = {};  // steps
    size_t peak_bytes = 0;  // of values that have no storage of their own, and of scratch
    double cost = 0;
};

// The fast search is the default: 5,000 steps take less than a second.
struct RematSearch {
    int thresholds = 0;  // block sizes that are tried as starting points
    int genetic_rounds = 0;
    int genetic_pool = 20;  // plans in a round
    int workers = 1;  // threads; the answer does not depend on their number
    double most_cost =
        3;  // plans that cost more than so many times the plain order are not looked for
    // Called now and then by the thread that searches, with the part that is done. It may throw:
    // that ends the search.
    std::function<void(double)> watch = {};
};

// Each plan needs less than the one before it, and costs more; the first is the plain order, the
// second may be the same steps in a better one. Same problem, same answer. Throws
// std::invalid_argument when a value is read before it is written, or written twice.
std::vector<RematPlan> rematerialize(const RematProblem& problem, const RematSearch& search = {});

// The plain order; only what must be let go of runs again.
RematPlan plain_plan(const RematProblem& problem);

// The smallest plan in the given order, on a straight way down, that costs at most so many times
// the plain one: for programs without a limit, at a fraction of the search.
RematPlan thrifty_plan(const RematProblem& problem, double most_cost);

// The peak and the cost of running `order`, by the definitions above. Throws std::invalid_argument
// when it reads what no step before has written.
RematPlan measure(const RematProblem& problem, std::vector<uint32_t> order);

}  // namespace megjit::memory
