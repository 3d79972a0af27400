#include "memory/recompute_exact.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <unordered_map>

namespace megjit::memory {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

template <class Visit>
void for_each_bit(uint64_t set, const Visit& visit) {
    for (; set; set &= set - 1) visit(static_cast<uint32_t>(std::countr_zero(set)));
}

bool takes_room(const RecomputeSchedule& schedule, uint32_t value) {
    return schedule.producer[value] != kNone && !schedule.problem.values[value].is_kept;
}

}  // namespace

bool ExactSearch::is_possible(const RecomputeSchedule& schedule) {
    size_t count = 0;
    for (uint32_t v = 0; v < schedule.problem.values.size(); ++v) count += takes_room(schedule, v);
    const bool lets_go = std::any_of(schedule.least_levels.begin(), schedule.least_levels.end(),
                                     [](uint8_t level) { return level > 0; });
    return count <= 64 && !lets_go;
}

ExactSearch::ExactSearch(const RecomputeSchedule& schedule) : schedule_(schedule) {
    const RematProblem& problem = schedule.problem;
    const auto count = static_cast<uint32_t>(problem.steps.size());
    std::vector<Set> bit_of(problem.values.size());
    for (uint32_t v = 0; v < problem.values.size(); ++v) {
        if (!takes_room(schedule, v)) continue;
        bit_of[v] = Set{1} << bytes_.size();
        bytes_.push_back(problem.values[v].bytes);
    }
    std::vector<bool> is_overwritten(problem.values.size());
    for (uint32_t i = 0; i < count; ++i) {
        const RematStep& from = problem.steps[i];
        Step step{.cost = from.cost,
                  .bytes = from.scratch,
                  .bytes_again = from.scratch,
                  .runs_until = from.repeatable ? count : 0};
        for (uint32_t v : from.reads) {
            step.reads |= bit_of[v];
            if (schedule.overwriter[v] != kNone)
                step.runs_until = std::min(step.runs_until, schedule.overwriter[v] + 1);
            if (is_overwritten[v]) beside_ += problem.values[v].bytes;
            is_overwritten[v] = false;
        }
        for (uint32_t v : from.overwrites) is_overwritten[v] = true;
        for (uint32_t v : from.writes) {
            step.writes |= bit_of[v];
            if (bit_of[v]) step.bytes += problem.values[v].bytes;
            step.bytes_again += problem.values[v].bytes;
        }
        if (from.in_place && from.writes.size() == 1 && step.writes)
            for (uint32_t v : from.reads)
                if (problem.values[v].bytes == problem.values[from.writes[0]].bytes)
                    step.may_eat |= bit_of[v];
        steps_.push_back(step);
    }

    wanted_.resize(count + 1);
    useful_.resize(count + 1);
    must_stay_.resize(count + 1);
    cost_of_rest_.resize(count + 1);
    Set stays = 0, made = 0;
    for (uint32_t v = 0; v < problem.values.size(); ++v)
        if (bit_of[v] && !schedule.is_free(v)) stays |= bit_of[v];
    for (uint32_t done = count; done-- > 0;) {
        wanted_[done] = wanted_[done + 1] | steps_[done].reads;
        cost_of_rest_[done] = cost_of_rest_[done + 1] + steps_[done].cost;
    }
    for (uint32_t done = 0; done <= count; ++done) {
        wanted_[done] &= made;
        must_stay_[done] = wanted_[done] & stays;
        useful_[done] = wanted_[done];
        for (uint32_t i = done; i-- > 0;)
            if (steps_[i].writes & useful_[done]) useful_[done] |= steps_[i].reads;
        if (done < count) made |= steps_[done].writes;
    }
}

size_t ExactSearch::least_peak_there_may_be() const {
    size_t least = 0;
    for (uint32_t i = 0; i < steps_.size(); ++i) {
        size_t bytes = steps_[i].bytes + beside_;
        for_each_bit(steps_[i].reads | must_stay_[i], [&](uint32_t bit) { bytes += bytes_[bit]; });
        if (steps_[i].may_eat)
            bytes -= bytes_[static_cast<uint32_t>(std::countr_zero(steps_[i].may_eat))];
        least = std::max(least, bytes);
    }
    return least;
}

// A search for the cheapest plan at one peak.
class ExactRun {
public:
    using Set = ExactSearch::Set;
    ExactRun(const ExactSearch& search, size_t most_bytes, double most_cost, size_t& states)
        : s_(search), most_bytes_(most_bytes), most_cost_(most_cost), states_(states) {}

