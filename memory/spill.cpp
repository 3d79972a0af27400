#include "memory/spill.h"

#include <algorithm>
#include <array>
#include <utility>

#include "memory/inplace.h"

namespace megjit::memory {
namespace {

// This part of the allowed bytes is filled at first; the rest is for values under way.
constexpr std::array kFilled = {0.7, 0.85, 1.0};

// Each plan of a front may take at most this part of the bytes of the one before.
constexpr double kNext = 0.93;
// After a plan that exceeds its limit a later one may still take less: this many are tried.
constexpr int kMisses = 4;

// A stretch of steps, both included, in which a value is in memory.
struct Stay {
    uint32_t value = 0;
    uint32_t first = 0, last = 0;
    bool is_fetched = false;  // it comes from the place outside
    bool is_stored = false;  // it is written to the place outside in this stretch
};

class Spilling {
public:
    Spilling(const RematProblem& problem, const SpillOptions& options)
        : problem_(problem),
          options_(options),
          uses_(problem.values.size()),
          next_use_(problem.values.size()),
          stay_(problem.values.size(), kNone),
          stays_of_(problem.values.size()),
          is_outside_(problem.values.size()),
          ends_outside_(problem.values.size()),
          starts_outside_(problem.values.size()) {
        for (const uint32_t v : options.outside_at_start)
            starts_outside_[v] = is_outside_[v] = true;
        for (const uint32_t v : options.outside_at_end) ends_outside_[v] = true;
        for (uint32_t s = 0; s < problem.steps.size(); ++s)
            for (const uint32_t v : problem.steps[s].reads)
                if (uses_[v].empty() || uses_[v].back() != s) uses_[v].push_back(s);
    }

    SpillPlan run(size_t filled) {
        fill(filled);
        count();
        widen();
        return plan();
    }

private:
    bool is_counted(uint32_t v) const {
        return !problem_.values[v].is_kept || starts_outside_[v] || ends_outside_[v];
    }
    size_t bytes(uint32_t v) const { return problem_.values[v].bytes; }
    uint32_t next(uint32_t v) const {
        return next_use_[v] < uses_[v].size() ? uses_[v][next_use_[v]] : kNone;
    }

    void enter(uint32_t v, uint32_t step, bool is_fetched) {
        stay_[v] = static_cast<uint32_t>(stays_.size());
        stays_of_[v].push_back(stay_[v]);
        stays_.push_back({.value = v, .first = step, .last = step, .is_fetched = is_fetched});
        there_.push_back(v);
        now_ += bytes(v);
    }

    void leave(size_t position) {
        const uint32_t v = there_[position];
        now_ -= bytes(v);
        stay_[v] = kNone;
        there_[position] = there_.back();
        there_.pop_back();
    }

    // Goes through the steps: keeps what fits, and drops values so that the next step has room.
    void fill(size_t most) {
        for (uint32_t s = 0; s < problem_.steps.size(); ++s) {
            const RematStep& step = problem_.steps[s];
            size_t coming = step.scratch;
            for (const uint32_t v : step.reads)
                if (is_counted(v) && stay_[v] == kNone) coming += bytes(v);
            for (const uint32_t v : step.writes)
                if (is_counted(v)) coming += bytes(v);
            coming -= std::min(coming, lies_on_operand(s));
            make_room(s, coming, most);
            for (const uint32_t v : step.reads)
                if (is_counted(v) && stay_[v] == kNone) enter(v, s, true);
            for (const uint32_t v : step.writes)
                if (is_counted(v)) enter(v, s, false);
            for (const uint32_t v : step.reads) {
                if (stay_[v] != kNone) stays_[stay_[v]].last = s;
                if (next(v) == s) ++next_use_[v];
            }
            let_go(s);
        }
    }

    // Bytes of results that lie where an operand lay: they take no room of their own.
    size_t lies_on_operand(uint32_t s) const {
        const RematStep& step = problem_.steps[s];
        if (!step.in_place) return 0;
        size_t sum = 0;
        std::vector<uint32_t> operands;
        for (const uint32_t v : step.reads)
            if (is_counted(v) && uses_[v].back() == s) operands.push_back(v);
        for (const uint32_t w : step.writes) {
            if (!is_counted(w)) continue;
            const auto found =
                std::ranges::find_if(operands, [&](uint32_t v) { return bytes(v) == bytes(w); });
            if (found == operands.end()) continue;
            sum += bytes(w);
            operands.erase(found);
        }
        return sum;
    }

