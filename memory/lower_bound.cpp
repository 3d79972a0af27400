#include "memory/lower_bound.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>

namespace megjit::memory {
namespace {

// Writers are followed back this far from each step. Each more takes three times as long, for in a
// set of values about three may be the last one.
constexpr int kWritersBack = 3;

using Values = std::vector<uint32_t>;

bool is_among(const Values& values, uint32_t value) {
    return std::find(values.begin(), values.end(), value) != values.end();
}

class BoundSearch {
public:
    explicit BoundSearch(const Schedule& schedule)
        : schedule_(schedule),
          writer_(schedule.values.size(), kNone),
          root_(schedule.values.size()),
          neighbours_(schedule.values.size()),
          family_(schedule.values.size(), kNone),
          place_(schedule.values.size()),
          lies_in_input_(schedule.values.size()),
          may_lie_outside_(schedule.values.size()) {
        std::iota(root_.begin(), root_.end(), 0u);
        for (uint32_t s = 0; s < schedule.steps.size(); ++s) add(s);
        find_families();
        find_what_may_lie_outside();
    }

    LowerBound find() {
        LowerBound bound{.bytes = 0};
        size_t most = 0;
        for (uint32_t s = 0; s < schedule_.steps.size(); ++s) {
            if (is_view(schedule_.steps[s])) continue;
            const Found found = while_running(s, {}, kWritersBack, most);
            if (found.bytes <= most) continue;
            most = found.bytes;
            bound.step = found.step;
            bound.values = found.values;
        }
        bound.bytes = outside() + most;
        return bound;
    }

private:
    struct Found {
        size_t bytes = 0;
        uint32_t step = kNone;
        Values values = {};
    };
    struct Edge {
        uint32_t to;
        std::ptrdiff_t offset;  // from the first value's start to this one's
    };

    // A view's result is its operand.
    static bool is_view(const StepAccess& step) {
        return !step.aliases.empty() && step.aliases[0].kind == AliasKind::kView;
    }

    void add(uint32_t s) {
        for (const uint32_t w : schedule_.steps[s].writes) writer_[w] = s;
        for (const Alias& alias : schedule_.steps[s].aliases) {
            const auto offset = static_cast<std::ptrdiff_t>(alias.offset);
            switch (alias.kind) {
                case AliasKind::kInPlace: continue;
                case AliasKind::kView: root_[alias.output] = root_[alias.input]; break;
                case AliasKind::kSlice:
                    connect(alias.input, alias.output, offset);
                    lies_in_input_[alias.output] =
                        is_input(root_[alias.input]) || lies_in_input_[root_[alias.input]];
                    break;
                case AliasKind::kPart: connect(alias.output, alias.input, offset); break;
            }
        }
    }

    // A view may be a part of what it views: it counts as the whole where both are read, and as its
    // own bytes where the whole is gone.
    void connect(uint32_t whole, uint32_t part, std::ptrdiff_t offset) {
        whole = root_[whole];
        part = root_[part];
        neighbours_[whole].push_back({part, offset});
        neighbours_[part].push_back({whole, -offset});
    }

    // A family is the values that may lie in one another. If a value could lie at two places,
    // places are ignored, and the largest member stands for the family.
    void find_families() {
        for (uint32_t first = 0; first < family_.size(); ++first) {
            if (family_[first] != kNone) continue;
            const auto family = static_cast<uint32_t>(has_places_.size());
            has_places_.push_back(true);
            family_[first] = family;
            Values open = {first};
            while (!open.empty()) {
                const uint32_t value = open.back();
                open.pop_back();
                for (const Edge& edge : neighbours_[value]) {
                    const std::ptrdiff_t place = place_[value] + edge.offset;
                    if (family_[edge.to] == kNone) {
                        family_[edge.to] = family;
                        place_[edge.to] = place;
                        open.push_back(edge.to);
                    } else if (place_[edge.to] != place) {
                        has_places_[family] = false;
                    }
                }
            }
        }
    }

    bool is_input(uint32_t value) const {
        const ValueKind kind = schedule_.values[value].kind;
        return kind == ValueKind::kInput || kind == ValueKind::kConstant;
    }

    // By steps in place and by parts, a temporary value may lie in the memory of a result, or of a
    // donated input.
    void find_what_may_lie_outside() {
        std::vector<Values> together(schedule_.values.size());
        for (const StepAccess& step : schedule_.steps)
            for (const Alias& alias : step.aliases) {
                together[alias.output].push_back(alias.input);
                together[alias.input].push_back(alias.output);
            }
        Values open;
        for (uint32_t v = 0; v < schedule_.values.size(); ++v) {
            const Value& value = schedule_.values[v];
            if (value.kind == ValueKind::kOutput || value.donatable) open.push_back(v);
        }
        for (const uint32_t v : open) {
            may_lie_outside_[v] = true;
            room_outside_ += schedule_.values[v].bytes;
        }
        while (!open.empty()) {
            const uint32_t value = open.back();
            open.pop_back();
            for (const uint32_t other : together[value]) {
                if (may_lie_outside_[other] || is_input(other)) continue;
                may_lie_outside_[other] = true;
                open.push_back(other);
            }
        }
    }

