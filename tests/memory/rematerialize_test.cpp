// Plans of recomputation: sound, monotone, near the optimum where that can be known, fast.
#include "memory/rematerialize.h"

#include "memory/step_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <tuple>
#include <utility>

namespace megjit::memory { namespace {

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

TEST(Rematerialize, ServesFiveThousandNodes) {
    const RematProblem problem = chain(2500);
    expect_a_sound_curve(problem, rematerialize(problem));
}

// Joins and skips on the way forward; backward reads each activation once or twice.
RematProblem random_problem(uint32_t seed, uint32_t least_layers = 4) {
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
    const uint32_t layers = least_layers + random() % 3;
    for (uint32_t i = 0; i < layers; ++i) {
        std::vector<uint32_t> reads = {acts.back()};
        if (acts.size() > 2 && random() % 3 == 0)
            reads.push_back(acts[random() % (acts.size() - 1)]);
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

// The least cost within `budget` of all schedules there are: shortest path over (steps done, values
// there).
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
    std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>,
                        std::greater<>>
        queue;
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
            const bool has_operands = std::all_of(p.steps[s].reads.begin(), p.steps[s].reads.end(),
                                                  [&](uint32_t v) { return there >> v & 1; });
            const uint32_t then = there | 1u << p.steps[s].writes[0];
            if (has_operands && bytes_of(then) <= budget)
                visit({s == done ? done + 1 : done, then}, cost + p.steps[s].cost);
        }
    }
    return kNever;
}

double cost_within(const std::vector<RematPlan>& curve, size_t budget) {
    for (const RematPlan& plan : curve)
        if (plan.peak_bytes <= budget) return plan.cost;
    return kNever;
}

// By exhaustive search, of all budgets that some schedule fits in.
TEST(Rematerialize, SmallGraphsAreWithinTwoPercentOfTheOptimum) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
        const RematProblem problem = random_problem(seed);
        const auto curve = rematerialize(problem);
        expect_a_sound_curve(problem, curve);
        for (size_t percent : {90, 80, 70, 60, 50, 40}) {
            const size_t budget = curve.front().peak_bytes * percent / 100;
            const double best = least_cost(problem, budget);
            if (best >= 3 * curve.front().cost) continue;  // RematSearch::most_cost
            EXPECT_LE(cost_within(curve, budget), 1.02 * best)
                << "seed " << seed << ", " << budget << " bytes";
            EXPECT_GE(cost_within(curve, budget), best - 1e-9)
                << "seed " << seed << ", " << budget << " bytes";
        }
    }
}

TEST(Rematerialize, TheAnswerDoesNotDependOnTheNumberOfThreads) {
    const RematProblem problem = chain(60);
    const auto one = rematerialize(problem, {.thresholds = 5, .genetic_rounds = 2, .workers = 1});
    const auto four = rematerialize(problem, {.thresholds = 5, .genetic_rounds = 2, .workers = 4});
    ASSERT_EQ(one.size(), four.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].order, four[i].order);
}

// Arenas of plans with one peak differ, so what a short search keeps is kept by a longer one.
TEST(Rematerialize, ALongerSearchKnowsTheSmallestPlanOfAShorterOne) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        const RematProblem problem = random_problem(seed, 60);
        const auto shorter = rematerialize(problem, {.thresholds = 5});
        const auto longer = rematerialize(problem, {.thresholds = 5, .genetic_rounds = 3});
        EXPECT_TRUE(std::ranges::count(longer, shorter.back().order, &RematPlan::order)) << seed;
    }
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

// A network of convolutions and relus as it is recorded, two of each size: of each layer the
// gradient of what it reads, then that of its weights, which is small, then the mask, in place.
RematProblem convolutions(uint32_t layers) {
    RematProblem p;
    p.values.push_back({1, true});
    const auto step = [&](std::vector<uint32_t> reads, size_t bytes, double cost) {
        const auto out = static_cast<uint32_t>(p.values.size());
        p.values.push_back({bytes, bytes == 1});
        p.steps.push_back({.cost = cost, .reads = std::move(reads), .writes = {out}});
        return out;
    };
    const auto bytes = [](uint32_t layer) { return std::max<size_t>(2, 1000 >> (layer - 1) / 2); };
    std::vector<uint32_t> acts = {0};
    for (uint32_t i = 1; i <= layers; ++i) acts.push_back(step({acts.back()}, bytes(i), 10));
    uint32_t grad = step({acts.back()}, bytes(layers), 1);
    for (uint32_t i = layers; i-- > 1;) {
        const uint32_t data = step({grad}, bytes(i), 10);
        step({acts[i], grad}, 1, 10);
        grad = step({acts[i], data}, bytes(i), 1);
        p.steps.back().in_place = true;
    }
    step({acts[0], grad}, 1, 10);
    return p;
}

