#include "runtime/host/isa.h"

#include <gtest/gtest.h>

#include "runtime/host/error.h"

namespace megjit::runtime { namespace {

std::string refusal(std::string_view wanted, Isa machine) {
    try {
        bounded_isa(wanted, machine);
    } catch (const UserError& error) { return error.what(); }
    return "";
}

TEST(Isa, NoBoundIsTheMachinesLevel) {
    for (const Isa machine : {Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::amx, Isa::neon,
                              Isa::dotprod, Isa::i8mm, Isa::bf16, Isa::sve2})
        EXPECT_EQ(bounded_isa("", machine), machine);
}

TEST(Isa, ABoundIsTaken) {
    EXPECT_EQ(bounded_isa("avx2", Isa::amx), Isa::avx2);
    EXPECT_EQ(bounded_isa("avx512", Isa::avx512_vnni), Isa::avx512);
    EXPECT_EQ(bounded_isa("avx512_vnni", Isa::avx512_vnni), Isa::avx512_vnni);
    EXPECT_EQ(bounded_isa("neon", Isa::sve2), Isa::neon);
    EXPECT_EQ(bounded_isa("dotprod", Isa::bf16), Isa::dotprod);
}

TEST(Isa, NonsenseIsRefusedWithTheLevelsThatThereAre) {
    const std::string text = refusal("sse9", Isa::avx512);
    EXPECT_NE(text.find("there is no level sse9"), std::string::npos) << text;
    EXPECT_NE(text.find("avx2, avx512"), std::string::npos) << text;
    EXPECT_EQ(text.find("amx"), std::string::npos) << text;
}

TEST(Isa, ALevelAboveTheMachinesIsRefused) {
    const std::string text = refusal("amx", Isa::avx2);
    EXPECT_NE(text.find("this machine has no amx"), std::string::npos) << text;
    EXPECT_NE(text.find("it has: avx2"), std::string::npos) << text;
}

TEST(Isa, ALevelOfTheOtherArchitectureIsRefused) {
    const std::string on_arm = refusal("avx2", Isa::i8mm), on_x86 = refusal("neon", Isa::amx);
    EXPECT_NE(on_arm.find("this machine has no avx2"), std::string::npos) << on_arm;
    EXPECT_NE(on_arm.find("it has: neon, dotprod, i8mm"), std::string::npos) << on_arm;
    EXPECT_NE(on_x86.find("it has: avx2, avx512, avx512_vnni, amx"), std::string::npos) << on_x86;
}

// The numbers are bits of Linux's asm/hwcap.h: atomics 8, halves 10, dot products 20; of the second
// word SVE2 1, I8MM 13, BF16 14.
TEST(Isa, AnArmCpuHasTheLevelThatItsBitsSay) {
    constexpr uint64_t kV84 = 1 << 8 | 1 << 10 | 1 << 20, kMatrices = 1 << 13, kBfloats = 1 << 14,
                       kSve2 = 1 << 1;
    EXPECT_EQ(arm_level({0, 0}), Isa::neon);
    EXPECT_EQ(arm_level({1 << 20, kMatrices}), Isa::neon);
    EXPECT_EQ(arm_level({kV84, 0}), Isa::dotprod);
    EXPECT_EQ(arm_level({kV84, kBfloats}), Isa::dotprod);
    EXPECT_EQ(arm_level({kV84, kMatrices}), Isa::i8mm);
    EXPECT_EQ(arm_level({kV84, kMatrices | kBfloats}), Isa::bf16);
    EXPECT_EQ(arm_level({kV84, kMatrices | kSve2}), Isa::i8mm);
    EXPECT_EQ(arm_level({kV84, kMatrices | kBfloats | kSve2}), Isa::sve2);
}

TEST(Isa, IsNotAboveTheMachines) { EXPECT_LE(isa(), machine_isa()); }

}}  // namespace megjit::runtime
