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
    for (const Isa machine : {Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::amx})
        EXPECT_EQ(bounded_isa("", machine), machine);
}

TEST(Isa, ABoundIsTaken) {
    EXPECT_EQ(bounded_isa("avx2", Isa::amx), Isa::avx2);
    EXPECT_EQ(bounded_isa("avx512", Isa::avx512_vnni), Isa::avx512);
    EXPECT_EQ(bounded_isa("avx512_vnni", Isa::avx512_vnni), Isa::avx512_vnni);
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

TEST(Isa, IsNotAboveTheMachines) { EXPECT_LE(isa(), machine_isa()); }

}}  // namespace megjit::runtime