// What a step makes that is recorded early waits beside what others need: in the order of the
// record three of the largest values are alive at once, whatever runs again.
TEST(Rematerialize, WhatGrowsRunsBehindWhatDoesNot) {
    for (const uint32_t layers : {8, 20, 30}) {
        const RematProblem problem = convolutions(layers);
        const auto listed = rematerialize(problem),
                   late = rematerialize(problem, {.places = Places::late});
        expect_a_sound_curve(problem, late);
        EXPECT_EQ(listed.back().peak_bytes, 3000u) << layers;
        EXPECT_LE(late.back().peak_bytes, 2600u) << layers;
        EXPECT_EQ(late.front().order, listed.front().order);
    }
}

TEST(Rematerialize, WhatMayRunOnlyOnceKeepsItsOrder) {
    RematProblem problem = convolutions(30);
    for (size_t i = 0; i < problem.steps.size(); i += 3) problem.steps[i].repeatable = false;
    for (const RematPlan& plan : rematerialize(problem, {.places = Places::late})) {
        std::vector<uint32_t> once;
        for (uint32_t step : plan.order)
            if (!problem.steps[step].repeatable) once.push_back(step);
        EXPECT_TRUE(std::ranges::is_sorted(once));
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

TEST(Rematerialize, ScratchCountsWhileAStepRuns) {
    RematProblem problem = chain(3);
    const size_t without = plain_plan(problem).peak_bytes;
    for (RematStep& step : problem.steps) step.scratch = 70;
    EXPECT_EQ(plain_plan(problem).peak_bytes, without + 70);
}

TEST(Rematerialize, WhatMustBeLetGoOfRunsAgainAndNothingElse) {
    RematProblem problem = chain(6);
    for (uint32_t step : {1, 2, 3}) problem.steps[step].region = 1;
    for (uint32_t value : {2, 3}) problem.values[value].region = 1;  // step 3 gives the result
    const std::vector<uint32_t> order = plain_plan(problem).order;
    EXPECT_EQ(order.size(), problem.steps.size() + 2);
    for (uint32_t step : {1, 2}) EXPECT_EQ(std::count(order.begin(), order.end(), step), 2);
    expect_a_sound_curve(problem, rematerialize(problem));
}

// As a gradient of max pooling and the next one read what their region has made.
TEST(Rematerialize, WhatMustBeLetGoOfRunsAgainOnceForAllReadersBehind) {
    for (size_t readers : {1, 2, 3}) {
        RematProblem problem = chain(3);
        problem.steps[0].region = problem.steps[1].region = 1;
        problem.values[1].region = 1;
        const uint32_t value = 1;
        for (size_t i = 0; i < readers; ++i) {
            const auto last = static_cast<uint32_t>(problem.values.size());
            problem.values.push_back({.bytes = 100});
            problem.steps.push_back({.cost = 1, .reads = {value, last - 1}, .writes = {last}});
        }
        problem.values.back().is_kept = true;
        const std::vector<uint32_t> order = plain_plan(problem).order;
        EXPECT_EQ(order.size(), problem.steps.size() + 1) << readers;
    }
}

TEST(Rematerialize, WhatMustStayRunsOnce) {
    RematProblem problem = chain(40);
    problem.values[20].must_stay = true;
    for (const RematPlan& plan : rematerialize(problem))
        EXPECT_EQ(std::count(plan.order.begin(), plan.order.end(), 19u), 1);
}

TEST(Rematerialize, AWatcherThatThrowsEndsTheSearch) {
    struct Enough {};
    const RematSearch search{
        .genetic_rounds = 100'000, .workers = 2, .watch = [](double) { throw Enough{}; }};
    EXPECT_THROW(rematerialize(chain(200), search), Enough);
}

// A parameter for each layer, gradients in the backward pass, all updates behind it.
RematProblem training(uint32_t layers) {
    RematProblem p = chain(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        const auto parameter = static_cast<uint32_t>(p.values.size());
        p.values.insert(p.values.end(),
                        {{1000, true}, {1000, false}, {1000, true}});  // it, its gradient, it again
        p.steps[i].reads.push_back(parameter);
        p.steps[2 * layers - i].reads.push_back(parameter);
        p.steps[2 * layers - i].writes.push_back(parameter + 1);
        p.steps.push_back({.cost = 1,
                           .reads = {parameter, parameter + 1},
                           .writes = {parameter + 2},
                           .in_place = true,
                           .overwrites = {parameter}});
    }
    return p;
}

TEST(StepOrder, AnUpdateDoesNotWaitForTheOtherGradients) {
    const RematProblem problem = training(10);
    const std::vector<uint32_t> order = order_for_peak(problem);
    EXPECT_GE(plain_plan(problem).peak_bytes, 10'000u);
    EXPECT_LT(measure(problem, order).peak_bytes, 3'500u);
}

// As training, but updates are steps: a decayed average, a square of the gradient beside the
// gradient, and the update, which also reads a number that is made behind the backward pass.
RematProblem training_by_averages(uint32_t layers) {
    RematProblem p = training(layers);
    p.steps.resize(2 * layers + 1);
    const auto add = [&](size_t bytes, bool is_kept, std::vector<uint32_t> reads,
                         std::vector<uint32_t> overwrites = {}) {
        const auto made = static_cast<uint32_t>(p.values.size());
        p.values.push_back({bytes, is_kept});
        p.steps.push_back({.cost = 1,
                           .reads = std::move(reads),
                           .writes = {made},
                           .overwrites = std::move(overwrites)});
        return made;
    };
    const auto kept = [&](size_t bytes) {
        p.values.push_back({bytes, true});
        return static_cast<uint32_t>(p.values.size() - 1);
    };
    const uint32_t correction = add(4, false, {kept(4)});
    const uint32_t first = 2 * layers + 2;  // chain's values come before
    for (uint32_t i = 0; i < layers; ++i) {
        const uint32_t parameter = first + 3 * i, gradient = parameter + 1;
        const uint32_t average = kept(1000);
        const uint32_t decayed = add(1000, false, {average});
        const uint32_t square = add(1000, false, {gradient});
        const uint32_t moved = add(1000, true, {decayed, gradient, square}, {average});
        add(1000, true, {parameter, moved, correction}, {parameter});
    }
    return p;
}

TEST(StepOrder, UpdatesOfSeveralStepsRunBehindTheirGradients) {
    const RematProblem problem = training_by_averages(40);
    const std::vector<uint32_t> order = early_updates(problem);
    ASSERT_EQ(order.size(), problem.steps.size());
    EXPECT_GE(plain_plan(problem).peak_bytes, 40'000u);
    EXPECT_LT(measure(problem, order).peak_bytes, 4'000u + 41 * 100);
    EXPECT_EQ(in_order(problem, order).steps.size(), problem.steps.size());
}

TEST(StepOrder, UpdatesStayWhereGradientsAreSmall) {
    RematProblem problem = training_by_averages(40);
    for (RematValue& value : problem.values)
        if (value.bytes == 100) value.bytes = 100'000;  // activations
    EXPECT_TRUE(early_updates(problem).empty());
}

TEST(StepOrder, NothingReadsAParameterBehindItsUpdate) {
    const RematProblem problem = training(10);
    for (const Places places : {Places::listed, Places::late})
        for (const RematPlan& plan : rematerialize(problem, {.places = places})) {
            std::vector<bool> is_overwritten(problem.values.size());
            for (uint32_t step : plan.order) {
                for (uint32_t v : problem.steps[step].reads) EXPECT_FALSE(is_overwritten[v]);
                for (uint32_t v : problem.steps[step].overwrites) is_overwritten[v] = true;
            }
        }
}

// `heads` branches, recorded stage by stage; what a stage computes is large, what a branch gives is
// small.
RematProblem branches(uint32_t heads, uint32_t stages) {
    RematProblem p;
    p.values.push_back({100, true});
    std::vector<uint32_t> now(heads, 0);
    for (uint32_t stage = 0; stage < stages; ++stage)
        for (uint32_t& value : now) {
            const uint32_t read = std::exchange(value, static_cast<uint32_t>(p.values.size()));
            p.values.push_back({stage + 1 < stages ? size_t{1000} : size_t{10}, false});
            p.steps.push_back({.cost = 1, .reads = {read}, .writes = {value}});
        }
    p.values.push_back({10, true});
    p.steps.push_back(
        {.cost = 1, .reads = now, .writes = {static_cast<uint32_t>(p.values.size() - 1)}});
    return p;
}

TEST(StepOrder, BranchesRunToTheirEnds) {
    const RematProblem problem = branches(8, 4);
    EXPECT_EQ(plain_plan(problem).peak_bytes, 9000u);
    EXPECT_LE(measure(problem, order_for_peak(problem)).peak_bytes, 2000u + 7 * 10);
    EXPECT_EQ(rematerialize(problem)[1].cost, plain_plan(problem).cost);
}

TEST(StepOrder, StepsThatMayFailKeepTheirOrder) {
    RematProblem problem = branches(8, 4);
    for (RematStep& step : problem.steps) step.repeatable = false;
    EXPECT_TRUE(std::ranges::is_sorted(order_for_peak(problem)));
}

// Operations that read up to three values each; some results are kept.
RematProblem random_dag(uint32_t seed) {
    std::mt19937 random(seed);
    RematProblem p;
    p.values.push_back({10, true});
    for (uint32_t i = 0; i < 4 + seed % 7; ++i) {
        RematStep step{.cost = 1,
                       .writes = {i + 1},
                       .in_place = random() % 2 == 0,
                       .scratch = random() % 4 ? 0 : random() % 30};
        for (uint32_t r = 0; r < 1 + random() % 3; ++r) {
            const uint32_t v = random() % (i + 1);
            if (std::ranges::find(step.reads, v) == step.reads.end()) step.reads.push_back(v);
        }
        p.values.push_back({10 * (1 + random() % 9), random() % 5 == 0});
        p.steps.push_back(std::move(step));
    }
    return p;
}

size_t least_peak(const RematProblem& problem, std::vector<uint32_t>& order,
                  std::vector<bool>& is_there) {
    if (order.size() == problem.steps.size()) return measure(problem, order).peak_bytes;
    size_t least = std::numeric_limits<size_t>::max();
    for (uint32_t step = 0; step < problem.steps.size(); ++step) {
        const auto& [reads, writes] =
            std::tie(problem.steps[step].reads, problem.steps[step].writes);
        if (is_there[writes[0]] ||
            !std::ranges::all_of(reads, [&](uint32_t v) { return is_there[v]; }))
            continue;
        order.push_back(step);
        is_there[writes[0]] = true;
        least = std::min(least, least_peak(problem, order, is_there));
        is_there[writes[0]] = false;
        order.pop_back();
    }
    return least;
}

TEST(StepOrder, ComesNearTheBestOrderOfSmallGraphs) {
    double plain = 0, found = 0, best = 0;
    for (uint32_t seed = 0; seed < 100; ++seed) {
        const RematProblem problem = random_dag(seed);
        const std::vector<uint32_t> order = order_for_peak(problem);
        std::vector<uint32_t> prefix, sorted = order;
        std::ranges::sort(sorted);
        std::vector<bool> is_there(problem.values.size());
        is_there[0] = true;
        const size_t least = least_peak(problem, prefix, is_there),
                     mine = measure(problem, order).peak_bytes,
                     recorded = measure(problem, sorted).peak_bytes;
        for (uint32_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i);
        ASSERT_TRUE(mine < recorded || std::ranges::is_sorted(order)) << "seed " << seed;
        ASSERT_GE(mine, least) << "seed " << seed;
        plain += static_cast<double>(recorded) / static_cast<double>(least);
        found += static_cast<double>(mine) / static_cast<double>(least);
        best += mine == least;
    }
    EXPECT_GT(plain, 115);
    EXPECT_LT(found, 106);
    EXPECT_GT(best, 60);
}

TEST(StepOrder, FiveThousandStepsAreOrdered) {
    const RematProblem problem = branches(50, 100);
    std::vector<uint32_t> order = order_for_peak(problem), recorded = order;
    std::ranges::sort(recorded);
    EXPECT_LT(measure(problem, order).peak_bytes, measure(problem, recorded).peak_bytes);
    for (uint32_t i = 0; i < recorded.size(); ++i) ASSERT_EQ(recorded[i], i);
}

}}  // namespace megjit::memory
