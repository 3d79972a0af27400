// runtime/host/isa.h -- the instruction sets that code is made for: levels, each of which has all
// of those before it. MEGJIT_ISA bounds the level; whatever computes asks isa(), and nothing else
// looks at the CPU: kernels of ours, oneDNN and kernel compilers. Bits that are promised are the
// same at every level.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megjit::runtime {

enum class Isa : uint8_t {
    avx2,  // x86-64-v3: AVX2, FMA, F16C
    avx512,  // x86-64-v4: AVX-512 F, CD, BW, DQ, VL
    avx512_vnni,  // and sums of products of 8-bit integers
    amx,  // and tiles
};
std::string_view name_of(Isa isa);

// The highest level of this CPU. UserError below AVX2.
Isa machine_isa();
// That, or the lower one that MEGJIT_ISA names; the same until the process ends. UserError for a
// value that is no level, or above the machine's.
Isa isa();
inline bool has_avx512() { return isa() >= Isa::avx512; }

// For isa(): the level that `wanted` (empty: no bound) gives on such a machine.
Isa bounded_isa(std::string_view wanted, Isa machine);

}  // namespace megjit::runtime
