// memory/rematerialize.h -- which steps run again, so that their results need not be kept. In:
// steps in their order, with costs and sizes. Out: plans, from the cheapest to the smallest; a plan
// is a list of steps in which some occur more than once. A read takes what the last run of the
// value's step has written.
#pragma once

#include <functional>
#include <vector>

#include "memory/remat_problem.h"

namespace megjit::memory {

// The fast search is the default: it takes less than a second for 5,000 steps.
struct RematSearch {
    Places places = Places::listed;
    int thresholds = 0;  // number of block sizes that are tried as starting points
    int genetic_rounds = 0;
    int genetic_pool = 20;  // plans in a round
    int workers = 1;  // threads; the answer does not depend on their number
    double most_cost =
        3;  // plans that cost more than this multiple of the plain order are not sought
    // The searching thread calls it now and then, with the part that is done. It may throw, which
    // ends the search.
    std::function<void(double)> watch = {};
};

// Each plan needs less memory than the one before it, and costs more; the first is the plain order,
// the second may be the same steps in a better one. The same problem gets the same answer. Throws
// std::invalid_argument when a value is read before it is written, or written twice.
std::vector<RematPlan> rematerialize(const RematProblem& problem, const RematSearch& search = {});

// The plain order, where only steps run again whose results must be dropped.
RematPlan plain_plan(const RematProblem& problem);

// The smallest plan in the given order that the search finds on a straight way down, and that costs
// at most `most_cost` times the plain one: for programs without a limit, at a fraction of the
// search.
RematPlan thrifty_plan(const RematProblem& problem, double most_cost);

// The peak and the cost of running `order`, as defined above. Throws std::invalid_argument when it
// reads what no step before has written.
RematPlan measure(const RematProblem& problem, std::vector<uint32_t> order);

}  // namespace megjit::memory
