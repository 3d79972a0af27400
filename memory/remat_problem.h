// memory/remat_problem.h -- a program as the search for recomputation sees it: steps with costs,
// values with sizes; and a plan, a list of steps in which some occur more than once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megjit::memory {

struct RematStep {
    double cost = 0;  // cost of one run, in any unit
    std::vector<uint32_t> reads = {};  // value ids
    std::vector<uint32_t> writes = {};  // value ids; a value is written by one step
    bool repeatable = true;  // it may run again, with the same results
    bool movable = true;  // it may run earlier than listed, once what it needs is there
    bool in_place =
        false;  // it may write over an operand of the same size that nobody reads afterwards
    size_t scratch = 0;  // bytes that it needs only while it runs
    // Values that are there from the start, and whose storage is meant for the results. Where
    // somebody reads such a value afterwards, the results need storage of their own.
    std::vector<uint32_t> overwrites = {};
    uint32_t region = 0;

    bool operator==(const RematStep&) const = default;
};

struct RematValue {
    size_t bytes = 0;
    // The value has storage of its own for the whole run (inputs, constants, outputs): it costs
    // nothing to keep.
    bool is_kept = false;
    bool must_stay = false;  // it is never dropped before its last use
    // If not 0, the value must be dropped after the steps of this region, and is computed again for
    // the others.
    uint32_t region = 0;

    bool operator==(const RematValue&) const = default;
};

struct RematProblem {
    std::vector<RematValue> values = {};
    std::vector<RematStep> steps = {};

    bool operator==(const RematProblem&) const = default;
};

// Where steps run: as they are listed, or later (late_steps.h) where that lowers the peak.
enum class Places : uint8_t { listed, late };

struct RematPlan {
    std::vector<uint32_t> order = {};  // steps
    size_t peak_bytes = 0;  // bytes of values that have no storage of their own, and of scratch
    double cost = 0;
};

}  // namespace megjit::memory
