#include <gtest/gtest.h>

#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

std::string fault(std::string_view text) { return fault_of(parse_kernel(text)); }

TEST(FaultOf, FindsNothingInRandomKernels) {
    for (uint64_t seed = 0; seed < 300; ++seed)
        EXPECT_EQ(fault_of(random_case(seed).kernel), "") << "seed " << seed;
}

TEST(FaultOf, WantsOperandsBeforeUsers) {
    EXPECT_EQ(fault("kernel rank=1\n%0: f32 = neg %1\n%1: f32 = constant 1\nout f32 %0\n"),
              "%0 (neg): operand %1 is not defined before it");
}

TEST(FaultOf, WantsOperandsOfOneType) {
    EXPECT_EQ(
        fault(
            "kernel rank=1\n%0: f32 = constant 1\n%1: i32 = constant 1\n%2: f32 = add %0 %1\nout f32 %2\n"),
        "%2 (add): takes two numbers of one type and gives the same");
}

TEST(FaultOf, WantsEveryInput) {
    EXPECT_EQ(fault("kernel rank=1\nin f32 contiguous\n%0: f32 = input 1\nout f32 %0\n"),
              "%0 (input): there are only 1 inputs and 0 reductions");
}

TEST(FaultOf, WantsTheInputsType) {
    EXPECT_EQ(fault("kernel rank=1\nin i8 contiguous\n%0: f32 = input 0\nout f32 %0\n"),
              "%0 (input): input 0 is i8");
}

TEST(FaultOf, WantsResultsThatCanBeStored) {
    EXPECT_EQ(fault("kernel rank=1\n%0: f32 = constant 1\nout i32 %0\n"),
              "output 0: %0 cannot be stored as i32");
    EXPECT_EQ(fault("kernel rank=1\n%0: f32 = constant 1\nout f32 %7\n"),
              "output 0: %7 is not defined");
}

TEST(FaultOf, WantsARankThatExists) {
    EXPECT_EQ(fault("kernel rank=9\n%0: f32 = constant 1\nout f32 %0\n"), "rank 9 is not in 1..8");
}

}}  // namespace megjit::codegen
