#include "memory/recompute_greedy.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace megjit::memory {
namespace {

constexpr double kStride = 0.015;  // one round lowers the peak by this part, if it can
constexpr int kMostIdleRounds = 24;  // rounds without a smaller peak before the search stops
constexpr double kSteps = 5000;  // number of steps; with more of them, rounds are fewer and strides
                                 // longer, as long as each helps

// A set of steps that is emptied at once.
class Marks {
public:
    explicit Marks(size_t steps) : marked_(steps) {}
    void clear() { ++now_; }
    bool add(uint32_t step) { return std::exchange(marked_[step], now_) != now_; }  // is it new?

private:
    std::vector<uint32_t> marked_;  // by step
    uint32_t now_ = 1;
};

// Components of steps that are recomputed together, as far as one round knows.
class Components {
public:
    Components(const RecomputeSchedule& schedule, const Levels& levels, const Simulation& now)
        : s_(schedule),
          up_(schedule.problem.steps.size()),
          cost_(up_.size()),
          bytes_(up_.size()),
          needed_at_(up_.size(), kNone),
          level_(up_.size()),
          on_path_(up_.size()) {
        std::iota(up_.begin(), up_.end(), 0u);
        for (uint32_t step = 0; step < up_.size(); ++step)
            cost_[step] = s_.problem.steps[step].cost;
        for (uint32_t gap = 0; gap < levels.size(); ++gap)
            if (levels[gap] && !s_.is_tail(gap))
                add(gap, levels[gap], now.position_of[s_.gaps[gap].to]);
    }

    uint32_t find(uint32_t step) {
        while (up_[step] != step) step = up_[step] = up_[up_[step]];
        return step;
    }
    uint8_t level(uint32_t step) const { return level_[step]; }
    double cost(uint32_t root) const { return cost_[root]; }
    size_t bytes(uint32_t root) const { return bytes_[root]; }
    uint32_t needed_at(uint32_t root) const { return needed_at_[root]; }

    // Notes that the gap now has `level`.
    void add(uint32_t gap, uint8_t level, uint32_t needed_at) {
        const uint32_t value = s_.gaps[gap].value, step = s_.producer[value];
        const bool is_new = level_[step] < level;
        level_[step] = std::max(level_[step], level);
        const uint32_t root = find(step);
        if (is_new && level == 1) bytes_[root] += s_.problem.values[value].bytes;
        needed_at_[root] = std::min(needed_at_[root], needed_at);
        if (is_new)
            for_each_neighbour(gap, level, [&](uint32_t other, bool) { join(step, other); });
    }

    // Visits steps that run again with this one: makers of operands that are missing by then, and
    // readers of results. Between two dropped values there may be values that nobody reads later
    // anyway.
    template <class Visit>
    void for_each_neighbour(uint32_t gap, uint8_t level, const Visit& visit) {
        const uint32_t step = s_.producer[s_.gaps[gap].value], to = s_.gaps[gap].to;
        const auto is_gone = [&](uint32_t v) {
            return s_.last_reader[v] < to && level_[s_.producer[v]] == 0;
        };
        start_path(step);
        for (size_t next = 0; next < path_.size() && next < kMostSteps; ++next)
            for (uint32_t v : s_.reads[path_[next]]) {
                if (!s_.is_free(v)) continue;
                const uint32_t maker = s_.producer[v];
                if (level_[maker] >= level) visit(maker, true);
                else if (is_gone(v) && on_path_.add(maker)) {
                    visit(maker, true);
                    path_.push_back(maker);
                }
            }
        start_path(step);
        for (size_t next = 0; next < path_.size() && next < kMostSteps; ++next)
            for (uint32_t v : s_.writes[path_[next]])
                for (uint32_t reader : s_.readers[v]) {
                    if (level_[reader] >= level) visit(reader, false);
                    else if (reader < to && is_passed_through(reader, to) && on_path_.add(reader))
                        path_.push_back(reader);
                }
    }

private:
    static constexpr size_t kMostSteps =
        16;  // chains of values that nobody keeps are rarely longer

