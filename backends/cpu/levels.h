// backends/cpu/levels.h -- the instruction sets that our loops are compiled for: fewer than
// runtime::Isa has levels, for one serves all levels with vectors of its width.
#pragma once

#include "runtime/host/isa.h"

// MEGJIT_AT_EACH_LEVEL declares something in the namespace of each level; MEGJIT_BEST(name) is the
// one for runtime::isa().
#if defined(__x86_64__)
#define MEGJIT_AT_EACH_LEVEL(...) \
    namespace avx2 { \
    __VA_ARGS__ \
    } \
    namespace avx512 { \
    __VA_ARGS__ \
    }
#define MEGJIT_BEST(...) (megjit::runtime::has_avx512() ? avx512::__VA_ARGS__ : avx2::__VA_ARGS__)
#elif defined(__aarch64__)
#define MEGJIT_AT_EACH_LEVEL(...) \
    namespace neon { \
    __VA_ARGS__ \
    }
#define MEGJIT_BEST(...) (neon::__VA_ARGS__)
#endif
