// What a ladder expects of plans; and a ladder without kernels, which follows one that was refused:
// when it searches, and what it takes over.
#include "jit/plan/plan_ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace megjit::jit { namespace {

class LadderWithoutKernels : public ::testing::Test {
protected:
    static MemoryPlan program(size_t bytes, size_t bound) {
        MemoryPlan plan;
        plan.planned_bytes = plan.arena_bytes = bytes;
        plan.bound.bytes = bound;
        return plan;
    }

    // Does a ladder end at its first program, which takes 1000 bytes?
    static bool ends_at(size_t bound, const MemoryOptions& options = {.limit = 900},
                        int opt_level = 2, size_t of_rival = SIZE_MAX) {
        PlanLadder rival(options), ladder(options);
        rival.with_plan({.opt_level = 3});
        if (of_rival != SIZE_MAX) rival.accepts(program(of_rival, 0));
        ladder.beats(rival);
        ladder.with_plan({.opt_level = opt_level});
        EXPECT_FALSE(ladder.accepts(program(1000, bound)));
        return ladder.is_exhausted();
    }

    // The last of `steps` steps read what the first ones made.
    static memory::RematProblem there_and_back(uint32_t steps, uint32_t costs) {
        memory::RematProblem problem;
        problem.values.assign(steps + 1, {.bytes = 1 << 10});
        problem.values.front().is_kept = problem.values.back().is_kept = true;
        for (uint32_t s = 0; s < steps; ++s) {
            problem.steps.push_back(
                {.cost = 1.0 + s * costs % 13, .reads = {s}, .writes = {s + 1}});
            if (s + 16 >= steps) problem.steps.back().reads.push_back(steps - s);
        }
        return problem;
    }

    using Orders = std::set<std::vector<uint32_t>>;
    // Returns the orders of steps that a ladder tries in vain.
    static Orders orders_of(PlanLadder& ladder, const memory::RematProblem& problem) {
        const MemoryPlan plain = program(memory::plain_plan(problem).peak_bytes, 0);
        const PipelineOptions options = ladder.with_plan({.opt_level = 2});
        EXPECT_FALSE(ladder.accepts(plain));
        options.choose_whole(problem);
        Orders orders;
        while (!ladder.accepts(plain) && !ladder.is_exhausted())
            orders.insert(options.choose_whole(problem));
        return orders;
    }

    // Does a ladder take no other orders than the one before it, whose steps have other costs?
    static bool takes_plans_of_another(uint32_t steps) {
        PlanLadder rival({.limit = 1}), ladder({.limit = 1});
        const Orders known = orders_of(rival, there_and_back(steps, 1));
        ladder.beats(rival);
        const Orders orders = orders_of(ladder, there_and_back(steps, 5));
        EXPECT_FALSE(orders.empty());
        return std::ranges::includes(known, orders);
    }
};

TEST_F(LadderWithoutKernels, EndsWhereTheBoundLeavesNothingSmallerToFind) {
    EXPECT_TRUE(ends_at(1000));
    EXPECT_FALSE(ends_at(990));  // a plan of 990 bytes may be found
    EXPECT_TRUE(ends_at(990, {.limit = 900}, 2, /*of_rival=*/990));
    EXPECT_FALSE(ends_at(980, {.limit = 900}, 2, /*of_rival=*/990));
}

TEST_F(LadderWithoutKernels, GoesOnWhereTheBoundDoesNotHoldForAllPlans) {
    EXPECT_FALSE(ends_at(1000, {.limit = 900}, /*opt_level=*/3));
    EXPECT_FALSE(ends_at(1000, {.limit = 900, .spill = "a folder"}));
}

TEST_F(LadderWithoutKernels, TakesThePlansOfTheOneBeforeIfThereAreManySteps) {
    EXPECT_TRUE(takes_plans_of_another(1500));
    EXPECT_FALSE(takes_plans_of_another(1498));
}

// Programs of a stage may take several times what its search counts. A ladder that expected the
// same bytes more of each plan skipped those that fit, and a refusal named 7.6 % too much.
TEST_F(LadderWithoutKernels, ExpectsOfEachPlanAsManyTimesItsCountAsThePlainProgramTakes) {
    const memory::RematProblem problem = there_and_back(200, 1);
    const size_t counted = memory::plain_plan(problem).peak_bytes;
    PlanLadder ladder({.limit = 2 * counted});
    const PipelineOptions options = ladder.with_plan({.opt_level = 2});
    const MemoryPlan plain = program(3 * counted, 0);
    EXPECT_FALSE(ladder.accepts(plain));
    options.choose_whole(problem);
    EXPECT_FALSE(ladder.accepts(plain));
    const size_t chosen = memory::measure(problem, options.choose_whole(problem)).peak_bytes;
    EXPECT_LE(27 * chosen, 20 * counted);  // 0.9 of three times its count is within the limit
    EXPECT_GT(2 * chosen, counted);  // and it is not the smallest one
}

}}  // namespace megjit::jit
