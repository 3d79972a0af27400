// What profiled runs took decides what is computed again.
#include "jit/plan/costs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "jit/plan/passes/passes.h"
#include "jit/run/program.h"
#include "memory/rematerialize.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

class MeasuredTimes : public World {
protected:
    static ProfiledTimes& times() { return ProfiledTimes::of(runtime::host_device()); }
    void SetUp() override { times().clear(); }
    void TearDown() override { times().clear(); }

    static void note(std::string_view op, const Type& type, std::initializer_list<double> runs) {
        ProfiledTimes::Row& row = times().row({runtime::find_op(op), {}, {&type, 1}}, {&type, 1});
        for (double seconds : runs) times().note(row, seconds);
    }
    static double seconds(std::string_view op, const Type& type) {
        return Costs::profiled(runtime::host_device())
            .op({runtime::find_op(op), {}, {&type, 1}}, {&type, 1})
            .seconds;
    }
    static double modelled(std::string_view op, const Type& type) {
        return Costs(runtime::host_device())
            .op({runtime::find_op(op), {}, {&type, 1}}, {&type, 1})
            .seconds;
    }

    static inline const Type kSmall{.shape = {8, 16, 4, 4}}, kLarge{.shape = {64, 16, 4, 4}};
};

TEST_F(MeasuredTimes, TheMedianCountsOnceThereAreThreeRuns) {
    note("exp", kSmall, {9.0, 2.0});
    EXPECT_EQ(seconds("exp", kSmall), modelled("exp", kSmall));
    note("exp", kSmall, {1.0});
    EXPECT_EQ(seconds("exp", kSmall), 2.0);
    Type channels_last = kSmall;
    channels_last.layout = runtime::Layout::channels_last;
    EXPECT_EQ(seconds("exp", channels_last), 2.0);
}

TEST_F(MeasuredTimes, OtherSizesAndOpsAreModelledInTheSameSeconds) {
    note("exp", kSmall, {2.0, 2.0, 2.0});
    note("sin", kSmall, {6.0, 6.0, 6.0});
    EXPECT_DOUBLE_EQ(seconds("exp", kLarge),
                     modelled("exp", kLarge) * 2.0 / modelled("exp", kSmall));
    EXPECT_DOUBLE_EQ(
        seconds("cos", kSmall),
        modelled("cos", kSmall) * 8.0 / (modelled("exp", kSmall) + modelled("sin", kSmall)));
}

// exp and sin wait for the end while concat needs memory; to a model they cost the same. Returns
// which of them runs twice.
std::string computed_again() {
    std::string again;
    PipelineOptions options{.measured_costs = true};
    options.choose_plan = [&](const memory::RematProblem& problem) {
        const auto plans = memory::rematerialize(problem);
        EXPECT_GE(plans.size(), 2u);
        for (uint32_t step : {0u, 1u})
            if (std::count(plans[1].order.begin(), plans[1].order.end(), step) > 1)
                again += step == 0 ? "exp" : "sin";
        return std::vector<uint32_t>{};
    };
    rematerialize(
        parse_graph(
            "%0: f32[64] = input 0\n%1: f32[64] = exp %0\n%2: f32[64] = sin %0\n%3: f32[64] = add %1 %2\n"
            "%4: f32[256] = concat %3 %3 %3 %3 {axis=0}\n%5: f32[64] = slice %4 {begin=[64], end=[128], step=[1]}\n"
            "%6: f32[64] = mul %1 %5\n%7: f32[64] = mul %2 %6\n%8: f32[256] = concat %7 %7 %7 %7 {axis=0}\nreturn %8\n"),
        options);
    return again;
}

TEST_F(MeasuredTimes, WhatIsSlowIsKept) {
    const Type type{.shape = {64}};
    note("exp", type, {1.0, 1.0, 1.0});
    note("sin", type, {0.01, 0.01, 0.01});
    EXPECT_EQ(computed_again(), "sin");
    times().clear();
    note("exp", type, {0.01, 0.01, 0.01});
    note("sin", type, {1.0, 1.0, 1.0});
    EXPECT_EQ(computed_again(), "exp");
}

TEST_F(MeasuredTimes, EachCostTellsWhereItComesFrom) {
    const runtime::OpCall call{runtime::find_op("exp"), {}, {&kSmall, 1}};
    const auto source = [&] {
        return name_of(Costs::profiled(runtime::host_device()).op(call, {&kSmall, 1}).source);
    };
    EXPECT_EQ(source(), "model");
    note("exp", kSmall, {2.0, 2.0, 2.0});
    EXPECT_EQ(source(), "profile");
    EXPECT_EQ(name_of(Costs(runtime::host_device()).op(call, {&kSmall, 1}).source), "model");
}

