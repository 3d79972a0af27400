// backends/cpu/dnn_each_isa.h -- compiles the kernels in MEGJIT_KERNELS once per instruction set, in namespaces
// v4 (AVX-512), v3 (AVX2) and base of an unnamed namespace; MEGJIT_BEST(name) is the one for this CPU.
// Include after everything else: no header may be compiled under these options, or the linker could pick
// its inline functions for an older CPU. (Function clones will not do: vectors wider than the baseline's
// are split before the clones are made, which costs a factor of 20 in comparisons.)

// Vectors never cross a real call: all helpers are inlined.
#pragma GCC diagnostic ignored "-Wpsabi"
#define MEGJIT_INLINE inline __attribute__((always_inline))
#define MEGJIT_LANES(V, i) [&]<class V>(const V&, int64_t i) __attribute__((always_inline))

#if defined(__x86_64__)
#define MEGJIT_BEST(name) (megjit::cpu::isa_level() == 4 ? v4::name : megjit::cpu::isa_level() == 3 ? v3::name : base::name)

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define MEGJIT_LANE_COUNT 16
namespace megjit::cpu { namespace { namespace v4 {
#include "backends/cpu/dnn_simd.inl"
#include MEGJIT_KERNELS
} } }
#undef MEGJIT_LANE_COUNT
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define MEGJIT_LANE_COUNT 8
namespace megjit::cpu { namespace { namespace v3 {
#include "backends/cpu/dnn_simd.inl"
#include MEGJIT_KERNELS
} } }
#undef MEGJIT_LANE_COUNT
#pragma GCC pop_options
#else
#define MEGJIT_BEST(name) base::name
#endif

#define MEGJIT_LANE_COUNT 4
namespace megjit::cpu { namespace { namespace base {
#include "backends/cpu/dnn_simd.inl"
#include MEGJIT_KERNELS
} } }
#undef MEGJIT_LANE_COUNT
