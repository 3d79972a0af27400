// runtime/host/isa.h -- the instruction sets that code is made for. They are levels: each includes
// all lower ones. MEGJIT_ISA bounds the level. All code that computes asks isa() and never looks at
// the CPU itself: our kernels, oneDNN and kernel compilers. Results that promise their bits are the
// same at every level.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megjit::runtime {

enum class Isa : uint8_t {
    avx2,  // x86-64-v3: AVX2, FMA, F16C
    avx512,  // x86-64-v4: AVX-512 F, CD, BW, DQ, VL
    avx512_vnni,  // AVX-512 and sums of products of 8-bit integers
    amx,  // all of these and tiles
};
std::string_view name_of(Isa isa);

// The highest level of this CPU. UserError below AVX2.
Isa machine_isa();
// The machine's level, or the lower one that MEGJIT_ISA names; the same until the process ends.
// UserError for a value that is no level, or above the machine's.
Isa isa();
inline bool has_avx512() { return isa() >= Isa::avx512; }

// The rule behind isa(): the level that `wanted` (empty: no bound) gives on such a machine.
Isa bounded_isa(std::string_view wanted, Isa machine);

}  // namespace megjit::runtime
