#include <gtest/gtest.h>

#include "runtime/host/error.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

constexpr std::string_view kScale =
    "kernel rank=1\n"
    "in f32 contiguous\n"
    "in f32 broadcast\n"
    "%0: f32 = input 0\n"
    "%1: f32 = input 1\n"
    "%2: f32 = mul %0 %1\n"
    "out f32 %2\n";

std::string message_of(std::string_view text) {
    try {
        parse_kernel(text);
    } catch (const UserError& error) { return error.what(); }
    return "no error";
}

TEST(KernelText, PrintUndoesParse) { EXPECT_EQ(print(parse_kernel(kScale)), kScale); }

TEST(KernelText, ParseUndoesPrintOnRandomKernels) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const KernelIR kernel = random_case(seed).kernel;
        EXPECT_EQ(parse_kernel(print(kernel)), kernel) << "seed " << seed << "\n" << print(kernel);
    }
}

TEST(KernelText, KeepsEveryBitOfAConstant) {
    for (const float value :
         {-0.f, 1e-45f, 0.1f, 3.4028235e38f, std::numeric_limits<float>::infinity(),
          std::bit_cast<float>(0xFFC00001u)}) {
        KernelIR kernel;
        kernel.results = {kernel.program.constant(ScalarType::f32, std::bit_cast<uint32_t>(value))};
        kernel.outputs = {{DType::f32}};
        EXPECT_EQ(parse_kernel(print(kernel)), kernel) << value;
    }
}

TEST(KernelText, FaultNamesTheLine) {
    EXPECT_EQ(
        message_of("kernel rank=1\n%0: f32 = blub 0\n"),
        "kernel text, line 2: 'blub' is not an instruction\n  why: the line is '%0: f32 = blub 0'");
}

TEST(KernelText, RefusesValuesOutOfOrder) {
    EXPECT_NE(message_of("kernel rank=1\n%1: f32 = input 0\n").find("expected %0:"),
              std::string::npos);
}

TEST(KernelText, RefusesTextWithoutHead) {
    EXPECT_NE(message_of("out f32 %0\n").find("'kernel rank=N' is missing"), std::string::npos);
}

// Any prefix and any byte changed is read or refused, never worse.
TEST(KernelText, SurvivesBrokenText) {
    for (size_t at = 0; at < kScale.size(); ++at)
        for (const char c : {'\0', '9', '%', '\n', '\xff'}) {
            std::string text(kScale);
            text[at] = c;
            message_of(text);
            message_of(kScale.substr(0, at));
        }
}

// Random kernels with reductions are sound, are read back as they were printed, and can be run.
TEST(KernelText, ReadsBackKernelsWithReductions) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        Case c = random_reduction_case(seed, 12);
        ASSERT_EQ(fault_of(c.kernel), "") << "seed " << seed << "\n" << print(c.kernel);
        ASSERT_EQ(parse_kernel(print(c.kernel)), c.kernel) << "seed " << seed;
        const auto outputs = c.expected();
        for (size_t k = 0; k < outputs.size(); ++k)
            ASSERT_EQ(fault_of(c, k, outputs[k], outputs[k]), "") << "seed " << seed;
    }
}

}}  // namespace megjit::codegen
