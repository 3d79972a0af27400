#include "memory/step_order.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "memory/recompute_schedule.h"

namespace megjit::memory {
namespace {

using Order = std::vector<uint32_t>;

// A wholly different order must lower the peak by one part in kLeastGain: it separates steps that
// recomputation had better keep together.
constexpr size_t kLeastGain = 20;

// Steps that belong to an update: they run behind all that the update waits for.
struct Updates {
    std::vector<uint32_t> of_step;  // by step: its update, or kNone
    std::vector<Order> waits;  // by update: steps outside of it
    // By step: updates read numbers that it makes of kept values alone (a correction by the count
    // of steps). Such a step runs as soon as it can.
    std::vector<bool> makes_numbers;
    size_t bytes = 0;  // of the values that they end
};

// A step that moves goes into the group of the last step that it waits for, and runs right after
// that; a step that does not move begins a group.
class Mover {
public:
    explicit Mover(const RematProblem& problem, const Updates* updates = nullptr)
        : s_(problem), updates_(updates), group_(problem.steps.size()) {
        std::iota(group_.begin(), group_.end(), 0u);
    }

    Order run() {
        for (uint32_t step = 0; step < group_.size(); ++step) {
            const Place earliest = earliest_place(step);
            if (updates_ && updates_->makes_numbers[step])
                group_[step] = earliest.second == kNone ? 0 : earliest.first;
            else if (earliest.second != kNone && (update_of(step) || frees_enough(step, earliest)))
                group_[step] = earliest.first;
        }
        Order order(group_.size());
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return place(a) < place(b); });
        return order;
    }

private:
    using Place = std::pair<uint32_t, uint32_t>;  // (group, step): the order of running
    Place place(uint32_t step) const { return {group_[step], step}; }

    const Order* update_of(uint32_t step) const {
        const bool is_part = updates_ && updates_->of_step[step] != kNone;
        return is_part ? &updates_->waits[updates_->of_step[step]] : nullptr;
    }

    // The place after the makers of what the step reads, and after the readers of what it
    // overwrites.
    Place earliest_place(uint32_t step) const {
        Place latest{0, kNone};
        const auto wait_for = [&](uint32_t other) {
            if (other < step && (latest.second == kNone || latest < place(other)))
                latest = place(other);
        };
        for (uint32_t v : s_.reads[step])
            if (s_.producer[v] != kNone) wait_for(s_.producer[v]);
        for (uint32_t v : s_.problem.steps[step].overwrites)
            for (uint32_t reader : s_.readers[v]) wait_for(reader);
        if (const Order* waits = update_of(step))
            for (uint32_t other : *waits) wait_for(other);
        return latest;
    }

    bool frees_enough(uint32_t step, Place earliest) const {
        size_t freed = 0, taken = 0;
        for (uint32_t v : s_.reads[step]) {
            const auto is_done = [&](uint32_t reader) {
                return reader == step || (reader < step && place(reader) <= earliest);
            };
            if (s_.is_free(v) && std::all_of(s_.readers[v].begin(), s_.readers[v].end(), is_done))
                freed += s_.problem.values[v].bytes;
        }
        for (uint32_t v : s_.writes[step])
            if (!s_.problem.values[v].is_kept) taken += s_.problem.values[v].bytes;
        return s_.problem.steps[step].repeatable && freed > 0 && freed >= taken;
    }

    RecomputeSchedule s_;
    const Updates* updates_;
    std::vector<uint32_t> group_;  // by step: the step that begins its group
};

// Finds updates, and the steps that make numbers for them, which belong to none.
class UpdateFinder {
public:
    explicit UpdateFinder(const RecomputeSchedule& schedule)
        : s_(schedule),
          is_number_(s_.problem.values.size()),
          is_own_(s_.problem.values.size()),
          found_{.of_step = Order(s_.problem.steps.size(), kNone),
                 .waits = {},
                 .makes_numbers = std::vector<bool>(s_.problem.steps.size()),
                 .bytes = 0} {
        for (uint32_t step = 0; step < s_.problem.steps.size(); ++step) {
            if (!reads_what_stays(step)) continue;
            const bool is_number = found_.makes_numbers[step] = makes_numbers(step);
            for (uint32_t v : s_.writes[step]) (is_number ? is_number_ : is_own_)[v] = true;
        }
    }

    Updates run() {
        for (uint32_t v = 0; v < s_.problem.values.size(); ++v)
            if (!is_kept(v) && !is_number_[v] && !s_.readers[v].empty())
                if (const std::set<uint32_t> steps = steps_of(v); !steps.empty()) add(v, steps);
        return std::move(found_);
    }

private:
    static constexpr size_t kNumber = 16;  // bytes
    static constexpr size_t kMostSteps = 128;

