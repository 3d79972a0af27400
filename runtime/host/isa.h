// runtime/host/isa.h -- the instruction sets that code is made for. They are levels: each includes
// all lower ones of its architecture. MEGJIT_ISA bounds the level. All code that computes asks
// isa() and never looks at the CPU itself: our kernels, oneDNN and kernel compilers. Results that
// promise their bits are the same at every level of either architecture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megjit::runtime {

enum class Isa : uint8_t {
    // x86-64
    avx2,  // x86-64-v3: AVX2, FMA, F16C
    avx512,  // x86-64-v4: AVX-512 F, CD, BW, DQ, VL
    avx512_vnni,  // AVX-512 and sums of products of 8-bit integers
    amx,  // all of these and tiles
    // AArch64
    neon,  // Armv8.0-A: what every such CPU has
    dotprod,  // sums of products of 8-bit integers; atomic instructions, halves
    i8mm,  // products of small matrices of 8-bit integers
    bf16,  // the same of bfloat16
    sve2,  // all of these and vectors of a length that the CPU chooses
};
constexpr Isa kHighest = Isa::sve2;  // above any machine's
constexpr bool is_arm(Isa isa) { return isa >= Isa::neon; }
std::string_view name_of(Isa isa);

// The highest level of this CPU. UserError on x86-64 below AVX2, and on other architectures.
Isa machine_isa();
// getauxval's AT_HWCAP and AT_HWCAP2 of an Arm CPU: the bits that a level needs, and the highest
// level that a CPU with these bits has.
struct ArmBits {
    uint64_t hwcap = 0, hwcap2 = 0;
};
ArmBits arm_bits(Isa level);
Isa arm_level(const ArmBits& has);
// The machine's level, or the lower one that MEGJIT_ISA names; the same until the process ends.
// UserError for a value that is no level, or above the machine's.
Isa isa();
constexpr bool has_avx512(Isa isa) { return isa >= Isa::avx512 && !is_arm(isa); }
inline bool has_avx512() { return has_avx512(isa()); }
inline bool has_vnni() { return isa() >= Isa::avx512_vnni && !is_arm(isa()); }

// The level of that name, of either architecture; nothing where there is none.
std::optional<Isa> isa_named(std::string_view name);
// The rule behind isa(): the level that `wanted` (empty: no bound) gives on such a machine.
Isa bounded_isa(std::string_view wanted, Isa machine);

}  // namespace megjit::runtime
