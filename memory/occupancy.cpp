#include "memory/occupancy.h"

#include <algorithm>
#include <bit>

#include "memory/round_up.h"

namespace megjit::memory {
namespace {

// Calls whole(node) for the few nodes that together cover exactly the steps of `live`, and
// part(node) for every node above one of them.
template <class Whole, class Part>
void visit(uint32_t leaves, Lifetime live, Whole whole, Part part) {
    const uint32_t first = live.first + leaves;
    const uint32_t last = live.last + leaves;
    for (uint32_t l = first, r = last; l < r; l >>= 1, r >>= 1) {
        if (l & 1) whole(l++);
        if (r & 1) whole(--r);
    }
    for (uint32_t height = 1; (leaves >> height) != 0; ++height) {
        const uint32_t left = first >> height;
        const uint32_t right = (last - 1) >> height;
        const bool left_cut = (left << height) != first;
        const bool right_cut = ((right + 1) << height) != last;
        if (left == right) {
            if (left_cut || right_cut) part(left);
        } else {
            if (left_cut) part(left);
            if (right_cut) part(right);
        }
    }
}

}  // namespace

size_t RangeSet::first_gap(size_t from, size_t bytes, size_t align) const {
    auto range = std::upper_bound(ranges_.begin(), ranges_.end(), from,
                                  [](size_t x, const Range& r) { return x < r.end; });
    for (; range != ranges_.end() && range->begin < from + bytes; ++range)
        from = round_up(range->end, align);
    return from;
}

void RangeSet::add(size_t begin, size_t end) {
    // All ranges from the first that reaches `begin` to the last that starts by `end` become one.
    const auto low = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                      [](const Range& r, size_t x) { return r.end < x; });
    auto high = low;
    for (; high != ranges_.end() && high->begin <= end; ++high) {
        begin = std::min(begin, high->begin);
        end = std::max(end, high->end);
    }
    if (low == high) {
        ranges_.insert(low, {begin, end});
        return;
    }
    *low = {begin, end};
    ranges_.erase(low + 1, high);
}

Occupancy::Occupancy(uint32_t steps)
    : leaves_(std::bit_ceil(std::max(steps, 1u))), nodes_(2 * size_t{leaves_}) {}

size_t Occupancy::lowest_fit(Lifetime live, size_t bytes, size_t align) const {
    touched_.clear();
    visit(leaves_, live, [&](uint32_t node) { touched_.push_back(&nodes_[node].sometime); },
          [&](uint32_t node) { touched_.push_back(&nodes_[node].throughout); });
    // Each set moves the offset up to its own next gap, until a round changes nothing.
    size_t offset = 0;
    for (size_t agreed = 0, i = 0; agreed < touched_.size(); i = (i + 1) % touched_.size()) {
        const size_t pushed = touched_[i]->first_gap(offset, bytes, align);
        agreed = pushed == offset ? agreed + 1 : 1;
        offset = pushed;
        ++lookups_;
    }
    return offset;
}

void Occupancy::place(Lifetime live, size_t offset, size_t bytes) {
    const size_t end = offset + bytes;
    visit(leaves_, live, [&](uint32_t node) {
        nodes_[node].throughout.add(offset, end);
        nodes_[node].sometime.add(offset, end);
    }, [&](uint32_t node) { nodes_[node].sometime.add(offset, end); });
}

}  // namespace megjit::memory
