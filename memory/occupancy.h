// memory/occupancy.h -- which bytes of the arena are taken, at which steps.
// A segment tree over the steps: long-lived neighbours melt into one range, so that a question
// costs about log(steps) look-ups instead of one look at every buffer that is live meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/planner.h"

namespace megjit::memory {

// Bytes, kept as sorted ranges that neither overlap nor touch.
class RangeSet {
public:
    // The lowest aligned place at or above `from` that has `bytes` free bytes.
    size_t first_gap(size_t from, size_t bytes, size_t align) const;
    void add(size_t begin, size_t end);

private:
    struct Range {
        size_t begin = 0;
        size_t end = 0;
    };
    std::vector<Range> ranges_;
};

class Occupancy {
public:
    explicit Occupancy(uint32_t steps);

    // The lowest aligned offset at which `bytes` bytes are free in every step of `live`.
    size_t lowest_fit(Lifetime live, size_t bytes, size_t align) const;
    void place(Lifetime live, size_t offset, size_t bytes);

    // Look-ups made so far: a measure of time that is the same on every machine.
    size_t lookups() const { return lookups_; }

private:
    // A node covers a range of steps, its children the halves of that range.
    struct Node {
        RangeSet throughout;  // taken in all its steps, by buffers that were stored at this node
        RangeSet sometime;  // taken in at least one of its steps: stored at or below this node
    };

    uint32_t leaves_ = 1;  // number of leaves, a power of two
    std::vector<Node> nodes_;  // node i has children 2i and 2i+1; the root is 1
    mutable std::vector<const RangeSet*> touched_;  // scratch of lowest_fit(), kept for its storage
    mutable size_t lookups_ = 0;
};

}  // namespace megjit::memory