    ExactSearch::Answer run() {
        reach({}, 0, kNone, kNone);
        while (!queue_.empty()) {
            const OpenState entry = queue_.top();
            queue_.pop();
            if (nodes_[entry.node].is_closed) continue;
            nodes_[entry.node].is_closed = true;
            if (entry.done == s_.steps_.size())
                return {ExactSearch::Outcome::found, plan_of(entry.node)};
            expand(entry.node);
            if (states_ == 0) return {ExactSearch::Outcome::gave_up};
        }
        return {ExactSearch::Outcome::none};
    }

private:
    struct State {
        uint32_t done = 0;
        Set there = 0;
        bool operator==(const State&) const = default;
    };
    struct Hash {
        size_t operator()(const State& state) const {
            const uint64_t mixed =
                (state.there ^ (state.there >> 29) ^ (uint64_t{state.done} << 57)) *
                0x9E3779B97F4A7C15ull;
            return mixed ^ (mixed >> 32);
        }
    };
    struct Node {
        State state;
        double cost = 0;
        uint32_t parent = kNone, step = kNone;
        bool is_closed = false;
    };
    struct OpenState {
        double estimate = 0;
        uint32_t done = 0, node = 0;
        bool operator<(const OpenState& other) const {  // the queue takes the greatest first
            return estimate != other.estimate ? estimate > other.estimate
                   : done != other.done       ? done < other.done
                                              : node < other.node;
        }
    };

    // Least cost of repeated runs from here on: values that the rest reads and that are missing are
    // computed once, and so are the values that they need. kNever: this is impossible.
    double cost_again(const State& state, Set* missing = nullptr) const {
        Set needed = s_.wanted_[state.done] & ~state.there;
        if (missing) *missing = needed;
        double cost = 0;
        for (uint32_t i = state.done; needed && i-- > 0;) {
            const ExactSearch::Step& step = s_.steps_[i];
            if (!(step.writes & needed)) continue;
            if (state.done >= step.runs_until) return kNever;
            cost += step.cost;
            needed = (needed & ~step.writes) | (step.reads & ~state.there);
            if (missing) *missing |= needed;
        }
        return cost;
    }

    void reach(State state, double cost, uint32_t parent, uint32_t step) {
        if (states_ == 0) return;
        --states_;
        state.there &= s_.useful_[state.done];
        const double rest = s_.cost_of_rest_[state.done] + cost_again(state);
        if (cost + rest > most_cost_) return;
        const auto [found, is_new] =
            node_of_.try_emplace(state, static_cast<uint32_t>(nodes_.size()));
        if (is_new) nodes_.push_back({.state = state});
        Node& node = nodes_[found->second];
        if (!is_new && (node.is_closed || node.cost <= cost)) return;
        node.cost = cost, node.parent = parent, node.step = step;
        queue_.push({cost + (1 + ExactSearch::kLoss) * rest, state.done, found->second});
    }

    void expand(uint32_t node) {
        const State state = nodes_[node].state;
        try_step(node, state.done);
        Set missing = 0;
        cost_again(state, &missing);
        for (uint32_t i = 0; i < state.done; ++i)
            if ((s_.steps_[i].writes & missing) && !(s_.steps_[i].reads & ~state.there))
                try_step(node, i);
    }

    // Runs step i next, once enough values are dropped.
    void try_step(uint32_t node, uint32_t i) {
        const State from = nodes_[node].state;
        const ExactSearch::Step& step = s_.steps_[i];
        if (step.reads & ~from.there) return;
        move_.node = node, move_.step = i;
        move_.after = {i == from.done ? i + 1 : from.done, from.there | step.writes};
        size_t bytes = (i == from.done ? step.bytes : step.bytes_again) + s_.beside_;
        for_each_bit(from.there & ~step.writes, [&](uint32_t bit) { bytes += s_.bytes_[bit]; });
        if (bytes <= most_bytes_) return reach(move_.after, nodes_[node].cost + step.cost, node, i);
        const Set stays = s_.must_stay_[move_.after.done];
        move_.may_go.clear();
        for_each_bit(from.there & ~step.writes & ~step.reads & ~stays,
                     [&](uint32_t bit) { move_.may_go.push_back(bit); });
        std::sort(move_.may_go.begin(), move_.may_go.end(), [&](uint32_t a, uint32_t b) {
            return s_.bytes_[a] != s_.bytes_[b] ? s_.bytes_[a] > s_.bytes_[b] : a < b;
        });
        move_.bytes_from.assign(move_.may_go.size() + 1, 0);
        for (size_t m = move_.may_go.size(); m-- > 0;)
            move_.bytes_from[m] = move_.bytes_from[m + 1] + s_.bytes_[move_.may_go[m]];
        const size_t excess = bytes - most_bytes_;
        let_go(0, move_.after.there, excess);
        for_each_bit(step.may_eat & ~stays, [&](uint32_t bit) {
            let_go(0, move_.after.there & ~(Set{1} << bit),
                   excess - std::min(excess, s_.bytes_[bit]));
        });
    }