    void start_path(uint32_t step) {
        path_.assign(1, step);
        on_path_.clear();
        on_path_.add(step);
    }

    // Are all its results read before step `to`, and none of them dropped?
    bool is_passed_through(uint32_t step, uint32_t to) const {
        return level_[step] == 0 && s_.last_reader_of[step] < to;
    }

    void join(uint32_t a, uint32_t b) {
        a = find(a), b = find(b);
        if (a == b) return;
        up_[b] = a;
        cost_[a] += cost_[b];
        bytes_[a] += bytes_[b];
        needed_at_[a] = std::min(needed_at_[a], needed_at_[b]);
    }

    const RecomputeSchedule& s_;
    std::vector<uint32_t> up_;
    std::vector<double> cost_;
    std::vector<size_t> bytes_;  // bytes of dropped values
    std::vector<uint32_t> needed_at_;  // position of the first recomputation
    std::vector<uint8_t> level_;  // by step
    std::vector<uint32_t> path_;
    Marks on_path_;
};

// One round: drops values that wait across positions where most bytes are alive.
class Round {
public:
    Round(const RecomputeSchedule& schedule, Levels& levels, const Simulation& now,
          const GreedyOptions& options, double stride)
        : s_(schedule),
          levels_(levels),
          now_(now),
          options_(options),
          parts_(schedule, levels, now),
          bytes_at_(now.bytes_at),
          seen_(schedule.problem.steps.size()),
          goal_(static_cast<size_t>(static_cast<double>(now.plan.peak_bytes) * (1 - stride))) {
        if (goal_ == now.plan.peak_bytes && goal_) --goal_;
        for (uint32_t p = 0; p < bytes_at_.size(); ++p)
            if (bytes_at_[p] > goal_) over_.push_back(p);
    }

    // Returns whether anything changes.
    bool run(bool ahead) {
        struct Candidate {
            double score = 0;
            uint32_t wait = 0;
            bool operator<(const Candidate& other) const {
                return score != other.score ? score < other.score : wait > other.wait;
            }
        };
        std::priority_queue<Candidate> queue;
        for (uint32_t w = 0; w < now_.waits.size(); ++w)
            if (may_let_go(now_.waits[w]) && helps(now_.waits[w]))
                queue.push({score(now_.waits[w]), w});
        bool any = false;
        while (!queue.empty()) {
            const Candidate best = queue.top();
            queue.pop();
            const Wait& wait = now_.waits[best.wait];
            if (!helps(wait)) continue;
            // Values dropped meanwhile can only have lowered its score.
            const double again = score(wait);
            if (again < best.score) {
                queue.push({again, best.wait});
                continue;
            }
            if (ahead && makes_a_new_peak(wait)) continue;
            let_go(wait);
            any = true;
            if (!ahead) break;  // without looking ahead, only one at a time
        }
        return any;
    }

private:
    const RematValue& value(const Wait& wait) const {
        return s_.problem.values[s_.gaps[wait.gap].value];
    }

    bool may_let_go(const Wait& wait) const {
        return s_.may_drop[wait.gap] && levels_[wait.gap] < options_.most_level;
    }

    // Does it wait at a position where more than the goal is alive?
    bool helps(const Wait& wait) const {
        for (auto p = std::upper_bound(over_.begin(), over_.end(), wait.from);
             p != over_.end() && *p < wait.to; ++p)
            if (bytes_at_[*p] > goal_) return true;
        return false;
    }

    double score(const Wait& wait) {
        const uint32_t step = s_.producer[s_.gaps[wait.gap].value];
        const auto level = static_cast<uint8_t>(levels_[wait.gap] + 1);
        double own = s_.problem.steps[step].cost, around = 0;
        seen_.clear();
        seen_.add(parts_.find(step));
        parts_.for_each_neighbour(wait.gap, level, [&](uint32_t other, bool is_operand) {
            const uint32_t root = parts_.find(other);
            if (!seen_.add(root)) return;
            if (is_operand && parts_.level(other) == 0)
                own += s_.problem.steps[other].cost;  // its operand is gone: it runs for this alone
            else around += parts_.cost(root);
        });
        const double cost = own + options_.neighbourhood * around;
        const double room = static_cast<double>(value(wait).bytes) * (wait.to - wait.from);
        return cost > 0 ? room / cost : room * 1e30;
    }

