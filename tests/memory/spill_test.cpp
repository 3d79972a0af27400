// Plans of what leaves memory, played step by step by a program of its own.
#include "memory/spill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "memory/rematerialize.h"

namespace megjit::memory { namespace {

// A chain whose values are read again in the opposite order, as a training step does.
RematProblem there_and_back(uint32_t layers, size_t bytes) {
    RematProblem problem;
    const auto add = [&](std::vector<uint32_t> reads) {
        const auto value = static_cast<uint32_t>(problem.values.size());
        problem.values.push_back({.bytes = bytes});
        problem.steps.push_back({.cost = 1, .reads = std::move(reads), .writes = {value}});
        return value;
    };
    std::vector<uint32_t> forward = {add({})};
    for (uint32_t i = 1; i < layers; ++i) forward.push_back(add({forward.back()}));
    uint32_t gradient = add({forward.back()});
    for (uint32_t i = layers; i-- > 0;) gradient = add({gradient, forward[i]});
    problem.values[gradient].is_kept = true;
    return problem;
}

// What the plan's transfers and the steps have in memory at most; a fault where a step reads what
// is not there, or something is fetched that was not written.
size_t peak_of(const RematProblem& problem, const SpillPlan& plan) {
    std::set<uint32_t> there, outside(plan.outside_at_start.begin(), plan.outside_at_start.end());
    const std::set<uint32_t> ends_outside(plan.outside_at_end.begin(), plan.outside_at_end.end());
    const std::set<uint32_t> starts_outside = outside;
    const auto counts = [&](uint32_t v) {
        return !problem.values[v].is_kept || starts_outside.contains(v) || ends_outside.contains(v);
    };
    // A value that no transfer takes away is there until the last step that reads it.
    std::vector<uint32_t> last(problem.values.size());
    for (uint32_t s = 0; s < problem.steps.size(); ++s) {
        for (const uint32_t v : problem.steps[s].reads) last[v] = s;
        for (const uint32_t v : problem.steps[s].writes) last[v] = std::max(last[v], s);
    }
    // One that is outside leaves where the next fetch of it says so at the latest.
    const auto has_left = [&](uint32_t v, uint32_t s) {
        for (uint32_t later = s + 1; later < problem.steps.size(); ++later) {
            for (const auto& fetch : plan.fetches)
                if (fetch.value == v && fetch.step == later) return true;
            if (std::ranges::count(problem.steps[later].reads, v)) return false;
        }
        return true;
    };
    size_t peak = 0;
    for (uint32_t s = 0; s < problem.steps.size(); ++s) {
        for (const auto& fetch : plan.fetches)
            if (fetch.step == s) {
                EXPECT_TRUE(outside.contains(fetch.value)) << fetch.value << " before " << s;
                EXPECT_TRUE(there.insert(fetch.value).second) << "is there";
            }
        const RematStep& step = problem.steps[s];
        size_t bytes = step.scratch;
        for (const uint32_t v : step.reads)
            if (counts(v)) { EXPECT_TRUE(there.contains(v)) << v << " before " << s; }
        for (const uint32_t v : step.writes)
            if (counts(v)) there.insert(v);
        for (const uint32_t v : there) bytes += problem.values[v].bytes;
        peak = std::max(peak, bytes);
        for (const auto& store : plan.stores)
            if (store.step == s) {
                EXPECT_TRUE(there.contains(store.value)) << "is stored from nowhere";
                EXPECT_TRUE(outside.insert(store.value).second) << "is stored twice";
            }
        std::erase_if(there, [&](uint32_t v) {
            const auto stored = std::ranges::find(plan.stores, v, &SpillPlan::Store::value);
            const bool waits = stored != plan.stores.end() && stored->step > s;
            return !waits && (last[v] <= s || (outside.contains(v) && has_left(v, s)));
        });
    }
    for (const uint32_t v : plan.outside_at_end) EXPECT_TRUE(outside.contains(v));
    return peak;
}

TEST(Spill, NothingMovesWhereAllFits) {
    const SpillPlan plan = spill(there_and_back(16, 1 << 20), {.most_bytes = SIZE_MAX});
    EXPECT_TRUE(plan.stores.empty() && plan.fetches.empty());
    EXPECT_EQ(plan.seconds, 0);
}

TEST(Spill, KeepsTheBytesThatItIsAllowed) {
    const RematProblem problem = there_and_back(16, 1 << 20);
    for (const size_t most : {15 << 20, 8 << 20, 4 << 20, 3 << 20}) {
        const SpillPlan plan = spill(problem, {.most_bytes = most, .link_bytes = 1e7});
        EXPECT_LE(plan.peak_bytes, most);
        EXPECT_LE(peak_of(problem, plan), most);
        EXPECT_LE(plan.written, size_t{16} << 20);  // each value once
        EXPECT_GT(plan.read, 0u);
    }
}

TEST(Spill, AFastLinkHidesBehindTheSteps) {
    const RematProblem problem = there_and_back(64, 1 << 20);
    const SpillOptions options{.most_bytes = 16 << 20, .link_bytes = 1e8};
    const SpillPlan fast = spill(problem, options);
    EXPECT_LT(fast.seconds, 0.1);
    SpillOptions slow = options;
    slow.link_bytes = 1e5;
    EXPECT_GT(spill(problem, slow).seconds, 100);
}

TEST(Spill, WhatIsReplacedComesInAndGoesOut) {
    RematProblem problem = there_and_back(4, 1 << 20);
    std::vector<uint32_t> old, fresh;
    for (uint32_t i = 0; i < 4; ++i) {
        old.push_back(static_cast<uint32_t>(problem.values.size()));
        problem.values.push_back({.bytes = 1 << 20, .is_kept = true});
        fresh.push_back(static_cast<uint32_t>(problem.values.size()));
        problem.values.push_back({.bytes = 1 << 20, .is_kept = true});
        problem.steps.push_back(
            {.cost = 1, .reads = {old[i]}, .writes = {fresh[i]}, .in_place = true});
    }
    const SpillPlan plan =
        spill(problem, {.most_bytes = 6 << 20, .outside_at_start = old, .outside_at_end = fresh});
    EXPECT_LE(peak_of(problem, plan), size_t{7} << 20);  // played without results on operands
    EXPECT_EQ(plan.read, size_t{4} << 20);
    EXPECT_EQ(plan.written, size_t{4} << 20);
}

TEST(Spill, AFrontGoesDown) {
    const std::vector<SpillPlan> front =
        spill_front(there_and_back(24, 1 << 20), {.most_bytes = 24 << 20}, [] {});
    ASSERT_GT(front.size(), 5u);
    for (size_t i = 1; i < front.size(); ++i)
        EXPECT_LT(front[i].peak_bytes, front[i - 1].peak_bytes);
    EXPECT_LE(front.back().peak_bytes, size_t{3} << 20);
}

TEST(Spill, RandomProblems) {
    std::mt19937 random(7);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    for (int round = 0; round < 200; ++round) {
        RematProblem problem;
        SpillOptions options{.least_bytes = 1, .link_bytes = 100};
        for (uint32_t s = 0; s < 40; ++s) {
            RematStep step{.cost = 0.01 * below(100), .in_place = below(2) == 0};
            const auto made = static_cast<uint32_t>(problem.values.size());
            for (uint32_t i = 0; made && i < below(4); ++i) {
                const uint32_t v = below(made);
                if (!std::ranges::count(step.reads, v)) step.reads.push_back(v);
            }
            for (uint32_t i = 0; i < 1 + below(2); ++i) {
                step.writes.push_back(static_cast<uint32_t>(problem.values.size()));
                problem.values.push_back({.bytes = 1 + below(8), .is_kept = below(10) == 0});
                if (problem.values.back().is_kept && below(2))
                    options.outside_at_end.push_back(step.writes.back());
            }
            problem.steps.push_back(step);
        }
        for (options.most_bytes = 60; options.most_bytes > 10; options.most_bytes -= 10) {
            const SpillPlan plan = spill(problem, options);
            peak_of(problem, plan);  // whatever is read is there
        }
    }
}
}}  // namespace megjit::memory
