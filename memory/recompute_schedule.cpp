#include "memory/recompute_schedule.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "memory/copies.h"
#include "memory/late_steps.h"

namespace megjit::memory {
namespace {

constexpr uint8_t kGone = 254;  // level of values that no later step of the plain order reads
constexpr uint8_t kNothing = 255;

// Plays the plain order, and runs in between what must run again.
class Player {
public:
    Player(const RecomputeSchedule& schedule, const Levels& levels, Simulation& out)
        : s_(schedule),
          levels_(levels),
          out_(out),
          is_there_(schedule.problem.values.size()),
          gap_(schedule.first_gap),
          since_(schedule.problem.values.size()),
          in_burst_(schedule.problem.steps.size()),
          most_steps_(6 * schedule.problem.steps.size() + 64) {
        for (uint32_t v = 0; v < is_there_.size(); ++v)
            is_there_[v] = schedule.producer[v] == kNone;
    }

    bool play() {
        const auto steps = static_cast<uint32_t>(s_.problem.steps.size());
        out_.position_of.resize(steps);
        order().reserve(2 * steps);
        for (uint32_t i = 0; i < steps; ++i) {
            burst(i);
            if (order().size() > most_steps_) return false;
            for (uint32_t v : s_.reads[i]) note_wait(v, i);
            out_.position_of[i] = run(i);
            for (uint32_t v : transients_) is_there_[v] = false;
            for (uint32_t v : s_.writes[i]) after_use(v);
            for (uint32_t v : s_.reads[i])
                if (next_reader(v) == i) {
                    ++gap_[v];
                    since_[v] = out_.position_of[i];
                    after_use(v);
                }
        }
        return true;
    }

private:
    std::vector<uint32_t>& order() { return out_.plan.order; }
    uint32_t next_reader(uint32_t v) const { return s_.gaps[gap_[v]].to; }

    uint8_t level_now(uint32_t v) const {
        const uint8_t level = levels_[gap_[v]];
        if (next_reader(v) != kNone) return level;
        return level ? 0 : kGone;
    }

    uint32_t run(uint32_t step) {
        const auto position = static_cast<uint32_t>(order().size());
        order().push_back(step);
        for (uint32_t v : s_.writes[step]) {
            if (!is_there_[v]) since_[v] = position;
            is_there_[v] = true;
        }
        return position;
    }

    void after_use(uint32_t v) { is_there_[v] = !s_.is_free(v) || level_now(v) == 0; }

    void note_wait(uint32_t v, uint32_t step) {
        const auto position = static_cast<uint32_t>(order().size());
        if (s_.is_free(v) && next_reader(v) == step)
            out_.waits.push_back({gap_[v], since_[v], position});
    }