    // When the value is joined with dropped values around it, all of them are computed at once,
    // where the first is needed: is that a new peak?
    bool makes_a_new_peak(const Wait& wait) {
        size_t before = 0, first_need = bytes_at_[wait.to];
        seen_.clear();
        parts_.for_each_neighbour(wait.gap, 1, [&](uint32_t other, bool is_operand) {
            const uint32_t root = parts_.find(other);
            if (!seen_.add(root)) return;
            if (is_operand) before += parts_.bytes(root);
            else if (parts_.needed_at(root) < bytes_at_.size())
                first_need = std::max(first_need, bytes_at_[parts_.needed_at(root)]);
        });
        return levels_[wait.gap] == 0 && first_need + before > now_.plan.peak_bytes;
    }

    void let_go(const Wait& wait) {
        const auto level = ++levels_[wait.gap];
        parts_.add(wait.gap, level, wait.to);
        const size_t bytes = value(wait).bytes;
        for (uint32_t p = wait.from + 1; p < wait.to; ++p)
            bytes_at_[p] -= std::min(bytes, bytes_at_[p]);
        keep_small_operands(wait);
    }

    // An operand that would be missing by then, and takes less room than the result, is kept
    // instead.
    void keep_small_operands(const Wait& wait) {
        const Gap& gap = s_.gaps[wait.gap];
        for (uint32_t v : s_.reads[s_.producer[gap.value]]) {
            const uint32_t tail = s_.first_gap[v + 1] - 1;
            if (s_.last_reader[v] < gap.to && 2 * s_.problem.values[v].bytes <= value(wait).bytes)
                levels_[tail] = 1;
        }
    }

    const RecomputeSchedule& s_;
    Levels& levels_;
    const Simulation& now_;
    const GreedyOptions& options_;
    Components parts_;
    std::vector<size_t> bytes_at_;  // as this round changes them
    Marks seen_;  // components, by their roots
    size_t goal_;
    std::vector<uint32_t> over_;  // positions at which more than the goal is alive
};

// A way down, round by round.
class WayDown {
public:
    WayDown(const RecomputeSchedule& schedule, Levels levels, const GreedyOptions& options)
        : s_(schedule),
          options_(options),
          stride_(kStride *
                  std::max(1.0, static_cast<double>(schedule.problem.steps.size()) / kSteps)),
          levels_(std::move(levels)),
          now_(schedule.simulate(levels_)) {
        for (const RematStep& step : schedule.problem.steps) most_cost_ += step.cost;
        most_cost_ *= options.most_cost;
    }

    // Offers the plan where it stands, and goes on. Returns false at the end.
    bool step(const Offer& offer) {
        if (!now_.is_valid || now_.plan.cost > most_cost_) return false;
        offer(levels_, now_);
        idle_ = now_.plan.peak_bytes < least_ ? 0 : idle_ + 1;
        least_ = std::min(least_, now_.plan.peak_bytes);
        if (idle_ > kMostIdleRounds) return false;
        Round round(s_, levels_, now_, options_, idle_ ? kStride : stride_);
        if (!(options_.looks_ahead && round.run(true)) && !round.run(false)) return false;
        now_ = s_.simulate(levels_);
        return true;
    }

    void set_most_level(uint8_t level) { options_.most_level = level; }
    // A round raises a level by one: up to this one the next round does not depend on the most.
    bool is_below(uint8_t level) const {
        return std::ranges::all_of(levels_, [&](uint8_t each) { return each < level; });
    }

private:
    const RecomputeSchedule& s_;
    GreedyOptions options_;
    double stride_, most_cost_ = 0;
    Levels levels_;
    Simulation now_;
    size_t least_ = std::numeric_limits<size_t>::max();
    int idle_ = 0;  // rounds since it was found
};

}  // namespace