// The keys are those that tools/card/products.py writes.
TEST_F(MeasuredTimes, ACardsFileListsProductsConvolutionsAndAttention) {
    using runtime::DType;
    const runtime::Layout last = runtime::Layout::channels_last;
    const Type x{DType::bf16, {8, 64, 56, 56}, last}, y{DType::bf16, {8, 32, 28, 28}, last},
        w{DType::bf16, {32, 64, 3, 3}}, heads{DType::bf16, {2, 4, 16, 8}};
    const runtime::Attrs window{std::vector<int64_t>{2}, std::vector<int64_t>{1},
                                std::vector<int64_t>{1}, int64_t{1}};
    const auto with = [&](std::vector<int64_t> extents) {
        runtime::Attrs attrs = window;
        attrs.emplace_back(std::move(extents));
        return attrs;
    };
    const auto conv = [](double seconds, std::string_view direction) {
        return codegen::CardFigure{"convolution",
                                   {{"n", 8},
                                    {"c", 64},
                                    {"h", 56},
                                    {"w", 56},
                                    {"k", 32},
                                    {"r", 3},
                                    {"s", 3},
                                    {"stride", 2},
                                    {"padding", 1},
                                    {"groups", 1},
                                    {"seconds", seconds}},
                                   {{"dtype", "bfloat16"}, {"direction", direction}}};
    };
    const codegen::CardFigures card({
        conv(1, "forward"),
        conv(2, "input"),
        conv(3, "filter"),
        {"attention",
         {{"batch", 2},
          {"heads", 4},
          {"queries", 16},
          {"keys", 16},
          {"width", 8},
          {"causal", 1},
          {"seconds", 4}},
         {{"dtype", "bfloat16"}, {"direction", "forward"}}},
        {"product",
         {{"batch", 1},
          {"m", 6},
          {"n", 5},
          {"k", 7},
          {"transpose_a", 0},
          {"transpose_b", 1},
          {"seconds", 5}},
         {{"dtype", "float32"}}},
    });
    const auto seconds = [&](std::string_view op, runtime::Attrs attrs, std::vector<Type> inputs) {
        const runtime::OpCall call{runtime::find_op(op), attrs, inputs};
        const auto problem = listed_problem(call, runtime::infer(call));
        return problem ? card.listed_seconds(*problem).value_or(0) : -1;
    };
    EXPECT_EQ(seconds("conv", window, {x, w}), 1);
    EXPECT_EQ(seconds("conv_stats", window, {x, w}), 1);
    EXPECT_EQ(seconds("conv_backward_data", with({56, 56}), {y, w}), 2);
    EXPECT_EQ(seconds("conv_backward_filter", with({3, 3}), {x, y}), 3);
    runtime::Attrs masked = with({56, 56});
    masked.emplace_back(std::string("mask"));
    EXPECT_EQ(seconds("conv_backward_data_epilogue", masked, {y, w, x}), 2);
    const Type means{DType::f32, {1, 64, 1, 1}};
    EXPECT_EQ(seconds("conv_backward_data_sums", masked, {y, w, x, x, means}), 2);
    const Type others{DType::f16, x.shape, last}, of_others{DType::f16, w.shape};
    EXPECT_EQ(seconds("conv", window, {others, of_others}), 0);
    const auto attend = [&](int64_t causal) {
        return seconds("attention", {0.5, causal, int64_t{0}, 0.0, int64_t{0}, int64_t{0}},
                       {heads, heads, heads});
    };
    EXPECT_EQ(attend(1), 4);
    EXPECT_EQ(attend(0), 0);
    EXPECT_EQ(
        seconds("matmul", {int64_t{0}, int64_t{1}}, {Type{.shape = {6, 7}}, Type{.shape = {5, 7}}}),
        5);
    EXPECT_EQ(seconds("exp", {}, {x}), -1);
}

TEST_F(MeasuredTimes, AKernelIsWorthAProductWithAShortSumAlone) {
    const Costs costs(runtime::host_device());
    const auto estimate = [&](int64_t sum, std::string_view by) {
        return costs.product({.space = {64, 64, sum}}, {.shape = {64, 64}}, by);
    };
    EXPECT_LT(estimate(16, "tiles")->seconds, estimate(16, "library")->seconds);
    EXPECT_FALSE(estimate(4096, "tiles"));
    EXPECT_TRUE(estimate(4096, "library"));
}

TEST_F(MeasuredTimes, ProfiledProgramsNoteTheirSteps) {
    const Graph graph = parse_graph("%0: f32[4] = input 0\n%1: f32[4] = exp %0\nreturn %1\n");
    const Type type{.shape = {4}};
    for (const bool is_profiled : {false, true}) {
        Program program(graph, {graph}, {.profile = is_profiled});
        for (int i = 0; i < 3; ++i) {
            std::vector<TensorRef> inputs = {floats({4}, {0, 1, 2, 3})};
            program.run(inputs);
        }
        EXPECT_EQ(seconds("exp", type) != modelled("exp", type), is_profiled);
    }
}

TEST_F(MeasuredTimes, DevicesHaveTablesOfTheirOwnAndQueuesOfOneShare) {
    runtime::discover_devices();
    if (runtime::all_devices().size() < 3) GTEST_SKIP() << "there are no two GPUs";
    const Type type{.shape = {4}};
    const runtime::OpCall call{runtime::find_op("exp"), {}, {&type, 1}};
    const runtime::Device &gpu = runtime::find_device("gpu0:0"),
                          &other = runtime::find_device("gpu1:0");
    ProfiledTimes& first = ProfiledTimes::of(gpu);
    EXPECT_EQ(&first, &ProfiledTimes::of(runtime::find_device("gpu0:1")));
    for (int run = 0; run < 3; ++run) first.note(first.row(call, {&type, 1}), 5.0);
    EXPECT_EQ(Costs::profiled(gpu).op(call, {&type, 1}).seconds, 5.0);
    EXPECT_LT(Costs::profiled(other).op(call, {&type, 1}).seconds, 5.0);
    EXPECT_LT(seconds("exp", type), 5.0);
    first.clear();
}

}}  // namespace megjit::jit
