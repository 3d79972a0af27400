#include "memory/step_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "memory/recompute_schedule.h"

namespace megjit::memory {
namespace {

// Steps stand behind the step where they start from, in groups; a step that does not move starts its own.
class Mover {
public:
    explicit Mover(const RematProblem& problem) : s_(problem), group_(problem.steps.size()) { std::iota(group_.begin(), group_.end(), 0u); }

    std::vector<uint32_t> run() {
        for (uint32_t step = 0; step < group_.size(); ++step) {
            const Place earliest = earliest_place(step);
            if (earliest.second != kNone && frees_enough(step, earliest)) group_[step] = earliest.first;
        }
        std::vector<uint32_t> order(group_.size());
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return place(a) < place(b); });
        return order;
    }

private:
    using Place = std::pair<uint32_t, uint32_t>;  // group, step; ordered as they will run
    Place place(uint32_t step) const { return {group_[step], step}; }

    // Behind what it reads, and behind those who read what it overwrites.
    Place earliest_place(uint32_t step) const {
        Place latest{0, kNone};
        const auto wait_for = [&](uint32_t other) {
            if (other < step && (latest.second == kNone || latest < place(other))) latest = place(other);
        };
        for (uint32_t v : s_.problem.steps[step].reads)
            if (s_.producer[v] != kNone) wait_for(s_.producer[v]);
        for (uint32_t v : s_.problem.steps[step].overwrites)
            for (uint32_t reader : s_.readers[v]) wait_for(reader);
        return latest;
    }

    bool frees_enough(uint32_t step, Place earliest) const {
        size_t freed = 0, taken = 0;
        for (uint32_t v : s_.problem.steps[step].reads) {
            const auto is_done = [&](uint32_t reader) { return reader == step || (reader < step && place(reader) <= earliest); };
            if (s_.is_free(v) && std::all_of(s_.readers[v].begin(), s_.readers[v].end(), is_done)) freed += s_.problem.values[v].bytes;
        }
        for (uint32_t v : s_.problem.steps[step].writes)
            if (!s_.problem.values[v].is_kept) taken += s_.problem.values[v].bytes;
        return s_.problem.steps[step].repeatable && freed > 0 && freed >= taken;
    }

    RecomputeSchedule s_;
    std::vector<uint32_t> group_;  // by step: the step that starts it
};

}  // namespace

std::vector<uint32_t> order_for_peak(const RematProblem& problem) {
    std::vector<uint32_t> plain(problem.steps.size()), moved = Mover(problem).run();
    std::iota(plain.begin(), plain.end(), 0u);
    return measure(problem, moved).peak_bytes < measure(problem, plain).peak_bytes ? moved : plain;
}

}  // namespace megjit::memory
