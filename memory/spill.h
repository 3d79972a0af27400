// memory/spill.h -- which values leave memory for a slower place, when, and when they come back.
// In: steps in the order in which they run, and the bytes that they may have. Out: transfers that
// go beside the steps, over a link that makes one transfer at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "memory/remat_problem.h"

namespace megjit::memory {

struct SpillOptions {
    size_t most_bytes = 0;  // for values that have no storage of their own, and for scratch
    size_t least_bytes = 64 << 10;  // smaller values are not moved
    double link_bytes = 1e9;  // bytes a second; costs of steps are in seconds
    // Values (is_kept) that lie outside before the first step, and are fetched to be read; and
    // values that must lie there after the last step.
    std::vector<uint32_t> outside_at_start = {}, outside_at_end = {};
};

struct SpillPlan {
    // The value is written to the place outside; its memory is kept until `step` has run.
    struct Store {
        uint32_t value = 0, step = 0;
    };
    // Before `step`, memory is taken for the value and its transfer begins; that step or a later
    // one reads it.
    struct Fetch {
        uint32_t value = 0, step = 0;
    };
    std::vector<Store> stores = {};  // by step
    std::vector<Fetch> fetches = {};  // by step
    std::vector<uint32_t> outside_at_start = {}, outside_at_end = {};  // as in the options
    size_t peak_bytes = 0;  // may be above the limit
    size_t written = 0, read = 0;  // in bytes
    double transfer_seconds = 0;
    double seconds = 0;  // how long steps wait for transfers
};

// Each value is written once at most, since it never changes. The value whose next read is the
// latest leaves first. The same problem gets the same answer.
SpillPlan spill(const RematProblem& problem, const SpillOptions& options);

// Plans of ever fewer bytes, from options.most_bytes down to about the least possible. `watch` is
// called now and then, and may throw.
std::vector<SpillPlan> spill_front(const RematProblem& problem, SpillOptions options,
                                   const std::function<void()>& watch);

}  // namespace megjit::memory
