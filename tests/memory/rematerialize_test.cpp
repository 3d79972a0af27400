// Plans of recomputation: sound, monotone, near the optimum where that can be known, fast.
#include "memory/rematerialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <queue>
#include <random>

namespace megjit::memory {
namespace {

// Forward a0 .. an, backward g(n) .. g0 which reads the activation of its layer.
RematProblem chain(uint32_t layers, size_t bytes = 100) {
    RematProblem p;
    p.values.push_back({bytes, true});  // the input
    const auto step = [&](std::vector<uint32_t> reads) {
        const auto out = static_cast<uint32_t>(p.values.size());
        p.values.push_back({bytes, false});
        p.steps.push_back({.cost = 1, .reads = std::move(reads), .writes = {out}});
        return out;
    };
    std::vector<uint32_t> acts = {0};
    for (uint32_t i = 0; i < layers; ++i) acts.push_back(step({acts.back()}));
    uint32_t grad = step({acts.back()});
    for (uint32_t i = layers; i-- > 0;) grad = step({grad, acts[i]});
    p.values[grad].is_kept = true;
    return p;
}

void expect_a_sound_curve(const RematProblem& problem, const std::vector<RematPlan>& curve) {
    ASSERT_FALSE(curve.empty());
    for (size_t i = 0; i < curve.size(); ++i) {
        const RematPlan measured = measure(problem, curve[i].order);
        EXPECT_EQ(measured.peak_bytes, curve[i].peak_bytes);
        EXPECT_DOUBLE_EQ(measured.cost, curve[i].cost);
        if (i) {
            EXPECT_LT(curve[i].peak_bytes, curve[i - 1].peak_bytes);
            EXPECT_GE(curve[i].cost, curve[i - 1].cost);
        }
    }
}

TEST(Rematerialize, AChainNeedsTheSquareRootForOneMoreForward) {
    const RematProblem problem = chain(100);
    const auto curve = rematerialize(problem);
    expect_a_sound_curve(problem, curve);
    const double plain = curve.front().cost;
    size_t least = curve.front().peak_bytes;
    for (const RematPlan& plan : curve)
        if (plan.cost <= 1.5 * plain) least = std::min(least, plan.peak_bytes);
    EXPECT_LE(least, 21u * 100);  // 2 sqrt(100) + 1
}

TEST(Rematerialize, FiveThousandNodesTakeLessThanASecond) {
    const RematProblem problem = chain(2500);
    const std::clock_t start = std::clock();
    const auto curve = rematerialize(problem);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 1.0);
    expect_a_sound_curve(problem, curve);
}

// Joins and skips on the way forward; backward reads each activation once or twice.
RematProblem random_problem(uint32_t seed) {
    std::mt19937 random(seed);
    RematProblem p;
    const auto add = [&](std::vector<uint32_t> reads) {
        const auto out = static_cast<uint32_t>(p.values.size());
        p.values.push_back({size_t{10} * (1 + random() % 8), false});
        p.steps.push_back({.cost = 1.0 + random() % 5, .reads = std::move(reads), .writes = {out}});
        return out;
    };
    p.values.push_back({50, true});
    std::vector<uint32_t> acts = {0};
    const uint32_t layers = 4 + random() % 3;
    for (uint32_t i = 0; i < layers; ++i) {
        std::vector<uint32_t> reads = {acts.back()};
        if (acts.size() > 2 && random() % 3 == 0) reads.push_back(acts[random() % (acts.size() - 1)]);
        acts.push_back(add(reads));
    }
    uint32_t grad = add({acts.back()});
    for (uint32_t i = layers; i-- > 1;) {
        std::vector<uint32_t> reads = {grad, acts[i]};
        if (random() % 3 == 0) reads.push_back(acts[1 + random() % i]);
        grad = add(reads);
    }
    p.values[grad].is_kept = true;
    return p;
}

constexpr double kNever = 1e30;

// The least cost within `budget` of all schedules there are: shortest path over (steps done, values there).
double least_cost(const RematProblem& p, size_t budget) {
    const auto count = static_cast<uint32_t>(p.values.size());
    const auto bytes_of = [&](uint32_t there) {
        size_t bytes = 0;
        for (uint32_t v = 0; v < count; ++v)
            if (there >> v & 1 && !p.values[v].is_kept) bytes += p.values[v].bytes;
        return bytes;
    };
    using State = std::pair<uint32_t, uint32_t>;
    std::map<State, double> best;
    std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>, std::greater<>> queue;
    const auto visit = [&](State state, double cost) {
        const auto [found, is_new] = best.try_emplace(state, cost);
        if (!is_new && found->second <= cost) return;
        found->second = cost;
        queue.push({cost, state});
    };
    visit({0, 1}, 0);  // value 0 is the input
    while (!queue.empty()) {
        const auto [cost, state] = queue.top();
        queue.pop();
        if (cost > best[state]) continue;
        const auto [done, there] = state;
        if (done == p.steps.size()) return cost;
        for (uint32_t v = 1; v < count; ++v)
            if (there >> v & 1) visit({done, there & ~(1u << v)}, cost);
        for (uint32_t s = 0; s <= done; ++s) {
            const bool has_operands = std::all_of(p.steps[s].reads.begin(), p.steps[s].reads.end(), [&](uint32_t v) { return there >> v & 1; });
            const uint32_t then = there | 1u << p.steps[s].writes[0];
            if (has_operands && bytes_of(then) <= budget) visit({s == done ? done + 1 : done, then}, cost + p.steps[s].cost);
        }
    }
    return kNever;
}

double cost_within(const std::vector<RematPlan>& curve, size_t budget) {
    for (const RematPlan& plan : curve)
        if (plan.peak_bytes <= budget) return plan.cost;
    return kNever;
}

struct Quality {
    int questions = 0, unanswered = 0, off = 0;  // off: more than 10 % above the optimum
    double ours = 0, optimal = 0;
};

Quality quality_of(const RematSearch& search) {
    Quality q;
    for (uint32_t seed = 0; seed < 100; ++seed) {
        const RematProblem problem = random_problem(seed);
        const auto curve = rematerialize(problem, search);
        expect_a_sound_curve(problem, curve);
        for (size_t percent : {90, 80, 70, 60, 50, 40}) {
            const size_t budget = curve.front().peak_bytes * percent / 100;
            const double best = least_cost(problem, budget), found = cost_within(curve, budget);
            if (best == kNever) continue;
            ++q.questions;
            if (found == kNever) {
                ++q.unanswered;
                continue;
            }
            EXPECT_GE(found, best - 1e-9) << "seed " << seed;
            q.off += found > 1.1 * best;
            q.ours += found;
            q.optimal += best;
        }
    }
    return q;
}

// Of all budgets that some schedule fits in (292 over 100 graphs), by exhaustive search.
TEST(Rematerialize, SmallGraphsComeNearTheOptimum) {
    const Quality fast = quality_of({});
    EXPECT_LE(fast.ours, 1.015 * fast.optimal);
    EXPECT_LE(fast.off, fast.questions * 4 / 100);
    EXPECT_LE(fast.unanswered, fast.questions / 100);
}

TEST(Rematerialize, TheThoroughSearchAnswersWhateverCanBeAnswered) {
    const Quality thorough = quality_of({.thresholds = 4, .genetic_rounds = 6, .genetic_pool = 20});
    EXPECT_LE(thorough.ours, 1.0125 * thorough.optimal);
    EXPECT_EQ(thorough.unanswered, 0);
}

TEST(Rematerialize, TheAnswerDoesNotDependOnTheNumberOfThreads) {
    const RematProblem problem = chain(60);
    const auto one = rematerialize(problem, {.thresholds = 5, .genetic_rounds = 2, .workers = 1});
    const auto four = rematerialize(problem, {.thresholds = 5, .genetic_rounds = 2, .workers = 4});
    ASSERT_EQ(one.size(), four.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].order, four[i].order);
}