    bool is_kept(uint32_t v) const {
        return s_.producer[v] == kNone || s_.problem.values[v].is_kept;
    }
    bool reads_what_stays(uint32_t step) const {
        return s_.problem.steps[step].movable &&
               std::ranges::all_of(s_.reads[step], [&](uint32_t v) {
            return is_kept(v) || is_number_[v] || is_own_[v];
        });
    }
    bool makes_numbers(uint32_t step) const {
        return std::ranges::all_of(s_.writes[step], [&](uint32_t v) {
            return s_.problem.values[v].bytes <= kNumber;
        }) && std::ranges::none_of(s_.reads[step], [&](uint32_t v) { return is_own_[v]; });
    }

    // The steps that end `root`; none where something else needs what they make.
    std::set<uint32_t> steps_of(uint32_t root) const {
        std::set<uint32_t> steps, open(s_.readers[root].begin(), s_.readers[root].end());
        std::set<uint32_t> made{root};
        while (!open.empty()) {
            const uint32_t step = *open.begin();
            open.erase(open.begin());
            if (!s_.problem.steps[step].movable || steps.size() == kMostSteps) return {};
            if (!steps.insert(step).second) continue;
            for (uint32_t v : s_.reads[step]) {
                if (is_kept(v) || is_number_[v] || made.contains(v)) continue;
                // An update's own values are made behind the gradient.
                if (!is_own_[v] || s_.producer[v] < s_.producer[root]) return {};
                open.insert(s_.producer[v]);
                made.insert(v);
            }
            for (uint32_t v : s_.writes[step]) {
                if (is_kept(v)) continue;
                made.insert(v);
                for (uint32_t reader : s_.readers[v])
                    if (!steps.contains(reader)) open.insert(reader);
            }
        }
        return steps;
    }

    // An update that is part of a longer one stays in that.
    void add(uint32_t root, const std::set<uint32_t>& steps) {
        if (found_.of_step[*steps.begin()] != kNone) return;
        Order waits{s_.producer[root]};
        for (uint32_t step : steps) {
            found_.of_step[step] = static_cast<uint32_t>(found_.waits.size());
            for (uint32_t v : s_.problem.steps[step].overwrites)
                for (uint32_t reader : s_.readers[v])
                    if (!steps.contains(reader)) waits.push_back(reader);
        }
        found_.waits.push_back(std::move(waits));
        found_.bytes += s_.problem.values[root].bytes;
    }

    const RecomputeSchedule& s_;
    // By value: numbers that are made of what is kept, and other values that are (a decayed
    // average).
    std::vector<bool> is_number_, is_own_;
    Updates found_;
};

// Lists steps anew, each when all steps that it needs are done. Steps that are not repeatable keep
// their order.
class Lister {
public:
    explicit Lister(const RecomputeSchedule& schedule)
        : s_(schedule), before_(schedule.problem.steps.size()), behind_(before_.size()) {
        uint32_t last_fixed = kNone;
        for (uint32_t step = 0; step < before_.size(); ++step) {
            for (uint32_t v : s_.reads[step])
                if (s_.producer[v] != kNone) wait(step, s_.producer[v]);
            for (uint32_t v : s_.problem.steps[step].overwrites)
                for (uint32_t reader : s_.readers[v])
                    if (reader < step) wait(step, reader);
            if (s_.problem.steps[step].repeatable) continue;
            if (last_fixed != kNone) wait(step, last_fixed);
            last_fixed = step;
        }
    }

    enum class Rule { kLeast, kLatest };

    // kLeast: the step that adds the fewest bytes is next. kLatest: a step that adds none is next,
    // else the one that became ready last: so a branch is followed to its end.
    Order list(Rule rule) const {
        Order order;
        std::vector<int64_t> net = added_bytes(), since(net.size());
        std::vector<size_t> waits(net.size()), left(s_.problem.values.size());
        std::vector<char> is_listed(net.size());
        for (uint32_t v = 0; v < left.size(); ++v) left[v] = s_.readers[v].size();
        std::set<std::tuple<int64_t, int64_t, uint32_t>> ready;
        const auto key = [&](uint32_t step) {
            const bool by_bytes = rule == Rule::kLeast || net[step] <= 0;
            return std::tuple(by_bytes ? net[step] : 1, by_bytes ? 0 : -since[step], step);
        };
        for (uint32_t step = 0; step < net.size(); ++step)
            if ((waits[step] = before_[step].size()) == 0) ready.insert(key(step));
        while (!ready.empty()) {
            const uint32_t step = std::get<2>(*ready.begin());
            ready.erase(ready.begin());
            order.push_back(step);
            is_listed[step] = true;
            for (uint32_t v : once(s_.reads[step])) {
                if (--left[v] != 1 || !takes_room(v)) continue;
                const uint32_t last =
                    *std::find_if(s_.readers[v].begin(), s_.readers[v].end(),
                                  [&](uint32_t reader) { return !is_listed[reader]; });
                const bool was_ready = ready.erase(key(last)) != 0;
                net[last] -= bytes(v);
                if (was_ready) ready.insert(key(last));
            }
            for (uint32_t next : behind_[step])
                if (--waits[next] == 0) {
                    since[next] = static_cast<int64_t>(order.size());
                    ready.insert(key(next));
                }
        }
        return order;
    }