    // Bytes of inputs, constants, and results beyond those that can take the place of inputs.
    size_t outside() const {
        size_t there = 0, given = 0;
        Values results;
        for (uint32_t v = 0; v < schedule_.values.size(); ++v) {
            const Value& value = schedule_.values[v];
            if (is_input(v)) there += value.bytes;
            if (value.donatable) given += value.bytes;
            if (value.kind == ValueKind::kOutput && !is_input(root_[v]) &&
                !lies_in_input_[root_[v]])
                results.push_back(root_[v]);
        }
        std::sort(results.begin(), results.end());
        results.erase(std::unique(results.begin(), results.end()), results.end());
        const size_t bytes = bytes_of_families(results);
        return there + (bytes > given ? bytes - given : 0);
    }

    // Bytes of values that each exist once.
    size_t bytes_of_families(const Values& values) const {
        size_t sum = 0;
        Values seen;
        for (const uint32_t value : values) {
            if (is_among(seen, family_[value])) continue;
            seen.push_back(family_[value]);
            sum += bytes_of_family(values, value);
        }
        return sum;
    }

    // Adds to `others` the values that lie in the arena, each once; a view counts as what it views.
    Values in_memory(const Values& values, Values others = {}) const {
        for (const uint32_t value : values)
            if (const uint32_t root = root_[value];
                schedule_.values[root].kind == ValueKind::kTemp && !lies_in_input_[root] &&
                !is_among(others, root))
                others.push_back(root);
        return others;
    }

    // Bytes of the arena while these values exist.
    size_t bytes_of(const Values& values) const {
        Values inside, maybe_outside;  // values that share a family with others
        size_t sum = 0, maybe = 0;
        for (const uint32_t value : values)
            if (neighbours_[value].empty())
                (may_lie_outside_[value] ? maybe : sum) += schedule_.values[value].bytes;
            else (may_lie_outside_[value] ? maybe_outside : inside).push_back(value);
        maybe += bytes_of_families(maybe_outside);
        sum += bytes_of_families(inside);
        return sum + (maybe > room_outside_ ? maybe - room_outside_ : 0);
    }

    size_t bytes_of_family(const Values& values, uint32_t member) const {
        const auto begin = [&](uint32_t v) { return place_[v]; };
        const auto end = [&](uint32_t v) {
            return place_[v] + static_cast<std::ptrdiff_t>(schedule_.values[v].bytes);
        };
        Values same;
        size_t largest = 0;
        for (const uint32_t value : values) {
            if (family_[value] != family_[member]) continue;
            same.push_back(value);
            largest = std::max(largest, schedule_.values[value].bytes);
        }
        if (same.size() == 1 || !has_places_[family_[member]]) return largest;
        std::sort(same.begin(), same.end(),
                  [&](uint32_t a, uint32_t b) { return begin(a) < begin(b); });
        std::ptrdiff_t sum = 0, until = begin(same[0]);
        for (const uint32_t value : same) {
            sum += std::max<std::ptrdiff_t>(0, end(value) - std::max(until, begin(value)));
            until = std::max(until, end(value));
        }
        return static_cast<size_t>(sum);
    }

    // Bytes saved by results of the step that overwrite operands, except operands that must stay.
    size_t overwritten(const StepAccess& step, const Values& stays) const {
        size_t sum = 0;
        for (const uint32_t w : step.writes) {
            size_t most = 0;
            for (const Alias& alias : step.aliases)
                if (alias.output == w && alias.kind == AliasKind::kInPlace &&
                    !is_among(stays, root_[alias.input]))
                    most = std::max(most, std::min(schedule_.values[w].bytes,
                                                   schedule_.values[alias.input].bytes));
            sum += most;
        }
        return sum;
    }

    // Bytes while the step runs and the values of `stays` exist. Earlier states are examined for
    // `depth` steps back. An answer of at most `known` is not needed, and may be too small.
    Found while_running(uint32_t s, const Values& stays, int depth, size_t known) const {
        const StepAccess& step = schedule_.steps[s];
        const Values before = in_memory(step.reads, stays);
        Found found{.step = s, .values = in_memory(step.writes, before)};
        const size_t all = bytes_of(found.values), saved = overwritten(step, stays);
        found.bytes = all > saved ? all - saved : 0;
        if (depth == 0) return found;
        Found earlier = while_written(before, depth - 1, std::max(known, found.bytes));
        return earlier.bytes > found.bytes ? earlier : found;
    }

    // These values exist together: whichever of them was written last, the others existed then.
    Found while_written(const Values& values, int depth, size_t known) const {
        Found least{.bytes = SIZE_MAX};
        for (const uint32_t last : values) {
            Values others;
            std::copy_if(values.begin(), values.end(), std::back_inserter(others),
                         [&](uint32_t value) { return value != last; });
            Found found = while_running(writer_[last], others, depth, known);
            if (found.bytes < least.bytes) least = std::move(found);
            if (least.bytes <= known) break;
        }
        return values.empty() ? Found{} : least;
    }

    const Schedule& schedule_;
    Values writer_;  // by value: the step that writes it
    Values root_;  // by value: the value that it is a view of
    std::vector<std::vector<Edge>> neighbours_;
    Values family_;
    std::vector<std::ptrdiff_t> place_;  // by value: distance from the first of its family
    std::vector<bool> has_places_;  // by family
    std::vector<bool> lies_in_input_;  // also if it may: a slice of an input
    std::vector<bool> may_lie_outside_;
    size_t room_outside_ = 0;
};

}  // namespace

LowerBound lower_bound(const Schedule& schedule) { return BoundSearch(schedule).find(); }

}  // namespace megjit::memory
