// What no list of a schedule's steps takes less than: figures that can be counted by hand, and
// random schedules, whose steps are listed in other orders and more than once.
#include "memory/lower_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace megjit::memory { namespace {

size_t planned_bytes(const Schedule& schedule) {
    const Aliasing aliasing = share_buffers(schedule);
    return summarize(schedule, aliasing, plan_arena(arena_buffers(aliasing)).arena_bytes)
        .planned_bytes;
}

Alias in_place(uint32_t output, uint32_t input) { return {.output = output, .input = input}; }

struct Case {
    const char* name;
    Schedule schedule;
    size_t bytes;
};

const Value kInput64 = {.bytes = 64, .kind = ValueKind::kInput};
const Value kTemp64 = {.bytes = 64};
const Value kTemp192 = {.bytes = 192};
const Value kOutput64 = {.bytes = 64, .kind = ValueKind::kOutput};

const Case kCases[] = {
    {"nothing runs", {.values = {kInput64}}, 64},
    {"an operand and its result",
     {.values = {kInput64, kTemp192, kTemp64, kOutput64},
      .steps = {{.reads = {0}, .writes = {1}},
                {.reads = {1}, .writes = {2}},
                {.reads = {2}, .writes = {3}}}},
     64 + 64 + 192 + 64},
    {"a result that overwrites its operand",
     {.values = {kInput64, kTemp192, kTemp192, kTemp64, kOutput64},
      .steps = {{.reads = {0}, .writes = {1}},
                {.reads = {1}, .writes = {2}, .aliases = {in_place(2, 1)}},
                {.reads = {2}, .writes = {3}},
                {.reads = {3}, .writes = {4}}}},
     64 + 64 + 192 + 64},
    {"a workspace",
     {.values = {kInput64, kTemp64, kTemp192, kTemp64, kOutput64},
      .steps = {{.reads = {0}, .writes = {1}},
                {.reads = {1}, .writes = {3, 2}},
                {.reads = {3}, .writes = {4}}}},
     64 + 64 + 64 + 192 + 64},
    // Either 1 or 2 is written last, from 3 or 4 and beside the other.
    {"what is written last",
     {.values = {kInput64, kTemp64, kTemp64, kTemp192, kTemp192, kOutput64},
      .steps = {{.reads = {0}, .writes = {3}},
                {.reads = {3}, .writes = {1}},
                {.reads = {0}, .writes = {4}},
                {.reads = {4}, .writes = {2}},
                {.reads = {1, 2}, .writes = {5}}}},
     64 + 64 + 192 + 64 + 64},
    {"a value that lies in the result's memory",
     {.values = {kInput64, kTemp64, kOutput64},
      .steps = {{.reads = {0}, .writes = {1}},
                {.reads = {1}, .writes = {2}, .aliases = {in_place(2, 1)}}}},
     64 + 64},
    {"a result that takes the place of an input",
     {.values = {{.bytes = 64, .kind = ValueKind::kInput, .donatable = true}, kOutput64},
      .steps = {{.reads = {0}, .writes = {1}, .aliases = {in_place(1, 0)}}}},
     64},
};

TEST(LowerBound, CountsWhatMustBeThereAtOnce) {
    for (const Case& each : kCases) {
        EXPECT_EQ(lower_bound(each.schedule).bytes, each.bytes) << each.name;
        EXPECT_EQ(planned_bytes(each.schedule), each.bytes) << each.name;
    }
}

// Layers and their backward: 64 bytes a unit, so that rounding adds nothing.
class Drawn {
public:
    explicit Drawn(uint32_t seed) : random_(seed) {
        for (int i = 0; i < 3; ++i)
            base.values.push_back(
                {.bytes = size(), .kind = ValueKind::kInput, .donatable = i == 0});
        const uint32_t steps = 4 + draw(6);
        for (uint32_t s = 0; s < steps; ++s) add(s + 1 == steps || draw(8) == 0);
    }

