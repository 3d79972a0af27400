#include "codegen/row_plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "codegen/expand_math.h"
#include "codegen/legalize.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

constexpr std::string_view kSoftmax =
    "kernel rank=2 reduced=1 lanes=last\n"
    "in f32 contiguous\n"
    "%0: f32 = input 0\n%1: f32 = input 1\n%2: f32 = sub %0 %1\n%3: f32 = input 2\n%4: f32 = div %2 %3\n"
    "reduce max %0\nreduce sum %2\n"
    "out f32 %4\nout f32 broadcast row %3\n";

TEST(RowPlan, SaysWhatEachWalkComputes) {
    EXPECT_EQ(print(row_plan_of(parse_kernel(kSoftmax))),
              "lanes 16\n"
              "walk\n  elements %0\n  reduction 0 of %0: value of max in chains of 8, f32\n"
              "  row %1\n"
              "walk\n  elements %0 %2\n  reduction 1 of %2: value of add in chains of 8, f64\n"
              "  row %3\n"
              "walk\n  elements %0 %2 %4\n  store 0\n"
              "  store 1\n");
}

TEST(RowPlan, OfRandomKernelsIsSound) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const KernelIR kernel = legalize(random_reduction_case(seed).kernel);
        ASSERT_EQ(fault_of(kernel, row_plan_of(kernel)), "") << "seed " << seed << print(kernel);
    }
}

// Every part of a plan is needed: the verifier misses what is taken out, or is done twice.
TEST(RowPlan, TheVerifierMissesEveryPart) {
    const KernelIR kernel = parse_kernel(kSoftmax);
    const RowPlan plan = row_plan_of(kernel);
    const auto fault_without = [&](const auto& change) {
        RowPlan changed = plan;
        change(changed);
        return fault_of(kernel, changed);
    };
    EXPECT_EQ(fault_of(kernel, plan), "");
    EXPECT_EQ(fault_without([](RowPlan& p) { p.walks[0].reductions.clear(); }),
              "walk 1: %1 needs reduction 0");
    EXPECT_EQ(fault_without([](RowPlan& p) { p.walks[1].elements = {2}; }),
              "walk 1: %2 needs %0 before it");
    EXPECT_EQ(fault_without([](RowPlan& p) { p.walks[2].outputs.clear(); }),
              "output 0 is never stored");
    EXPECT_EQ(fault_without([](RowPlan& p) { p.outputs.push_back(1); }),
              "output 1 is stored elsewhere");
    EXPECT_EQ(fault_without([](RowPlan& p) { std::swap(p.walks[0], p.walks[1]); }),
              "walk 0: %1 needs reduction 0");
    EXPECT_EQ(fault_without([](RowPlan& p) { p.lanes = 8; }), "other lanes");
    EXPECT_EQ(
        fault_without([](RowPlan& p) { p.walks[1].reductions[0].accumulators[0].wide = false; }),
        "walk 1: reduction 1 is no sum");
}

// One row, reduced by `kind` as the plan says.
float reduced(std::string_view kind, std::vector<float> row, int64_t columns = 1) {
    const bool is_row = columns == 1;
    const KernelIR kernel =
        parse_kernel(cat("kernel rank=2 reduced=1 lanes=", is_row ? "last" : "kept",
                         "\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = input 1\nreduce ", kind,
                         " %0\nout f32", is_row ? " broadcast" : "", " row %1\n"));
    EXPECT_EQ(fault_of(kernel), "");
    const auto length = static_cast<int64_t>(row.size()) / columns;
    const LaunchShape launch = {.extents = {columns, length},
                                .strides = is_row ? std::vector<int64_t>{length, 1, 1, 0}
                                                  : std::vector<int64_t>{1, columns, 1, 0}};
    std::vector<float> result(static_cast<size_t>(columns));
    void *inputs[] = {row.data()}, *outputs[] = {result.data()};
    interpret(kernel, launch, inputs, outputs);
    return result[0];
}

// The order of row_plan.h, written down once more by hand: 16 lanes, chains of eight, f64.
TEST(RowPlan, AddsInTheOrderThatItPromises) {
    Random random(3);
    for (const size_t length : {1u, 15u, 16u, 17u, 127u, 128u, 129u, 300u, 1000u}) {
        std::vector<float> row(length);
        for (float& x : row) x = static_cast<float>(random.range(-9'999'999, 9'999'999));
        double lanes[16] = {};
        for (size_t group = 0; group < length; group += 128) {
            float chains[16] = {};
            for (size_t e = group; e < std::min(length, group + 128); ++e) chains[e % 16] += row[e];
            for (int lane = 0; lane < 16; ++lane) lanes[lane] += static_cast<double>(chains[lane]);
        }
        for (int half = 8; half > 0; half /= 2)
            for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
        EXPECT_EQ(reduced("sum", row), static_cast<float>(lanes[0])) << length;
        EXPECT_EQ(reduced("mean", row), static_cast<float>(lanes[0] / static_cast<double>(length)))
            << length;
    }
}

TEST(RowPlan, AddsColumnsInChainsOfEightRows) {
    Random random(4);
    std::vector<float> table(2 * 21);
    for (float& x : table) x = static_cast<float>(random.range(-9'999'999, 9'999'999));
    double sum = 0;
    for (size_t group = 0; group < 21; group += 8) {
        float chain = 0;
        for (size_t row = group; row < std::min<size_t>(21, group + 8); ++row)
            chain += table[2 * row];
        sum += static_cast<double>(chain);
    }
    EXPECT_EQ(reduced("sum", table, 2), static_cast<float>(sum));
}

TEST(RowPlan, AVarianceFarFromZeroKeepsItsDigits) {
    std::vector<float> row(1000);
    for (size_t i = 0; i < row.size(); ++i) row[i] = 100000.f + static_cast<float>(i % 2);
    EXPECT_FLOAT_EQ(reduced("variance", row), 0.25f);
    EXPECT_EQ(reduced("variance", std::vector<float>(1000, 12345.678f)), 0);
}

TEST(RowPlan, AProductMayLeaveTheRangeOfFloatsOnItsWay) {
    EXPECT_NEAR(reduced("prod", {1e30f, 1e30f, 1e-30f, 1e-30f, 2}), 2, 1e-5);
}

TEST(RowPlan, OfNothingIsNeutral) {
    EXPECT_EQ(reduced("sum", {}), 0);
    EXPECT_EQ(reduced("prod", {}), 1);
    EXPECT_EQ(reduced("max", {}), -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(reduced("mean", {})));
}

}}  // namespace megjit::codegen