void lower_peak(const RecomputeSchedule& schedule, Levels levels, const GreedyOptions& options,
                const Offer& offer) {
    WayDown way(schedule, std::move(levels), options);
    if (options.most_level > kUsualLevel) {
        while (way.is_below(kUsualLevel))
            if (!way.step(offer)) return;
        WayDown usual = way;
        usual.set_most_level(kUsualLevel);
        while (usual.step(offer)) {}
    }
    while (way.step(offer)) {}
}

Simulation lower_cost(const RecomputeSchedule& schedule, Levels& levels, size_t most_bytes) {
    Simulation now = schedule.simulate(levels);
    for (int round = 0; round < 4 && now.is_valid; ++round) {
        struct Candidate {
            double gain = 0;
            uint32_t gap = 0;
        };
        std::vector<Candidate> candidates;
        for (uint32_t gap = 0; gap < levels.size(); ++gap) {
            if (levels[gap] <= schedule.least_levels[gap] || schedule.is_tail(gap)) continue;
            const Gap& g = schedule.gaps[gap];
            const uint32_t from = now.position_of[g.from], to = now.position_of[g.to];
            const double room = static_cast<double>(schedule.problem.values[g.value].bytes) *
                                (std::max(from, to) - from + 1);
            candidates.push_back(
                {schedule.problem.steps[schedule.producer[g.value]].cost / room, gap});
        }
        std::stable_sort(candidates.begin(), candidates.end(),
                         [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
        Levels kept = levels;
        std::vector<size_t> bytes_at = now.bytes_at;
        bool any = false;
        for (const Candidate& candidate : candidates) {
            const Gap& g = schedule.gaps[candidate.gap];
            const uint32_t from = now.position_of[g.from], to = now.position_of[g.to];
            const size_t bytes = schedule.problem.values[g.value].bytes;
            bool fits = true;
            for (uint32_t p = from + 1; p < to && fits; ++p)
                fits = bytes_at[p] + bytes <= most_bytes;
            if (!fits) continue;
            for (uint32_t p = from + 1; p < to; ++p) bytes_at[p] += bytes;
            kept[candidate.gap] = schedule.least_levels[candidate.gap];
            any = true;
        }
        if (!any) break;
        Simulation then = schedule.simulate(kept);
        if (!then.is_valid || then.plan.peak_bytes > most_bytes || then.plan.cost >= now.plan.cost)
            break;
        levels = std::move(kept);
        now = std::move(then);
    }
    return now;
}

Levels cut_in_blocks(const RecomputeSchedule& schedule, const Simulation& plain,
                     size_t block_bytes) {
    const auto& values = schedule.problem.values;
    const auto peak = static_cast<uint32_t>(
        std::max_element(plain.bytes_at.begin(), plain.bytes_at.end()) - plain.bytes_at.begin());
    const uint32_t turn = plain.plan.order[peak];
    std::vector<uint32_t> block_of(schedule.problem.steps.size());
    uint32_t block = 0;
    size_t bytes = 0;
    for (uint32_t step = 0; step <= turn; ++step) {
        block_of[step] = block;
        for (uint32_t v : schedule.writes[step])
            if (schedule.is_free(v) && !schedule.readers[v].empty() &&
                schedule.readers[v].back() > turn)
                bytes += values[v].bytes;
        if (bytes < block_bytes) continue;
        ++block;
        bytes = 0;
    }
    Levels levels = schedule.least_levels;
    for (uint32_t gap = 0; gap < levels.size(); ++gap) {
        const Gap& g = schedule.gaps[gap];
        if (schedule.is_tail(gap) || !schedule.is_free(g.value) ||
            schedule.producer[g.value] > turn)
            continue;
        if (g.from > turn || g.to <= turn) continue;
        const bool is_border =
            block_of[g.from] != block_of[schedule.producer[g.value]];  // another block reads it
        if (!is_border) levels[gap] = 1;
    }
    return levels;
}

}  // namespace megjit::memory