    void make_room(uint32_t s, size_t coming, size_t most) {
        const RematStep& step = problem_.steps[s];
        while (now_ + coming > most) {
            size_t best = there_.size();
            for (size_t i = 0; i < there_.size(); ++i) {
                const uint32_t v = there_[i];
                if (bytes(v) < options_.least_bytes ||
                    std::ranges::find(step.reads, v) != step.reads.end())
                    continue;
                if (best == there_.size() || goes_before(v, there_[best])) best = i;
            }
            if (best == there_.size()) return;
            const uint32_t v = there_[best];
            if (!is_outside_[v]) store(stays_[stay_[v]]);
            leave(best);
        }
    }

    bool goes_before(uint32_t a, uint32_t b) const {
        if (next(a) != next(b)) return next(a) > next(b);
        return bytes(a) != bytes(b) ? bytes(a) > bytes(b) : a < b;
    }

    void store(Stay& stay) {
        stay.is_stored = true;
        is_outside_[stay.value] = true;
    }

    // Drops values that no later step reads.
    void let_go(uint32_t s) {
        for (size_t i = there_.size(); i-- > 0;) {
            const uint32_t v = there_[i];
            if (next(v) != kNone) continue;
            if (ends_outside_[v] && !is_outside_[v]) store(stays_[stay_[v]]);
            stays_[stay_[v]].last = s;
            leave(i);
        }
    }

    // Counts the bytes in memory at each step.
    void count() {
        live_.assign(problem_.steps.size(), 0);
        std::vector<int64_t> change(problem_.steps.size() + 1);
        for (const Stay& stay : stays_) {
            change[stay.first] += static_cast<int64_t>(bytes(stay.value));
            change[stay.last + 1] -= static_cast<int64_t>(bytes(stay.value));
        }
        int64_t now = 0;
        for (uint32_t s = 0; s < problem_.steps.size(); ++s) {
            now += change[s];
            live_[s] = static_cast<size_t>(now) + problem_.steps[s].scratch;
            live_[s] -= std::min(live_[s], lies_on_operand(s));
        }
    }

    // Where there is room, values stay until they are written, and are fetched early.
    void widen() {
        begins_.assign(1, 0);
        for (const RematStep& step : problem_.steps) begins_.push_back(begins_.back() + step.cost);
        double is_free = 0;  // when the link is free
        for (Stay& stay : stays_) {
            if (!stay.is_stored) continue;
            is_free = std::max(is_free, begins_[stay.first + 1]) + transfer(stay.value);
            while (stay.last + 1 < problem_.steps.size() && begins_[stay.last + 1] < is_free &&
                   takes(stay, stay.last + 1))
                live_[++stay.last] += bytes(stay.value);
        }
        double is_taken = begins_.back();
        std::vector<Stay*> fetched;
        for (Stay& stay : stays_)
            if (stay.is_fetched) fetched.push_back(&stay);
        std::ranges::stable_sort(fetched, {}, &Stay::first);
        for (size_t i = fetched.size(); i-- > 0;) {
            Stay& stay = *fetched[i];
            is_taken = std::min(is_taken, begins_[stay.first]) - transfer(stay.value);
            while (stay.first > 0 && begins_[stay.first] > is_taken && takes(stay, stay.first - 1))
                live_[--stay.first] += bytes(stay.value);
        }
    }

    // Has the step room for the value, and would this stay meet no other stay of it?
    bool takes(const Stay& stay, uint32_t step) const {
        if (live_[step] + bytes(stay.value) > options_.most_bytes) return false;
        return std::ranges::none_of(stays_of_[stay.value], [&](uint32_t index) {
            const Stay& other = stays_[index];
            return &other != &stay && other.first <= step + 1 && step <= other.last + 1;
        });
    }

    double transfer(uint32_t v) const {
        return static_cast<double>(bytes(v)) / options_.link_bytes;
    }

