// The rules of both architectures, on either: what they write is compared with what an assembler
// writes.
#include "codegen/relocations.h"

#include <cstring>

#include <elf.h>
#include <gtest/gtest.h>

namespace megjit::codegen { namespace {

// One page, so that distances within a page and between pages are known.
alignas(4096) std::byte page[4096];
const auto kPage = reinterpret_cast<uint64_t>(page);

// The instruction `code` at page[0x10] after the relocation; 0 where it is refused.
uint32_t arm(uint32_t type, uint32_t code, uint64_t target) {
    std::memcpy(page + 0x10, &code, sizeof code);
    const bool is_done = kArmMachine.write(type, page + 0x10, target);
    std::memcpy(&code, page + 0x10, sizeof code);
    return is_done ? code : 0;
}

TEST(Relocations, ArmCallsWithin128MiB) {
    constexpr uint32_t kBl = 0x94000000;
    EXPECT_EQ(arm(R_AARCH64_CALL26, kBl, kPage + 0x18), 0x94000002u);
    EXPECT_EQ(arm(R_AARCH64_JUMP26, 0x14000000, kPage), 0x17fffffcu);
    EXPECT_EQ(arm(R_AARCH64_CALL26, kBl, kPage + 0x10 + (128 << 20) - 4), 0x95ffffffu);
    EXPECT_EQ(arm(R_AARCH64_CALL26, kBl, kPage + 0x10 + (128 << 20)), 0u);
    EXPECT_EQ(arm(R_AARCH64_CALL26, kBl, kPage + 0x12), 0u);
}

TEST(Relocations, ArmAddressesArePagesAndPlacesInThem) {
    constexpr uint32_t kAdrp = 0x90000000;  // adrp x0
    EXPECT_EQ(arm(R_AARCH64_ADR_PREL_PG_HI21, kAdrp, kPage + 0xff8), 0x90000000u);
    EXPECT_EQ(arm(R_AARCH64_ADR_PREL_PG_HI21, kAdrp, kPage + 0x1000), 0xb0000000u);
    EXPECT_EQ(arm(R_AARCH64_ADR_GOT_PAGE, kAdrp, kPage + 0x6000), 0xd0000020u);
    EXPECT_EQ(arm(R_AARCH64_ADR_PREL_PG_HI21, kAdrp, kPage - 0x1000), 0xf0ffffe0u);
    EXPECT_EQ(arm(R_AARCH64_ADR_PREL_PG_HI21, kAdrp, kPage + (uint64_t{1} << 32)), 0u);
    EXPECT_EQ(arm(R_AARCH64_ADD_ABS_LO12_NC, 0x91000000, kPage + 0x123), 0x91048c00u);
    EXPECT_EQ(arm(R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00000, kPage + 0x120), 0x3dc04800u);
    EXPECT_EQ(arm(R_AARCH64_LD64_GOT_LO12_NC, 0xf9400000, kPage + 0x128), 0xf9409400u);
    EXPECT_EQ(arm(R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00000, kPage + 0x128), 0u);  // not aligned
}

TEST(Relocations, X86CallsWithin2GiB) {
    int32_t distance = 0;
    ASSERT_TRUE(kX86Machine.write(R_X86_64_PLT32, page + 0x10, kPage + 0x100 - 4));
    std::memcpy(&distance, page + 0x10, sizeof distance);
    EXPECT_EQ(distance, 0xec);
    EXPECT_FALSE(kX86Machine.write(R_X86_64_PC32, page + 0x10, kPage + (uint64_t{1} << 32)));
}

TEST(Relocations, UnknownTypesHaveNoRule) {
    EXPECT_FALSE(kArmMachine.rule(R_AARCH64_TLSDESC_CALL));
    EXPECT_FALSE(kX86Machine.rule(R_X86_64_TLSGD));
    EXPECT_TRUE(
        host_machine().rule(host_machine().elf == EM_X86_64 ? R_X86_64_64 : R_AARCH64_ABS64));
}

}}  // namespace megjit::codegen
