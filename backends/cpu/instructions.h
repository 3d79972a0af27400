// backends/cpu/instructions.h -- the compiler's header for what instructions.inl needs.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