    // The same steps in another order, some of them more than once. A result is written once.
    Schedule relisted() {
        std::vector<uint32_t> order, left(base.steps.size());
        for (uint32_t s = 0; s < left.size(); ++s) left[s] = s;
        std::vector<bool> is_written(base.values.size());
        for (uint32_t v = 0; v < 3; ++v) is_written[v] = true;
        while (!left.empty()) {
            std::vector<uint32_t> ready;
            for (const uint32_t s : left)
                if (std::ranges::all_of(base.steps[s].reads,
                                        [&](uint32_t r) { return is_written[r]; }))
                    ready.push_back(s);
            const uint32_t next = ready[draw(static_cast<uint32_t>(ready.size()))];
            order.push_back(next);
            std::erase(left, next);
            for (const uint32_t w : base.steps[next].writes) is_written[w] = true;
            const uint32_t again = order[draw(static_cast<uint32_t>(order.size()))];
            const bool gives = std::ranges::any_of(base.steps[again].writes, [&](uint32_t w) {
                return base.values[w].kind == ValueKind::kOutput;
            });
            if (!gives && draw(2)) order.push_back(again);
        }
        return listed(order);
    }

    Schedule base;

private:
    uint32_t draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
    size_t size() { return size_t{64} * (1 + draw(4)); }

    void add(bool gives) {
        StepAccess step;
        const auto values = static_cast<uint32_t>(base.values.size());
        for (uint32_t i = 0; i < 1 + draw(3); ++i)
            if (const uint32_t r = draw(4) ? values - 1 - draw(std::min(values, 3u)) : draw(values);
                std::ranges::find(step.reads, r) == step.reads.end())
                step.reads.push_back(r);
        const uint32_t operand = step.reads[0];
        Value result{.bytes = size(), .kind = gives ? ValueKind::kOutput : ValueKind::kTemp};
        switch (draw(5)) {
            case 0:
                step.reads = {operand};
                result.bytes = base.values[operand].bytes;
                step.aliases = {{.output = values, .input = operand, .kind = AliasKind::kView}};
                break;
            case 1:
                step.reads = {operand};
                result.bytes = 64;
                step.aliases = {{.output = values,
                                 .input = operand,
                                 .kind = AliasKind::kSlice,
                                 .offset = base.values[operand].bytes - 64}};
                break;
            case 2:
                result.bytes = 0;
                for (const uint32_t r : step.reads) {
                    step.aliases.push_back({.output = values,
                                            .input = r,
                                            .kind = AliasKind::kPart,
                                            .offset = result.bytes});
                    result.bytes += base.values[r].bytes;
                }
                break;
            case 3:
                result.bytes = base.values[operand].bytes;
                step.aliases = {in_place(values, operand)};
                break;
            default: break;
        }
        base.values.push_back(result);
        step.writes = {values};
        if (draw(4) == 0 && (step.aliases.empty() || step.aliases[0].kind != AliasKind::kView)) {
            base.values.push_back({.bytes = size()});
            step.writes.push_back(values + 1);
        }
        base.steps.push_back(step);
    }

    Schedule listed(const std::vector<uint32_t>& order) const {
        Schedule made;
        std::vector<uint32_t> now(base.values.size());  // the last copy of each value
        for (uint32_t v = 0; v < 3; ++v) {
            now[v] = v;
            made.values.push_back(base.values[v]);
        }
        for (const uint32_t s : order) {
            StepAccess step = base.steps[s];
            for (uint32_t& r : step.reads) r = now[r];
            for (Alias& alias : step.aliases) alias.input = now[alias.input];
            for (uint32_t& w : step.writes) {
                now[w] = static_cast<uint32_t>(made.values.size());
                made.values.push_back(base.values[w]);
                w = now[w];
            }
            for (Alias& alias : step.aliases) alias.output = step.writes[0];
            made.steps.push_back(step);
        }
        return made;
    }

    std::mt19937 random_;
};

TEST(LowerBound, NoListOfTheStepsTakesLess) {
    size_t tight = 0;
    for (uint32_t seed = 0; seed < 2000; ++seed) {
        Drawn drawn(seed);
        const size_t bound = lower_bound(drawn.base).bytes;
        size_t least = planned_bytes(drawn.base);
        for (int i = 0; i < 10; ++i) least = std::min(least, planned_bytes(drawn.relisted()));
        ASSERT_GE(least, bound) << "seed " << seed;
        tight += 10 * bound >= 8 * least;
    }
    EXPECT_GT(tight, 500u);  // else it proves next to nothing
}

}}  // namespace megjit::memory
