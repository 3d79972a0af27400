// Updates that look at a failure before they overwrite an input.
#include <gtest/gtest.h>

#include "jit/plan/passes/passes.h"
#include "jit/plan/pipeline.h"
#include "jit/plan/program_layout.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

class GuardUpdates : public World {
protected:
    void SetUp() override {
        if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    }
    static runtime::Device& card() { return runtime::find_device("gpu0:0"); }

    static Graph on(runtime::Device& device, std::string_view text) {
        Graph graph = parse_graph(text);
        graph.set_device(device);
        return graph;
    }
    static std::string guarded(runtime::Device& device, std::string_view text,
                               const std::vector<int>& replaces) {
        const Step step = step_of(on(device, text), {}, replaces);
        const Graph result = guard_updates(step.graph, {.device = &device, .step = &step});
        EXPECT_EQ(fault_of(result), "");
        return print(result);
    }
};

constexpr std::string_view kStep =
    "%0: f32[4] = input 0\n%1: i32[2] = input 1\n%2: f32[4] = square %0\n"
    "%3: f32[2] = index_get %0 %1 {axes=[0]}\n%4: f32[2] = exp %3\nreturn %4 %2\n";

TEST_F(GuardUpdates, StandBehindTheLastOpThatMayFail) {
    EXPECT_EQ(guarded(card(), kStep, {-1, 0}),
              "%0: f32[4] = input 0\n%1: i32[2] = input 1\n%2: f32[4] = square %0\n"
              "%3: f32[2] = index_get %0 %1 {axes=[0]}\n%4: bool[] = has_failed %3\n"
              "%5: f32[4] = where %4 %0 %2\n%6: f32[2] = exp %3\nreturn %6 %5\n");
}

TEST_F(GuardUpdates, AreLeftAloneWhereWorkStopsAtAFailure) {
    EXPECT_EQ(guarded(runtime::host_device(), kStep, {-1, 0}), kStep);
}

TEST_F(GuardUpdates, DoNotWaitForPlacesThatWereCheckedBefore) {
    EXPECT_EQ(guarded(card(),
                      "%0: f32[4] = input 0\n%1: i32[2] = input 1\n"
                      "%2: f32[2] = index_get %0 %1 {axes=[0]}\n%3: f32[4] = square %0\n"
                      "%4: f32[4] = index_add %0 %2 %1 {axes=[0]}\nreturn %4 %3\n",
                      {-1, 0}),
              "%0: f32[4] = input 0\n%1: i32[2] = input 1\n"
              "%2: f32[2] = index_get %0 %1 {axes=[0]}\n%3: bool[] = has_failed %2\n"
              "%4: f32[4] = square %0\n%5: f32[4] = where %3 %0 %4\n"
              "%6: f32[4] = index_add %0 %2 %1 {axes=[0]}\nreturn %6 %5\n");
}

// Along other axes of other tensors, too: no longer extent refuses what a shorter one took.
TEST_F(GuardUpdates, WaitForPlacesWithinAShorterExtentOnly) {
    const auto guarded_with = [](std::string_view axes) {
        return guarded(
            card(),
            runtime::cat("%0: f32[4] = input 0\n%1: i32[2] = input 1\n"
                         "%2: f32[3, 8] = input 2\n%3: f32[2] = index_get %0 %1 {axes=[0]}\n"
                         "%4: f32[4] = square %0\n",
                         axes, "return %3 %4 %5\n"),
            {-1, 0, -1});
    };
    EXPECT_NE(
        guarded_with("%5: f32[3, 2] = index_get %2 %1 {axes=[1]}\n").find("%5: f32[4] = square"),
        std::string::npos);
    EXPECT_NE(
        guarded_with("%5: f32[3, 2] = index_get %2 %1 {axes=[1]}\n").find("%6: f32[4] = where"),
        std::string::npos);
    EXPECT_NE(guarded_with("%5: f32[2, 8] = index_get %2 %1 {axes=[0]}\n").find("has_failed %6 %4"),
              std::string::npos);
}

// At the number that it gives for the next one: looking at a result would wait for it.
TEST_F(GuardUpdates, StandBehindTheLastExchangeWithOtherProcesses) {
    const std::string step =
        "%0: f32[4] = input 0\n%1: f32[4], %2: f32[] = all_reduce_sum %0 {group=\"0,1\"}\n"
        "%3: f32[4] = neg %1\n%4: f32[4], %5: f32[] = all_reduce_max %0 %2 {group=\"0,1\"}\n";
    EXPECT_EQ(guarded(card(), step + "return %3 %4\n", {0, -1}),
              step + "%6: bool[] = has_failed %5\n%7: f32[4] = where %6 %0 %3\nreturn %7 %4\n");
}

TEST_F(GuardUpdates, LookAtWhatFailedBeforeTheStep) {
    EXPECT_EQ(guarded(card(), "%0: f32[4] = input 0\n%1: f32[4] = square %0\nreturn %1\n", {0}),
              "%0: f32[4] = input 0\n%1: f32[4] = square %0\n%2: bool[] = has_failed %0\n"
              "%3: f32[4] = where %2 %0 %1\nreturn %3\n");
}

// Each of the two is made of the other: in place on the other's input it would be lost.
TEST_F(GuardUpdates, LieOnWhatTheyReplaceAndOnNothingElse) {
    const std::vector<int> replaces{0, 1, -1};
    for (const int level : {0, 3}) {
        const Step step =
            step_of(on(card(),
                       "%0: f32[64] = input 0\n%1: f32[64] = input 1\n%2: f32[64] = square %1\n"
                       "%3: f32[64] = exp %0\n%4: f32[64] = sin %3\nreturn %2 %3 %4\n"),
                    {true, true}, replaces);
        const PreparedGraph prepared = prepare_to_plan(
            run_pipeline(step.graph, {.opt_level = level, .device = &card(), .step = &step}),
            std::nullopt);
        const ProgramLayout layout = lay_out(prepared, plan_buffers(prepared, step, true));
        int donated = 0;
        for (size_t k = 0; k < replaces.size(); ++k) {
            const ProgramLayout::Result& result = layout.results[layout.outputs[k].index];
            if (!result.is_donated) continue;
            ++donated;
            EXPECT_EQ(static_cast<int>(result.slot), replaces[k]) << "level " << level;
        }
        EXPECT_GE(donated, 1) << "level " << level;
        EXPECT_TRUE(layout.overwritten.empty()) << "level " << level;
    }
}

}}  // namespace megjit::jit