    // Tries all smallest sets of values with `excess` bytes.
    void let_go(size_t first, Set there, size_t excess) {
        const double cost = nodes_[move_.node].cost + s_.steps_[move_.step].cost;
        if (excess == 0) return reach({move_.after.done, there}, cost, move_.node, move_.step);
        for (size_t i = first; move_.bytes_from[i] >= excess && states_ > 0; ++i) {
            --states_;
            const uint32_t bit = move_.may_go[i];
            const State then{move_.after.done, there & ~(Set{1} << bit)};
            if (cost + s_.cost_of_rest_[then.done] + cost_again(then) > most_cost_) continue;
            let_go(i + 1, then.there, excess - std::min(excess, s_.bytes_[bit]));
        }
    }

    RematPlan plan_of(uint32_t node) const {
        std::vector<uint32_t> order;
        for (; nodes_[node].step != kNone; node = nodes_[node].parent)
            order.push_back(nodes_[node].step);
        std::reverse(order.begin(), order.end());
        return s_.schedule_.measured(std::move(order));
    }

    struct Move {
        uint32_t node = 0, step = 0;
        State after = {};
        std::vector<uint32_t> may_go = {};  // largest first
        std::vector<size_t> bytes_from = {};  // bytes of each of these and all after it
    };

    const ExactSearch& s_;
    const size_t most_bytes_;
    const double most_cost_;
    size_t& states_;
    std::vector<Node> nodes_;
    std::unordered_map<State, uint32_t, Hash> node_of_;
    std::priority_queue<OpenState> queue_;
    Move move_;
};

ExactSearch::Answer ExactSearch::cheapest(size_t most_bytes, double most_cost,
                                          size_t& states) const {
    return ExactRun(*this, most_bytes, most_cost, states).run();
}

namespace {

constexpr size_t kStates = 500'000;  // for one problem: less than half a second
constexpr size_t kStatesOfOnePeak = kStates / 8;
constexpr double kNextCost = 1.01;  // plans whose costs differ by less count as one
constexpr double kFirstStride = 0.01;  // as a part of the peak

// Goes down from the plain order's peak, in strides that grow where costs hardly grow.
class Descent {
public:
    Descent(const RecomputeSchedule& schedule, std::vector<RematPlan> known, double most_cost)
        : search_(schedule),
          known_(std::move(known)),
          most_cost_(most_cost * known_.front().cost) {}

    std::vector<RematPlan> run() {
        std::vector<RematPlan> plans = {known_.front()};
        while (std::optional<RematPlan> next = cheapest_below(plans.back().peak_bytes)) {
            const double most = kNextCost * next->cost;
            for (double stride = kFirstStride;; stride *= 2) {
                const std::optional<RematPlan> further = cheapest_below(static_cast<size_t>(
                    static_cast<double>(next->peak_bytes) * std::max(0.0, 1 - stride)));
                if (!further || further->cost > most) break;
                next = further;
            }
            while (plans.size() > 1 && plans.back().cost >= next->cost) plans.pop_back();  // kLoss
            plans.push_back(*std::move(next));
        }
        return plans;
    }

private:
    // Returns nothing if there is no plan, or none was found. A known plan may have another order.
    std::optional<RematPlan> cheapest_below(size_t bytes) {
        const auto known = std::find_if(known_.begin(), known_.end(), [&](const RematPlan& plan) {
            return plan.peak_bytes < bytes;
        });
        if (bytes > least_) {
            const double most = known != known_.end() ? known->cost : most_cost_;
            size_t states = std::min(states_, kStatesOfOnePeak);
            states_ -= states;
            ExactSearch::Answer answer = search_.cheapest(bytes - 1, most, states);
            states_ += states;
            if (answer.outcome == ExactSearch::Outcome::found) return answer.plan;
        }
        if (known != known_.end()) return *known;
        return std::nullopt;
    }

    ExactSearch search_;
    std::vector<RematPlan> known_;
    size_t least_ = search_.least_peak_there_may_be();
    double most_cost_;
    size_t states_ = kStates;
};

}  // namespace

std::vector<RematPlan> improve_exactly(const RecomputeSchedule& schedule,
                                       std::vector<RematPlan> plans, double most_cost) {
    return Descent(schedule, std::move(plans), most_cost).run();
}

}  // namespace megjit::memory
