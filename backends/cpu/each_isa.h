// backends/cpu/each_isa.h -- compiles the kernels in MEGJIT_KERNELS once per level of levels.h, in
// a namespace of its name inside an unnamed one. Include after everything else: no header may be
// compiled under these options, or the linker could pick its inline functions for an older CPU.
// (Function clones will not do: they are chosen before MEGJIT_ISA is read, and vectors wider than
// the baseline's are split before the clones are made, which costs a factor of 20 in comparisons.)

#include "backends/cpu/levels.h"

// Vectors never cross a real call: all helpers are inlined.
#pragma GCC diagnostic ignored "-Wpsabi"
#define MEGJIT_INLINE inline __attribute__((always_inline))
#define MEGJIT_LANES(V, i) [&]<class V>(const V&, int64_t i) __attribute__((always_inline))
#define MEGJIT_TERMS(V, i, out) \
    [&]<class V>(const V&, int64_t i, V* out) __attribute__((always_inline))

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define MEGJIT_LANE_COUNT 16
namespace megjit::cpu { namespace { namespace avx512 {
#ifndef MEGJIT_HAS_SIMD
#include "backends/cpu/simd.inl"
#endif
#include MEGJIT_KERNELS
}}}  // namespace megjit::cpu::avx512
#undef MEGJIT_LANE_COUNT
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define MEGJIT_LANE_COUNT 8
namespace megjit::cpu { namespace { namespace avx2 {
#ifndef MEGJIT_HAS_SIMD
#include "backends/cpu/simd.inl"
#endif
#include MEGJIT_KERNELS
}}}  // namespace megjit::cpu::avx2
#undef MEGJIT_LANE_COUNT
#pragma GCC pop_options
#elif defined(__aarch64__)
#define MEGJIT_LANE_COUNT 4
namespace megjit::cpu { namespace { namespace neon {
#ifndef MEGJIT_HAS_SIMD
#include "backends/cpu/simd.inl"
#endif
#include MEGJIT_KERNELS
}}}  // namespace megjit::cpu::neon
#undef MEGJIT_LANE_COUNT
#endif
#undef MEGJIT_KERNELS
#define MEGJIT_HAS_SIMD  // files that are compiled together share it
