#include "memory/late_steps.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "memory/copies.h"

namespace megjit::memory {
namespace {

class Delayer {
public:
    Delayer(const Copies& copies, const std::vector<uint32_t>& order)
        : steps_(copies.schedule.problem.steps),
          order_(order),
          copies_(copies),
          place_(order.size()),
          listed_(order.size()),
          first_reader_(copies_.all.size() + 1),
          readers_(copies_.reads.size()) {
        std::iota(place_.begin(), place_.end(), 0u);
        std::iota(listed_.begin(), listed_.end(), 0u);
        find_readers();
    }

    // Goes from the last step to the first: so a step that moves is followed by those that make its
    // operands.
    std::vector<uint32_t> run() {
        for (auto p = static_cast<uint32_t>(order_.size()); p-- > 0;)
            if (steps_[order_[p]].repeatable) move(p);
        return std::move(listed_);
    }

private:
    void find_readers() {
        for (uint32_t copy : copies_.reads) ++first_reader_[copy + 1];
        std::partial_sum(first_reader_.begin(), first_reader_.end(), first_reader_.begin());
        std::vector<uint32_t> next(first_reader_.begin(), first_reader_.end() - 1);
        for (uint32_t p = 0; p < order_.size(); ++p)
            for (uint32_t r = copies_.first_read[p]; r < copies_.first_read[p + 1]; ++r)
                readers_[next[copies_.reads[r]]++] = p;
    }
    std::span<const uint32_t> readers(uint32_t copy) const {
        return std::span(readers_).subspan(first_reader_[copy],
                                           first_reader_[copy + 1] - first_reader_[copy]);
    }

    void move(uint32_t p) {
        size_t taken = 0;
        uint32_t need = kNone;  // the place of the first step that reads its results
        for (uint32_t c = copies_.first_copy[p]; c < copies_.first_copy[p + 1]; ++c) {
            taken += copies_.room(c);
            for (uint32_t reader : readers(c)) need = std::min(need, place_[reader]);
        }
        if (taken == 0 || need == kNone) return;
        const uint32_t to = farthest(p, need, taken);
        for (uint32_t place = place_[p]; place < to; ++place) {
            listed_[place] = listed_[place + 1];
            place_[listed_[place]] = place;
        }
        listed_[to] = p;
        place_[p] = to;
    }

    // The last place before `need` at which its operands would not take as much room meanwhile as
    // its results.
    uint32_t farthest(uint32_t p, uint32_t need, size_t taken) {
        const uint32_t from = place_[p];
        if (need <= from + 1) return from;
        find_ends(p);
        std::ranges::sort(ends_);
        uint32_t end = need;
        size_t kept_longer = 0;
        for (const auto& [last, bytes] : ends_)
            if ((kept_longer += bytes) >= taken) {
                end = std::clamp(last + 1, from + 1, need);
                break;
            }
        const std::vector<uint32_t>& reads = steps_[order_[p]].reads;
        if (std::ranges::any_of(
                reads, [&](uint32_t v) { return copies_.schedule.overwriter[v] != kNone; }))
            for (uint32_t to = from; to + 1 < end; ++to)
                if (overwrites_one_of(reads, to + 1)) return to;
        return end - 1;
    }

    // Finds where other steps read the operands of `p` for the last time, and how many bytes these
    // take.
    void find_ends(uint32_t p) {
        ends_.clear();
        for (uint32_t r = copies_.first_read[p]; r < copies_.first_read[p + 1]; ++r) {
            uint32_t last = 0;
            for (uint32_t reader : readers(copies_.reads[r]))
                if (reader != p) last = std::max(last, place_[reader]);
            if (const size_t bytes = copies_.room(copies_.reads[r]))
                ends_.emplace_back(last, bytes);
        }
    }
    bool overwrites_one_of(const std::vector<uint32_t>& values, uint32_t place) const {
        return std::ranges::any_of(steps_[order_[listed_[place]]].overwrites, [&](uint32_t v) {
            return std::ranges::find(values, v) != values.end();
        });
    }

    const std::vector<RematStep>& steps_;
    const std::vector<uint32_t>& order_;
    const Copies& copies_;
    std::vector<uint32_t> place_, listed_;  // by position: its place; and by place: its position
    std::vector<uint32_t> first_reader_,
        readers_;  // by copy, with one more at the end: index into readers_, which are positions
    std::vector<std::pair<uint32_t, size_t>> ends_;
};

}  // namespace

std::vector<uint32_t> late_steps(const Copies& copies, const std::vector<uint32_t>& order) {
    return Delayer(copies, order).run();
}

}  // namespace megjit::memory
