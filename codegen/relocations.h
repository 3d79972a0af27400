// codegen/relocations.h -- what the loader of object code knows of an architecture: how code is
// told addresses. Numbers and formulas are those of the architectures' ELF supplements. Nothing
// here runs code, so each architecture's rules can be tested on any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace megjit::codegen {

// What a relocation asks for.
enum class Reach : uint8_t {
    symbol,  // the symbol's address
    call,  // the same, or a jump that leads there
    address,  // the place of 8 bytes that hold the symbol's address
};
struct RelocationRule {
    Reach reach = Reach::symbol;
    uint64_t bytes = 4;  // how many it writes
};

struct ObjectMachine {
    std::string_view name;
    uint16_t elf = 0;  // e_machine
    // Nothing for a type that no kernel needs.
    std::optional<RelocationRule> (*rule)(uint32_t type) = nullptr;
    // Writes what leads from `place`, which runs at the same address, to `target`; false where that
    // is too far.
    bool (*write)(uint32_t type, std::byte* place, uint64_t target) = nullptr;
    // Writes 16 bytes of code that jump to an address.
    void (*write_jump)(std::byte* place, const void* to) = nullptr;
};
extern const ObjectMachine kX86Machine, kArmMachine;
const ObjectMachine& host_machine();

}  // namespace megjit::codegen
