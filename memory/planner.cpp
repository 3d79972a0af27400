#include "memory/planner.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "memory/bottom_up.h"
#include "memory/occupancy.h"
#include "memory/round_up.h"

namespace megjit::memory {
namespace {

bool needs_memory(const Buffer& b) { return b.bytes != 0 && !b.live.empty(); }

void check(std::span<const Buffer> buffers) {
    size_t total = 0;
    for (const Buffer& b : buffers) {
        if (!std::has_single_bit(b.align))
            throw std::invalid_argument("plan_arena: buffer " + std::to_string(b.id) +
                                        " has alignment " + std::to_string(b.align) +
                                        ", which is not a power of two");
        const size_t left = std::numeric_limits<size_t>::max() - total;
        if (b.bytes > left || b.align > left - b.bytes)
            throw std::length_error("plan_arena: the buffers together exceed the address space");
        total += b.bytes + b.align;
    }
}

// The buffers that need memory, with lifetimes counted in the steps in which some buffer starts.
struct Problem {
    std::vector<Buffer> buffers;
    std::vector<uint32_t> index;  // into the caller's buffers
    uint32_t steps = 0;
    uint32_t fullest_step = 0;
    size_t bound = 0;  // bytes live in the fullest step, buffers rounded to the least alignment
};

std::vector<size_t> live_bytes(const std::vector<Buffer>& buffers, uint32_t steps, size_t grain) {
    std::vector<size_t> change(steps + 1, 0);  // unsigned numbers wrap around, and back again
    for (const Buffer& b : buffers) {
        change[b.live.first] += round_up(b.bytes, grain);
        change[b.live.last] -= round_up(b.bytes, grain);
    }
    std::partial_sum(change.begin(), change.end(), change.begin());
    return change;
}

Problem problem_of(std::span<const Buffer> buffers) {
    Problem p;
    size_t grain = std::numeric_limits<size_t>::max();
    for (uint32_t i = 0; i < buffers.size(); ++i) {
        if (!needs_memory(buffers[i])) continue;
        p.buffers.push_back(buffers[i]);
        p.index.push_back(i);
        grain = std::min(grain, buffers[i].align);
    }
    p.steps = count_in_starts(p.buffers);
    if (p.steps == 0) return p;
    const std::vector<size_t> live = live_bytes(p.buffers, p.steps, grain);
    const auto fullest = std::max_element(live.begin(), live.end());
    p.fullest_step = static_cast<uint32_t>(fullest - live.begin());
    p.bound = *fullest;
    return p;
}

using Order = std::vector<uint32_t>;  // indices into Problem::buffers

// Places each buffer at the lowest offset that is free when its turn comes.
Plan place_in(const Order& order, const Problem& p, size_t& work) {
    Plan plan = {.offsets = std::vector<size_t>(p.buffers.size())};
    Occupancy occupancy(p.steps);
    for (const uint32_t i : order) {
        const Buffer& b = p.buffers[i];
        const size_t offset = occupancy.lowest_fit(b.live, b.bytes, b.align);
        occupancy.place(b.live, offset, b.bytes);
        plan.offsets[i] = offset;
        plan.arena_bytes = std::max(plan.arena_bytes, offset + b.bytes);
    }
    work += occupancy.lookups();
    return plan;
}

template <class Key>
Order by(const Problem& p, Key key) {
    Order order(p.buffers.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t i, uint32_t j) { return key(p.buffers[i]) > key(p.buffers[j]); });
    return order;
}

size_t steps_of(const Buffer& b) { return b.live.last - b.live.first; }

// Orders to try, best first; measured on the networks of tests/memory/lifetimes.h. Buffers that
// live in the fullest step decide the arena's size, so they are placed while there are no others.
Order order_to_try(int attempt, const Problem& p) {
    const auto at_peak = [&](const Buffer& b) {
        return b.live.first <= p.fullest_step && p.fullest_step < b.live.last;
    };
    const auto area = [](const Buffer& b) { return static_cast<double>(b.bytes) * steps_of(b); };
    switch (attempt) {
        case 0: return by(p, [&](auto& b) { return std::tuple(at_peak(b), b.bytes, steps_of(b)); });
        case 1: return by(p, [&](auto& b) { return std::tuple(b.bytes, steps_of(b)); });
        case 2: return by(p, [&](auto& b) { return std::tuple(area(b), b.bytes); });
        case 3: return by(p, [&](auto& b) { return std::tuple(at_peak(b), steps_of(b), b.bytes); });
        default: return by(p, [&](auto& b) { return std::tuple(steps_of(b), b.bytes); });
    }
}
constexpr int kOrders = 5;

// The buffer that ended on top came too late: it moves forward in the order.
Order with_top_earlier(const Order& order, const Plan& plan, const Problem& p, int attempt) {
    Order next = order;
    const auto top = std::find_if(next.begin(), next.end(), [&](uint32_t i) {
        return plan.offsets[i] + p.buffers[i].bytes == plan.arena_bytes;
    });
    const auto position = top - next.begin();
    std::rotate(next.begin() + position * (attempt % 4) / 4, top, top + 1);
    return next;
}

// Stops at the lower bound, or when the look-ups of all attempts together exceed the budget.
Plan best_plan(const Problem& p) {
    constexpr size_t kBudget = 300'000;  // some 10 ms; networks need one attempt
    constexpr int kAttempts = 200;
    size_t work = 0;
    Order best_order = order_to_try(0, p);
    Plan best = place_in(best_order, p, work);
    for (int i = 1; i < kAttempts && best.arena_bytes > p.bound && work < kBudget; ++i) {
        const bool move_one = i >= kOrders;
        Order order = move_one ? with_top_earlier(best_order, best, p, i) : order_to_try(i, p);
        Plan plan = place_in(order, p, work);
        // Moving one buffer often changes nothing yet: an equal result is accepted, too, to move
        // the next one.
        const bool keep =
            move_one ? plan.arena_bytes <= best.arena_bytes : plan.arena_bytes < best.arena_bytes;
        if (!keep) continue;
        best = std::move(plan);
        best_order = std::move(order);
    }
    if (best.arena_bytes > p.bound + p.bound / 100) {
        Plan plan = place_bottom_up(p.buffers, p.steps, p.bound);
        if (plan.arena_bytes < best.arena_bytes) best = std::move(plan);
    }
    return best;
}

}  // namespace

size_t peak_live_bytes(std::span<const Buffer> buffers) {
    std::vector<std::pair<uint32_t, size_t>> changes;  // step, added bytes; negative ones wrap
    for (const Buffer& b : buffers) {
        if (!needs_memory(b)) continue;
        changes.emplace_back(b.live.first, b.bytes);
        changes.emplace_back(b.live.last, size_t{0} - b.bytes);
    }
    std::sort(changes.begin(), changes.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    size_t live = 0;
    size_t peak = 0;
    for (size_t i = 0; i < changes.size(); ++i) {
        live += changes[i].second;
        const bool step_is_complete =
            i + 1 == changes.size() || changes[i + 1].first != changes[i].first;
        if (step_is_complete) peak = std::max(peak, live);
    }
    return peak;
}

Plan plan_arena(std::span<const Buffer> buffers) {
    check(buffers);
    const Problem p = problem_of(buffers);
    const Plan best = best_plan(p);
    Plan plan = {.offsets = std::vector<size_t>(buffers.size()), .arena_bytes = best.arena_bytes};
    for (size_t i = 0; i < p.index.size(); ++i) plan.offsets[p.index[i]] = best.offsets[i];
    return plan;
}

}  // namespace megjit::memory