    SpillPlan plan() const {
        SpillPlan plan{.outside_at_start = options_.outside_at_start,
                       .outside_at_end = options_.outside_at_end};
        for (const Stay& stay : stays_) {
            if (stay.is_stored) {
                plan.stores.push_back({stay.value, stay.last});
                plan.written += bytes(stay.value);
            }
            if (stay.is_fetched) {
                plan.fetches.push_back({stay.value, stay.first});
                plan.read += bytes(stay.value);
            }
        }
        std::ranges::stable_sort(plan.stores, {}, &SpillPlan::Store::step);
        std::ranges::stable_sort(plan.fetches, {}, &SpillPlan::Fetch::step);
        for (const size_t bytes : live_) plan.peak_bytes = std::max(plan.peak_bytes, bytes);
        plan.transfer_seconds = static_cast<double>(plan.written + plan.read) / options_.link_bytes;
        plan.seconds = waits(plan);
        return plan;
    }

    // A step waits for the values that it reads, and for values that had to leave before it.
    double waits(const SpillPlan& plan) const {
        double now = 0, is_free = 0, waited = 0;
        std::vector<double> made(problem_.values.size()), there(problem_.values.size());
        auto store = plan.stores.begin();
        auto fetch = plan.fetches.begin();
        for (uint32_t s = 0; s < problem_.steps.size(); ++s) {
            double ready = now;
            for (; store != plan.stores.end() && store->step < s; ++store) {
                is_free = std::max(is_free, made[store->value]) + transfer(store->value);
                ready = std::max(ready, is_free);
            }
            for (; fetch != plan.fetches.end() && fetch->step <= s; ++fetch)
                there[fetch->value] = is_free =
                    std::max(is_free, std::max(ready, now)) + transfer(fetch->value);
            for (const uint32_t v : problem_.steps[s].reads) ready = std::max(ready, there[v]);
            waited += ready - now;
            now = ready + problem_.steps[s].cost;
            for (const uint32_t v : problem_.steps[s].writes) made[v] = now;
        }
        for (; store != plan.stores.end(); ++store)
            is_free = std::max(is_free, made[store->value]) + transfer(store->value);
        return waited + std::max(0.0, is_free - now);
    }

    const RematProblem& problem_;
    const SpillOptions& options_;
    std::vector<std::vector<uint32_t>> uses_;  // by value: the steps that read it
    std::vector<size_t> next_use_;  // by value: index of the next of these
    std::vector<uint32_t> stay_;  // by value: index of its present stay, or kNone
    std::vector<std::vector<uint32_t>> stays_of_;  // by value
    std::vector<char> is_outside_, ends_outside_, starts_outside_;  // by value
    std::vector<uint32_t> there_;  // values in memory
    size_t now_ = 0;  // bytes of these values
    std::vector<Stay> stays_;
    std::vector<size_t> live_;  // by step
    std::vector<double> begins_;  // when each step begins, and the end
};

}  // namespace

SpillPlan spill(const RematProblem& problem, const SpillOptions& options) {
    SpillPlan best;
    for (const double part : kFilled) {
        constexpr double kMost = 0x1p63;  // SIZE_MAX means no limit, and rounds up to 2^64
        const auto filled =
            static_cast<size_t>(std::min(kMost, part * static_cast<double>(options.most_bytes)));
        SpillPlan plan = Spilling(problem, options).run(filled);
        const bool is_smaller = plan.peak_bytes < best.peak_bytes;
        const bool fits = plan.peak_bytes <= options.most_bytes,
                   best_fits = best.peak_bytes <= options.most_bytes;
        const auto cost = [](const SpillPlan& of) {
            return std::pair(of.seconds, of.written + of.read);
        };
        const bool is_better =
            fits && best_fits ? cost(plan) < cost(best) : fits || (!best_fits && is_smaller);
        if (part == kFilled[0] || is_better) best = std::move(plan);
    }
    return best;
}

std::vector<SpillPlan> spill_front(const RematProblem& problem, SpillOptions options,
                                   const std::function<void()>& watch) {
    std::vector<SpillPlan> front;
    for (int misses = 0; misses < kMisses && options.most_bytes >= options.least_bytes;) {
        watch();
        SpillPlan plan = spill(problem, options);
        misses += plan.peak_bytes > options.most_bytes;
        if (front.empty() || plan.peak_bytes < front.back().peak_bytes)
            front.push_back(std::move(plan));
        options.most_bytes = static_cast<size_t>(kNext * static_cast<double>(options.most_bytes));
    }
    return front;
}

}  // namespace megjit::memory
