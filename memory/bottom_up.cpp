#include "memory/bottom_up.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include "memory/occupancy.h"
#include "memory/round_up.h"

namespace megjit::memory {
namespace {

// How to choose the next buffer among those that fit without too large a gap.
enum class Rule : uint8_t { kLowest, kLongest, kFullest };
constexpr int kRules = 3;

// Builds the arena from its start upwards: each buffer lies on those that were placed before it, so
// that a gap is lost once something lies over it. The bytes lost in a step and those still to come
// there show at once whether the arena can keep its size: a buffer that would spoil that waits for
// others that belong below it.
class Stack {
public:
    explicit Stack(std::vector<Buffer> buffers)
        : buffers_(std::move(buffers)), states_(buffers_.size()) {
        weights_.fill(std::vector<double>(buffers_.size(), 1));
        steps_ = count_in_starts(buffers_);
    }

    // Buffers that ended above `bytes` get more weight the next time that `rule` chooses. How much
    // more is random, for equal increments lead around in a circle.
    void learn(Rule rule, size_t bytes) {
        for (size_t i = 0; i < states_.size(); ++i)
            if (states_[i].offset + buffers_[i].bytes > bytes)
                weights_[static_cast<size_t>(rule)][i] *=
                    1 + 0.0006 * static_cast<double>(random_() % 1000);
    }

    // Returns the arena's bytes.
    size_t build(Rule rule, size_t target) {
        rest_.assign(steps_, 0);
        for (const Buffer& b : buffers_)
            for (uint32_t step = b.live.first; step < b.live.last; ++step) rest_[step] += b.bytes;
        states_.assign(buffers_.size(), {});
        waiting_.resize(buffers_.size());
        std::iota(waiting_.begin(), waiting_.end(), 0u);
        size_t top = 0;
        while (!waiting_.empty()) {
            const size_t k = choose(rule, target);
            const uint32_t chosen = waiting_[k];
            waiting_[k] = waiting_.back();
            waiting_.pop_back();
            top = std::max(top, put(chosen));
        }
        return top;
    }

    size_t offset(size_t i) const { return states_[i].offset; }

private:
    struct State {
        size_t offset =
            0;  // the lowest possible one: above all placed buffers that live at the same time
        size_t most_rest = 0;  // bytes that are still to come, in the step with most of them
        bool is_stale = true;  // most_rest may have become smaller
    };

    size_t choose(Rule rule, size_t target) {
        // Nothing need be placed yet above the lowest end of a waiting buffer.
        size_t lowest_end = std::numeric_limits<size_t>::max();
        for (const uint32_t i : waiting_)
            lowest_end = std::min(lowest_end, states_[i].offset + buffers_[i].bytes);
        size_t best = 0;
        Key best_key{std::numeric_limits<double>::infinity(), 0, 0, 0};
        for (size_t k = 0; k < waiting_.size(); ++k) {
            if (states_[waiting_[k]].offset >= lowest_end) continue;
            const Key key = key_of(waiting_[k], rule, target);
            if (key >= best_key) continue;
            best = k;
            best_key = key;
        }
        return best;
    }

    using Key = std::tuple<double, double, double, double>;  // the smallest key is next
    Key key_of(uint32_t i, Rule rule, size_t target) {
        State& state = states_[i];
        const Buffer& b = buffers_[i];
        if (state.is_stale && (rule == Rule::kFullest || state.offset + state.most_rest > target ||
                               state.most_rest == 0)) {
            state.most_rest =
                *std::max_element(rest_.begin() + b.live.first, rest_.begin() + b.live.last);
            state.is_stale = false;
        }
        const size_t height = state.offset + state.most_rest;
        const double over = height > target ? static_cast<double>(height - target) : 0;
        const double offset = static_cast<double>(state.offset),
                     bytes = static_cast<double>(b.bytes);
        const double weight = weights_[static_cast<size_t>(rule)][i];
        const double steps = b.live.last - b.live.first;
        switch (rule) {
            case Rule::kLowest: return {over, offset, -steps * bytes * weight, -bytes};
            case Rule::kLongest: return {over, -steps * weight, offset, -bytes};
            default: return {over, -static_cast<double>(height) * weight, -steps, offset};
        }
    }