    // Lists what a step needs right before it, branch by branch.
    Order list_as_needed() const {
        Order order, stack;
        std::vector<size_t> next_need(before_.size());
        std::vector<char> is_listed(before_.size());
        for (uint32_t end = 0; end < before_.size(); ++end) {
            if (!behind_[end].empty()) continue;
            stack.push_back(end);
            while (!stack.empty()) {
                const uint32_t step = stack.back();
                if (next_need[step] < before_[step].size()) {
                    stack.push_back(before_[step][next_need[step]++]);
                    continue;
                }
                stack.pop_back();
                if (!is_listed[step]) order.push_back(step);
                is_listed[step] = true;
            }
        }
        return order;
    }

private:
    void wait(uint32_t step, uint32_t other) {
        if (step == other ||
            std::find(before_[step].begin(), before_[step].end(), other) != before_[step].end())
            return;
        before_[step].push_back(other);
        behind_[other].push_back(step);
    }

    bool takes_room(uint32_t v) const {
        return s_.producer[v] != kNone && !s_.problem.values[v].is_kept;
    }
    int64_t bytes(uint32_t v) const { return static_cast<int64_t>(s_.problem.values[v].bytes); }

    static Order once(std::span<const uint32_t> list) {
        Order ids(list.begin(), list.end());
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        return ids;
    }

    // Returns for each step the bytes that it makes, less those that only it reads.
    std::vector<int64_t> added_bytes() const {
        std::vector<int64_t> net(before_.size());
        for (uint32_t v = 0; v < s_.problem.values.size(); ++v) {
            if (!takes_room(v)) continue;
            if (!s_.readers[v].empty()) net[s_.producer[v]] += bytes(v);
            if (s_.readers[v].size() == 1) net[s_.readers[v][0]] -= bytes(v);
        }
        return net;
    }

    const RecomputeSchedule& s_;
    std::vector<Order> before_, behind_;  // by step
};

}  // namespace

RematProblem in_order(const RematProblem& problem, const Order& order) {
    RematProblem moved{.values = problem.values};
    for (uint32_t step : order) moved.steps.push_back(problem.steps[step]);
    return moved;
}

std::vector<uint32_t> early_updates(const RematProblem& problem) {
    constexpr size_t kWorthwhile = 8;  // the gradients take such a part of the peak, or more
    const RecomputeSchedule schedule(problem);
    const Updates updates = UpdateFinder(schedule).run();
    Order plain(problem.steps.size());
    std::iota(plain.begin(), plain.end(), 0u);
    const size_t peak = schedule.measured(plain).peak_bytes;
    if (updates.bytes * kWorthwhile < peak) return {};
    Order order = Mover(problem, &updates).run();
    const bool is_larger = schedule.measured(order).peak_bytes > peak + peak / kLeastGain;
    return is_larger || std::ranges::is_sorted(order) ? Order() : order;
}

std::vector<uint32_t> order_for_peak(const RematProblem& problem) {
    const RecomputeSchedule schedule(problem);
    const auto peak_of = [&](const Order& order) { return schedule.measured(order).peak_bytes; };
    Order best(problem.steps.size());
    std::iota(best.begin(), best.end(), 0u);
    size_t best_peak = peak_of(best);
    const auto consider = [&](Order order, size_t wanted) {
        const size_t peak = peak_of(order);
        if (peak >= wanted) return;
        best = std::move(order);
        best_peak = peak;
    };
    consider(Mover(problem).run(), best_peak);
    // Steps of a region must stay together.
    if (std::any_of(problem.steps.begin(), problem.steps.end(),
                    [](const RematStep& step) { return step.region != 0; }))
        return best;
    const Lister lister(schedule);
    for (const Order& order : {lister.list(Lister::Rule::kLeast),
                               lister.list(Lister::Rule::kLatest), lister.list_as_needed()}) {
        consider(order, best_peak - best_peak / kLeastGain);
        Order moved = Mover(in_order(problem, order)).run();
        for (uint32_t& step : moved) step = order[step];
        consider(std::move(moved), best_peak - best_peak / kLeastGain);
    }
    return best;
}

}  // namespace megjit::memory
