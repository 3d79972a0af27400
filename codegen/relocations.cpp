#include "codegen/relocations.h"

#include <cstring>

#include <elf.h>

namespace megjit::codegen {
namespace {

template <class T>
void store(std::byte* place, T value) {
    std::memcpy(place, &value, sizeof value);
}
int64_t distance_to(const std::byte* place, uint64_t target) {
    return static_cast<int64_t>(target - reinterpret_cast<uint64_t>(place));
}

// --- x86-64 -----------------------------------------------------------------------------------

std::optional<RelocationRule> x86_rule(uint32_t type) {
    switch (type) {
        case R_X86_64_64:
        case R_X86_64_PC64: return {{Reach::symbol, 8}};
        case R_X86_64_PC32:
        case R_X86_64_PLT32: return {{Reach::call, 4}};
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX: return {{Reach::address, 4}};
        default: return {};
    }
}

bool x86_write(uint32_t type, std::byte* place, uint64_t target) {
    const int64_t far = distance_to(place, target);
    if (type == R_X86_64_64) return store(place, target), true;
    if (type == R_X86_64_PC64) return store(place, far), true;
    store(place, static_cast<int32_t>(far));
    return far == static_cast<int32_t>(far);
}

void x86_write_jump(std::byte* place, const void* to) {
    constexpr unsigned char kJump[] = {0xff, 0x25, 0, 0, 0, 0};  // jmp [rip + 0]
    std::memcpy(place, kJump, sizeof kJump);
    std::memcpy(place + sizeof kJump, &to, sizeof to);
}

// --- AArch64 ----------------------------------------------------------------------------------

std::optional<RelocationRule> arm_rule(uint32_t type) {
    switch (type) {
        case R_AARCH64_ABS64:
        case R_AARCH64_PREL64: return {{Reach::symbol, 8}};
        case R_AARCH64_PREL32:
        case R_AARCH64_ADR_PREL_PG_HI21:
        case R_AARCH64_ADD_ABS_LO12_NC:
        case R_AARCH64_LDST8_ABS_LO12_NC:
        case R_AARCH64_LDST16_ABS_LO12_NC:
        case R_AARCH64_LDST32_ABS_LO12_NC:
        case R_AARCH64_LDST64_ABS_LO12_NC:
        case R_AARCH64_LDST128_ABS_LO12_NC: return {{Reach::symbol, 4}};
        case R_AARCH64_CALL26:
        case R_AARCH64_JUMP26: return {{Reach::call, 4}};
        case R_AARCH64_ADR_GOT_PAGE:
        case R_AARCH64_LD64_GOT_LO12_NC: return {{Reach::address, 4}};
        default: return {};
    }
}

// Puts the lowest `bits` of a value into an instruction.
void set_field(std::byte* place, int shift, int bits, int64_t value) {
    uint32_t code;
    std::memcpy(&code, place, sizeof code);
    const uint32_t mask = ((1u << bits) - 1) << shift;
    store(place, (code & ~mask) | (static_cast<uint32_t>(value) << shift & mask));
}
bool fits(int64_t value, int bits) { return value >> (bits - 1) == value >> 63; }

// The place within its page of 4 KiB, in units of 1 << scale bytes, which it must be a multiple of.
bool set_place_in_page(std::byte* place, uint64_t target, int scale) {
    set_field(place, 10, 12, static_cast<int64_t>((target & 0xfff) >> scale));
    return target % (uint64_t{1} << scale) == 0;
}

bool set_page(std::byte* place, uint64_t target) {
    const int64_t pages = static_cast<int64_t>(target >> 12) -
                          static_cast<int64_t>(reinterpret_cast<uint64_t>(place) >> 12);
    set_field(place, 29, 2, pages);
    set_field(place, 5, 19, pages >> 2);
    return fits(pages, 21);
}

bool arm_write(uint32_t type, std::byte* place, uint64_t target) {
    const int64_t far = distance_to(place, target);
    switch (type) {
        case R_AARCH64_ABS64: return store(place, target), true;
        case R_AARCH64_PREL64: return store(place, far), true;
        case R_AARCH64_PREL32: return store(place, static_cast<int32_t>(far)), fits(far, 32);
        case R_AARCH64_ADR_GOT_PAGE:
        case R_AARCH64_ADR_PREL_PG_HI21: return set_page(place, target);
        case R_AARCH64_ADD_ABS_LO12_NC:
        case R_AARCH64_LDST8_ABS_LO12_NC: return set_place_in_page(place, target, 0);
        case R_AARCH64_LDST16_ABS_LO12_NC: return set_place_in_page(place, target, 1);
        case R_AARCH64_LDST32_ABS_LO12_NC: return set_place_in_page(place, target, 2);
        case R_AARCH64_LD64_GOT_LO12_NC:
        case R_AARCH64_LDST64_ABS_LO12_NC: return set_place_in_page(place, target, 3);
        case R_AARCH64_LDST128_ABS_LO12_NC: return set_place_in_page(place, target, 4);
        default:  // CALL26, JUMP26
            set_field(place, 0, 26, far >> 2);
            return far % 4 == 0 && fits(far, 28);
    }
}

void arm_write_jump(std::byte* place, const void* to) {
    constexpr uint32_t kJump[] = {0x58000050, 0xd61f0200};  // ldr x16, [pc + 8]; br x16
    std::memcpy(place, kJump, sizeof kJump);
    std::memcpy(place + sizeof kJump, &to, sizeof to);
}

}  // namespace

const ObjectMachine kX86Machine = {"x86-64", EM_X86_64, x86_rule, x86_write, x86_write_jump};
const ObjectMachine kArmMachine = {"AArch64", EM_AARCH64, arm_rule, arm_write, arm_write_jump};

const ObjectMachine& host_machine() {
#if defined(__x86_64__)
    return kX86Machine;
#else
    return kArmMachine;
#endif
}

}  // namespace megjit::codegen
