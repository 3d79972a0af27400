#include "memory/recompute_schedule.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace megjit::memory {
namespace {

constexpr uint8_t kGone = 254;  // level of what no later step of the plain order reads
constexpr uint8_t kNothing = 255;

// Plays the plain order, and what must run again in between.
class Player {
public:
    Player(const RecomputeSchedule& schedule, const Levels& levels, Simulation& out)
        : s_(schedule),
          levels_(levels),
          out_(out),
          is_there_(schedule.problem.values.size()),
          uses_(schedule.problem.values.size()),
          since_(schedule.problem.values.size()),
          in_burst_(schedule.problem.steps.size()),
          most_steps_(6 * schedule.problem.steps.size() + 64) {
        for (uint32_t v = 0; v < is_there_.size(); ++v)
            is_there_[v] = schedule.producer[v] == kNone;
    }

    bool play() {
        const auto& steps = s_.problem.steps;
        out_.position_of.resize(steps.size());
        for (uint32_t i = 0; i < steps.size(); ++i) {
            burst(i);
            if (order().size() > most_steps_) return false;
            for (uint32_t v : steps[i].reads) note_wait(v, i);
            out_.position_of[i] = run(i);
            for (uint32_t v : transients_) is_there_[v] = false;
            for (uint32_t v : steps[i].writes) after_use(v);
            for (uint32_t v : steps[i].reads)
                if (next_reader(v) == i) {
                    ++uses_[v];
                    since_[v] = out_.position_of[i];
                    after_use(v);
                }
        }
        return true;
    }

private:
    std::vector<uint32_t>& order() { return out_.plan.order; }
    uint32_t next_reader(uint32_t v) const {
        return uses_[v] < s_.readers[v].size() ? s_.readers[v][uses_[v]] : kNone;
    }
    uint32_t gap_now(uint32_t v) const { return s_.first_gap[v] + uses_[v]; }

    uint8_t level_now(uint32_t v) const {
        const uint8_t level = levels_[gap_now(v)];
        if (next_reader(v) != kNone) return level;
        return level ? 0 : kGone;
    }

    uint32_t run(uint32_t step) {
        const auto position = static_cast<uint32_t>(order().size());
        order().push_back(step);
        for (uint32_t v : s_.problem.steps[step].writes) {
            if (!is_there_[v]) since_[v] = position;
            is_there_[v] = true;
        }
        return position;
    }

    void after_use(uint32_t v) { is_there_[v] = !s_.is_free(v) || level_now(v) == 0; }

    void note_wait(uint32_t v, uint32_t step) {
        const auto position = static_cast<uint32_t>(order().size());
        if (s_.is_free(v) && next_reader(v) == step && position > since_[v] + 1)
            out_.waits.push_back({gap_now(v), since_[v], position});
    }

    // Runs again what step `i` needs and is not there, operands first.
    void burst(uint32_t i) {
        transients_.clear();
        members_.clear();
        collect(i);
        for (size_t m = 0; m < members_.size(); ++m) collect(members_[m]);
        std::sort(members_.begin(), members_.end());
        uint8_t lowest = kNothing;
        for (size_t m = members_.size(); m-- > 0;) {
            uint8_t mine = kNothing;
            for (uint32_t v : s_.problem.steps[members_[m]].writes) {
                if (is_there_[v]) continue;
                const uint8_t level = level_now(v);
                if (level > lowest || level == kGone) transients_.push_back(v);
                mine = std::min(mine, level);
            }
            lowest = std::min(lowest, mine);
        }
        for (uint32_t member : members_) {
            run(member);
            in_burst_[member] = false;
        }
    }

    void collect(uint32_t step) {
        for (uint32_t v : s_.problem.steps[step].reads) {
            if (is_there_[v]) continue;
            const uint32_t maker = s_.producer[v];
            if (in_burst_[maker]) continue;
            in_burst_[maker] = true;
            members_.push_back(maker);
        }
    }

    const RecomputeSchedule& s_;
    const Levels& levels_;
    Simulation& out_;
    std::vector<char> is_there_;  // by value
    std::vector<uint32_t> uses_;  // by value: readers of the plain order that are done
    std::vector<uint32_t>
        since_;  // by value: position of its write, or of its last read for a step's own sake
    std::vector<char> in_burst_;  // by step
    std::vector<uint32_t> members_, transients_;
    size_t most_steps_;
};

}  // namespace

RecomputeSchedule::RecomputeSchedule(const RematProblem& problem)
    : problem(problem),
      producer(problem.values.size(), kNone),
      overwriter(problem.values.size(), kNone),
      readers(problem.values.size()) {
    for (uint32_t i = 0; i < problem.steps.size(); ++i) {
        for (uint32_t v : problem.steps[i].reads) {
            if (v >= readers.size())
                throw std::invalid_argument("rematerialize: there is no value " +
                                            std::to_string(v));
            if (readers[v].empty() || readers[v].back() != i) readers[v].push_back(i);
        }
        for (uint32_t v : problem.steps[i].overwrites) {
            if (v >= readers.size())
                throw std::invalid_argument("rematerialize: there is no value " +
                                            std::to_string(v));
            overwriter[v] = std::min(overwriter[v], i);
        }
        for (uint32_t v : problem.steps[i].writes) {
            if (v >= producer.size() || producer[v] != kNone || !readers[v].empty())
                throw std::invalid_argument("rematerialize: value " + std::to_string(v) +
                                            " is written twice, or read before");
            producer[v] = i;
        }
    }
    for (uint32_t v = 0; v < problem.values.size(); ++v) {
        first_gap.push_back(static_cast<uint32_t>(gaps.size()));
        uint32_t from = producer[v];
        for (uint32_t reader : readers[v]) {
            gaps.push_back({v, from, reader});
            from = reader;
        }
        gaps.push_back({v, from, kNone});
    }
    first_gap.push_back(static_cast<uint32_t>(gaps.size()));
    for (uint32_t gap = 0; gap < gaps.size(); ++gap) {
        const uint32_t region = problem.values[gaps[gap].value].region;
        const auto region_at = [&](uint32_t step) { return problem.steps[step].region; };
        // Between two readers in no region it is there: what one of them had computed again serves
        // the other.
        least_levels.push_back(region && is_free(gaps[gap].value) && !is_tail(gap) &&
                               region_at(gaps[gap].to) != region &&
                               (region_at(gaps[gap].from) || region_at(gaps[gap].to)));
    }
}