TEST(Rematerialize, LongSkipsAreComputedAgain) {
    // Down, and up again with a skip at each depth: the outermost skip waits longest.
    RematProblem p;
    p.values.push_back({0, true});
    const auto step = [&](std::vector<uint32_t> reads, size_t bytes) {
        const auto out = static_cast<uint32_t>(p.values.size());
        p.values.push_back({bytes, false});
        p.steps.push_back({.cost = 1, .reads = std::move(reads), .writes = {out}});
        return out;
    };
    std::vector<uint32_t> down = {step({0}, 800)};
    for (size_t bytes : {400, 200, 100}) down.push_back(step({down.back()}, bytes));
    uint32_t up = down.back();
    for (size_t i = down.size() - 1; i-- > 0;) up = step({up, down[i]}, p.values[down[i]].bytes);
    p.values[up].is_kept = true;
    const auto curve = rematerialize(p);
    expect_a_sound_curve(p, curve);
    EXPECT_EQ(curve.front().peak_bytes, 1800u);
    EXPECT_EQ(curve.back().peak_bytes, 1200u);  // the outermost, twice
}

TEST(Rematerialize, WhatMayRunOnlyOnceIsKept) {
    RematProblem problem = chain(40);
    problem.steps[3].repeatable = problem.steps[20].repeatable = false;
    for (const RematPlan& plan : rematerialize(problem)) {
        EXPECT_EQ(std::count(plan.order.begin(), plan.order.end(), 3u), 1);
        EXPECT_EQ(std::count(plan.order.begin(), plan.order.end(), 20u), 1);
    }
}

TEST(Rematerialize, AMalformedProblemIsRefused) {
    RematProblem twice = chain(2), early = chain(2);
    twice.steps[1].writes = twice.steps[0].writes;
    early.steps[0].reads = {3};
    EXPECT_THROW(rematerialize(twice), std::invalid_argument);
    EXPECT_THROW(rematerialize(early), std::invalid_argument);
    EXPECT_THROW(measure(chain(3), {1, 0}), std::invalid_argument);
    EXPECT_EQ(rematerialize({}).size(), 1u);
}

}  // namespace
}  // namespace megjit::memory