    size_t put(uint32_t i) {
        const Buffer& b = buffers_[i];
        const size_t end = states_[i].offset + b.bytes;
        for (uint32_t step = b.live.first; step < b.live.last; ++step) rest_[step] -= b.bytes;
        for (const uint32_t j : waiting_) {
            if (!buffers_[j].live.overlaps(b.live)) continue;
            states_[j].offset = std::max(states_[j].offset, round_up(end, buffers_[j].align));
            states_[j].is_stale = true;
        }
        return end;
    }

    std::vector<Buffer> buffers_;
    std::vector<State> states_;
    std::array<std::vector<double>, kRules> weights_;
    uint32_t steps_ = 0;
    std::vector<size_t> rest_;  // for each step: bytes still to come
    std::vector<uint32_t> waiting_;
    std::mt19937 random_{1};
};

// Places the stacked buffers as the stack says, and the others into gaps.
Plan fill_gaps(const Stack& stack, size_t stacked, const std::vector<uint32_t>& order,
               std::span<const Buffer> buffers, uint32_t steps, size_t& work) {
    Plan plan = {.offsets = std::vector<size_t>(buffers.size())};
    Occupancy occupancy(steps);
    for (size_t k = 0; k < order.size(); ++k) {
        const Buffer& b = buffers[order[k]];
        const size_t offset =
            k < stacked ? stack.offset(k) : occupancy.lowest_fit(b.live, b.bytes, b.align);
        occupancy.place(b.live, offset, b.bytes);
        plan.offsets[order[k]] = offset;
        plan.arena_bytes = std::max(plan.arena_bytes, offset + b.bytes);
    }
    work += occupancy.lookups();
    return plan;
}

}  // namespace

uint32_t count_in_starts(std::vector<Buffer>& buffers) {
    std::vector<uint32_t> starts;
    for (const Buffer& b : buffers) starts.push_back(b.live.first);
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    const auto rank = [&](uint32_t step) {
        return static_cast<uint32_t>(std::lower_bound(starts.begin(), starts.end(), step) -
                                     starts.begin());
    };
    for (Buffer& b : buffers) b.live = {rank(b.live.first), rank(b.live.last)};
    return static_cast<uint32_t>(starts.size());
}

Plan place_bottom_up(std::span<const Buffer> buffers, uint32_t steps, size_t bound) {
    constexpr size_t kMost = 1500;  // smaller ones fill gaps
    constexpr size_t kBudget = 90'000'000, kAttempts = 200;
    std::vector<uint32_t> order(buffers.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t i, uint32_t j) { return buffers[i].bytes > buffers[j].bytes; });
    std::vector<Buffer> large;
    for (const uint32_t i : order)
        if (large.size() < kMost && buffers[i].bytes >= bound / 1024) large.push_back(buffers[i]);
    Stack stack(large);

    // The longer it takes, the less it demands: an excess of half a per cent at first, of two at
    // the end.
    Plan best;
    const auto is_good = [&](size_t attempt) {
        return best.arena_bytes <= bound + bound / 1000 * std::min<size_t>(5 + attempt, 20);
    };
    size_t work = 0;
    for (size_t attempt = 0;
         attempt < kAttempts && work < kBudget && (attempt == 0 || !is_good(attempt)); ++attempt) {
        const auto rule = static_cast<Rule>(attempt % kRules);
        const size_t target = bound + bound / 200 * (attempt / kRules % 5);
        const size_t top = stack.build(rule, target);
        stack.learn(rule, bound);
        work += large.size() * large.size();
        if (attempt != 0 && top >= best.arena_bytes) continue;
        Plan plan = fill_gaps(stack, large.size(), order, buffers, steps, work);
        if (attempt == 0 || plan.arena_bytes < best.arena_bytes) best = std::move(plan);
    }
    return best;
}

}  // namespace megjit::memory