Simulation RecomputeSchedule::simulate(const Levels& levels) const {
    Simulation out;
    if (!Player(*this, levels, out).play()) return out;
    Measured measured = measure_order(*this, std::move(out.plan.order));
    // Positions change where a run was of no use: the value is computed when it is needed first.
    std::vector<uint32_t> moved(measured.is_needed.size() + 1);
    bool any = false;
    std::vector<uint32_t> needed;
    for (size_t p = 0; p < measured.is_needed.size(); ++p) {
        moved[p] = static_cast<uint32_t>(needed.size());
        if (measured.is_needed[p]) needed.push_back(measured.plan.order[p]);
        else any = true;
    }
    if (any) {
        for (uint32_t& position : out.position_of)
            position = std::min(moved[position], static_cast<uint32_t>(needed.size()) - 1);
        for (Wait& wait : out.waits) wait = {wait.gap, moved[wait.from], moved[wait.to]};
        measured = measure_order(*this, std::move(needed));
    }
    out.plan = std::move(measured.plan);
    out.bytes_at = std::move(measured.bytes_at);
    out.is_valid = true;
    return out;
}

Measured measure_order(const RecomputeSchedule& schedule, std::vector<uint32_t> order) {
    const RematProblem& problem = schedule.problem;
    struct Copy {
        uint32_t value = 0, born = 0, last = 0;
    };
    std::vector<Copy> copies;
    std::vector<uint32_t> current(problem.values.size(), kNone);  // by value: into copies
    std::vector<uint32_t> first_copy(order.size() + 1), first_read(order.size() + 1), reads;
    std::vector<char> is_overwritten(problem.values.size());
    size_t beside = 0;  // results that cannot lie where they were to lie
    Measured out;
    for (uint32_t p = 0; p < order.size(); ++p) {
        const RematStep& step = problem.steps[order[p]];
        first_copy[p] = static_cast<uint32_t>(copies.size());
        first_read[p] = static_cast<uint32_t>(reads.size());
        for (uint32_t v : step.reads) {
            if (is_overwritten[v]) beside += problem.values[v].bytes;
            is_overwritten[v] = false;  // counts once
            if (schedule.producer[v] == kNone) continue;
            if (current[v] == kNone)
                throw std::invalid_argument("rematerialize: value " + std::to_string(v) +
                                            " is read before it is written");
            copies[current[v]].last = p;
            reads.push_back(current[v]);
        }
        for (uint32_t v : step.writes) {
            // What is kept stays where it was written first; a second copy lives for a moment.
            if (current[v] == kNone || !problem.values[v].is_kept)
                current[v] = static_cast<uint32_t>(copies.size());
            copies.push_back({v, p, p});
        }
        for (uint32_t v : step.overwrites) is_overwritten[v] = true;
        out.plan.cost += step.cost;
    }
    first_copy[order.size()] = static_cast<uint32_t>(copies.size());
    first_read[order.size()] = static_cast<uint32_t>(reads.size());

    out.is_needed.resize(order.size());
    std::vector<char> is_read(copies.size());
    for (size_t p = order.size(); p-- > 0;) {
        bool needed = !problem.steps[order[p]].repeatable;
        for (uint32_t c = first_copy[p]; c < first_copy[p + 1]; ++c)
            needed = needed || is_read[c] ||
                     (problem.values[copies[c].value].is_kept && current[copies[c].value] == c);
        out.is_needed[p] = needed;
        if (needed)
            for (uint32_t r = first_read[p]; r < first_read[p + 1]; ++r) is_read[reads[r]] = true;
    }

    std::vector<int64_t> change(order.size() + 1);
    const auto takes_room = [&](uint32_t c) {
        return !problem.values[copies[c].value].is_kept || current[copies[c].value] != c;
    };
    for (uint32_t c = 0; c < copies.size(); ++c) {
        if (!takes_room(c)) continue;
        const auto bytes = static_cast<int64_t>(problem.values[copies[c].value].bytes);
        change[copies[c].born] += bytes;
        change[copies[c].last + 1] -= bytes;
    }
    out.bytes_at.resize(order.size());
    int64_t now = 0;
    for (uint32_t p = 0; p < order.size(); ++p) {
        now += change[p];
        size_t shared = 0;
        if (problem.steps[order[p]].in_place && first_copy[p + 1] == first_copy[p] + 1 &&
            takes_room(first_copy[p])) {
            const size_t bytes = problem.values[copies[first_copy[p]].value].bytes;
            for (uint32_t r = first_read[p]; r < first_read[p + 1]; ++r) {
                const Copy& copy = copies[reads[r]];
                if (copy.last == p && takes_room(reads[r]) &&
                    problem.values[copy.value].bytes == bytes)
                    shared = bytes;
            }
        }
        out.bytes_at[p] =
            static_cast<size_t>(now) - shared + problem.steps[order[p]].scratch + beside;
        out.plan.peak_bytes = std::max(out.plan.peak_bytes, out.bytes_at[p]);
    }
    out.plan.order = std::move(order);
    return out;
}

}  // namespace megjit::memory