    // Runs again what step `i` needs and what is missing, operands first.
    void burst(uint32_t i) {
        transients_.clear();
        members_.clear();
        collect(i);
        for (size_t m = 0; m < members_.size(); ++m) collect(members_[m]);
        std::sort(members_.begin(), members_.end());
        uint8_t lowest = kNothing;
        for (size_t m = members_.size(); m-- > 0;) {
            uint8_t mine = kNothing;
            for (uint32_t v : s_.writes[members_[m]]) {
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
        for (uint32_t v : s_.reads[step]) {
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
    std::vector<uint32_t> gap_;  // by value: the gap in which it is
    std::vector<uint32_t> since_;  // by value: where it was written, or last read outside bursts
    std::vector<char> in_burst_;  // by step
    std::vector<uint32_t> members_, transients_;
    size_t most_steps_;
};

}  // namespace

RecomputeSchedule::RecomputeSchedule(const RematProblem& problem, Places places)
    : problem(problem),
      producer(problem.values.size(), kNone),
      overwriter(problem.values.size(), kNone),
      places_(places) {
    std::vector<std::vector<uint32_t>> readers_of(problem.values.size());
    for (uint32_t i = 0; i < problem.steps.size(); ++i) {
        for (uint32_t v : problem.steps[i].reads) {
            if (v >= readers_of.size())
                throw std::invalid_argument("rematerialize: there is no value " +
                                            std::to_string(v));
            if (readers_of[v].empty() || readers_of[v].back() != i) readers_of[v].push_back(i);
        }
        for (uint32_t v : problem.steps[i].overwrites) {
            if (v >= readers_of.size())
                throw std::invalid_argument("rematerialize: there is no value " +
                                            std::to_string(v));
            overwriter[v] = std::min(overwriter[v], i);
            has_overwriters = true;
        }
        for (uint32_t v : problem.steps[i].writes) {
            if (v >= producer.size() || producer[v] != kNone || !readers_of[v].empty())
                throw std::invalid_argument("rematerialize: value " + std::to_string(v) +
                                            " is written twice, or read before");
            producer[v] = i;
        }
        reads.add(problem.steps[i].reads);
        writes.add(problem.steps[i].writes);
    }
    for (const std::vector<uint32_t>& list : readers_of) readers.add(list);
    for (uint32_t v = 0; v < problem.values.size(); ++v) {
        const RematValue& value = problem.values[v];
        is_free_.push_back(producer[v] != kNone && !value.is_kept && !value.must_stay &&
                           problem.steps[producer[v]].repeatable);
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
    find_what_may_be_dropped();
    for (uint32_t gap = 0; gap < gaps.size(); ++gap) {
        const uint32_t region = problem.values[gaps[gap].value].region;
        const auto region_at = [&](uint32_t step) { return problem.steps[step].region; };
        // Between two readers in no region the value is kept: one that was computed again for the
        // first reader serves the second.
        least_levels.push_back(region && is_free(gaps[gap].value) && !is_tail(gap) &&
                               region_at(gaps[gap].to) != region &&
                               (region_at(gaps[gap].from) || region_at(gaps[gap].to)));
    }
}

void RecomputeSchedule::find_what_may_be_dropped() {
    for (uint32_t v = 0; v < problem.values.size(); ++v)
        last_reader.push_back(!is_free(v) ? kNone : readers[v].empty() ? 0 : readers[v].back());
    for (uint32_t step = 0; step < problem.steps.size(); ++step) {
        last_reader_of.push_back(0);
        for (const uint32_t v : writes[step])
            last_reader_of[step] = std::max(last_reader_of[step], last_reader[v]);
    }
    for (const Gap& gap : gaps) {
        const auto is_overwritten = [&](uint32_t v) { return overwriter[v] < gap.to; };
        may_drop.push_back(producer[gap.value] != kNone && gap.to != kNone &&
                           problem.values[gap.value].bytes > 0 &&
                           std::ranges::none_of(reads[producer[gap.value]], is_overwritten));
    }
}

Simulation RecomputeSchedule::simulate(const Levels& levels) const {
    Simulation out;
    if (!Player(*this, levels, out).play()) return out;
    leave_out_what_nobody_needs(out);
    const Copies copies(*this, out.plan.order);
    measure(copies, out.plan, out.bytes_at);
    if (places_ == Places::late) run_late(out, copies);
    std::erase_if(out.waits, [](const Wait& wait) { return wait.to <= wait.from + 1; });
    out.is_valid = true;
    return out;
}

// Leaves out runs whose results nobody reads. Then positions change: a value is computed where it
// is first needed. Returns whether there were such runs.
bool RecomputeSchedule::leave_out_what_nobody_needs(Simulation& out) const {
    std::vector<uint32_t>& order = out.plan.order;
    std::vector<char> is_needed(order.size()), is_wanted(problem.values.size());
    for (size_t p = order.size(); p-- > 0;) {
        const uint32_t step = order[p];
        bool needed = !problem.steps[step].repeatable;
        for (const uint32_t v : writes[step]) {
            // A kept value stays where its step's first run has written it.
            needed =
                needed || (problem.values[v].is_kept ? out.position_of[step] == p : is_wanted[v]);
            is_wanted[v] = false;
        }
        is_needed[p] = needed;
        if (!needed) continue;
        for (const uint32_t v : reads[step]) is_wanted[v] = true;
    }
    std::vector<uint32_t> moved(order.size() + 1);
    uint32_t count = 0;
    for (size_t p = 0; p < is_needed.size(); ++p) {
        moved[p] = count;
        if (is_needed[p]) order[count++] = order[p];
    }
    if (count == order.size()) return false;
    order.resize(count);
    for (uint32_t& position : out.position_of) position = std::min(moved[position], count - 1);
    for (Wait& wait : out.waits) wait = {wait.gap, moved[wait.from], moved[wait.to]};
    return true;
}

void RecomputeSchedule::run_late(Simulation& out, const Copies& copies) const {
    const std::vector<uint32_t> listed = late_steps(copies, out.plan.order);
    std::vector<uint32_t> place(listed.size());
    RematPlan late;
    for (uint32_t p : listed) {
        place[p] = static_cast<uint32_t>(late.order.size());
        late.order.push_back(out.plan.order[p]);
    }
    std::vector<size_t> bytes_at;
    measure(Copies(*this, late.order), late, bytes_at);
    if (late.peak_bytes > out.plan.peak_bytes) return;
    late.cost = out.plan.cost;  // the same sum, rounded in another order
    out.plan = std::move(late);
    out.bytes_at = std::move(bytes_at);
    for (uint32_t& position : out.position_of) position = place[position];
    for (Wait& wait : out.waits) wait = {wait.gap, place[wait.from], place[wait.to]};
    if (leave_out_what_nobody_needs(out))
        measure(Copies(*this, out.plan.order), out.plan, out.bytes_at);
}

namespace {

// Bytes of the operand over which the step at this position writes its result.
size_t bytes_in_place(const Copies& copies, const RematStep& step, uint32_t p) {
    const uint32_t first = copies.first_copy[p];
    if (!step.in_place || copies.first_copy[p + 1] != first + 1 || !copies.takes_room(first))
        return 0;
    const std::vector<RematValue>& values = copies.schedule.problem.values;
    const size_t bytes = values[copies.all[first].value].bytes;
    for (uint32_t r = copies.first_read[p]; r < copies.first_read[p + 1]; ++r) {
        const Copies::Copy& copy = copies.all[copies.reads[r]];
        if (copy.last == p && copies.takes_room(copies.reads[r]) &&
            values[copy.value].bytes == bytes)
            return bytes;
    }
    return 0;
}

// Counts the bytes of results that cannot lie where they should.
size_t bytes_beside(const RecomputeSchedule& schedule, const std::vector<uint32_t>& order) {
    if (!schedule.has_overwriters) return 0;
    const RematProblem& problem = schedule.problem;
    std::vector<char> is_overwritten(problem.values.size());
    size_t bytes = 0;
    for (uint32_t step : order) {
        for (uint32_t v : schedule.reads[step]) {
            if (is_overwritten[v]) bytes += problem.values[v].bytes;
            is_overwritten[v] = false;  // each counts once
        }
        for (uint32_t v : problem.steps[step].overwrites) is_overwritten[v] = true;
    }
    return bytes;
}

}  // namespace

void RecomputeSchedule::measure(const Copies& copies, RematPlan& plan,
                                std::vector<size_t>& bytes_at) const {
    const std::vector<uint32_t>& order = plan.order;
    std::vector<int64_t> change(order.size() + 1);
    for (uint32_t c = 0; c < copies.all.size(); ++c) {
        const auto bytes = static_cast<int64_t>(copies.room(c));
        change[copies.all[c].born] += bytes;
        change[copies.all[c].last + 1] -= bytes;
    }
    const size_t beside = bytes_beside(*this, order);
    int64_t now = 0;
    plan.peak_bytes = 0;
    plan.cost = 0;
    bytes_at.resize(order.size());
    for (uint32_t p = 0; p < order.size(); ++p) {
        const RematStep& step = problem.steps[order[p]];
        now += change[p];
        bytes_at[p] =
            static_cast<size_t>(now) - bytes_in_place(copies, step, p) + step.scratch + beside;
        plan.peak_bytes = std::max(plan.peak_bytes, bytes_at[p]);
        plan.cost += step.cost;
    }
}

RematPlan RecomputeSchedule::measured(std::vector<uint32_t> order) const {
    RematPlan plan{.order = std::move(order)};
    std::vector<size_t> bytes_at;
    measure(Copies(*this, plan.order), plan, bytes_at);
    return plan;
}

}  // namespace megjit::memory
