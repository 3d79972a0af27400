// memory/spill.h -- which values leave memory for a slower place, when, and when they come back.
// In: steps in the order in which they run, and the bytes that they may have. Out: transfers beside
// them, over a link that does one thing at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "memory/remat_problem.h"

namespace megjit::memory {

struct SpillOptions {
    size_t most_bytes = 0;  // of values that have no storage of their own, and of scratch
    size_t least_bytes = 64 << 10;  // smaller values stay
    double link_bytes = 1e9;  // a second; steps' costs are seconds
    // Values (is_kept) that lie outside before the first step: each comes in to be read. And those
    // that must lie there behind the last one.
    std::vector<uint32_t> outside_at_start = {}, outside_at_end = {};
};

struct SpillPlan {
    // The value is written to the place outside; its memory is there until `step` has run.
    struct Store {
        uint32_t value = 0, step = 0;
    };
    // Before `step` memory is taken for the value, which some later step reads, or this one.
    struct Fetch {
        uint32_t value = 0, step = 0;
    };
    std::vector<Store> stores = {};  // by step
    std::vector<Fetch> fetches = {};  // by step
    std::vector<uint32_t> outside_at_start = {}, outside_at_end = {};  // as given
    size_t peak_bytes = 0;  // may be above what is allowed
    size_t written = 0, read = 0;  // bytes
    double transfer_seconds = 0;
    double seconds = 0;  // for which steps wait for transfers
};

// Each value is written once at most, since it never changes. A value that is read last among those
// that are there leaves first. Same problem, same answer.
SpillPlan spill(const RematProblem& problem, const SpillOptions& options);

// Plans of ever fewer bytes, from options.most_bytes down to about the fewest that there can be.
// `watch` is called now and then, and may throw.
std::vector<SpillPlan> spill_front(const RematProblem& problem, SpillOptions options,
                                   const std::function<void()>& watch);

}  // namespace megjit::memory
