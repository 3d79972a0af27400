// What the machine can do at most: two streams, multiply-adds in registers, and a word from core to core.
#include <omp.h>
#include <stdatomic.h>
#include <stddef.h>

void copy(const float* x, float* y, ptrdiff_t n, ptrdiff_t calls) {
    while (calls-- > 0) {
#pragma omp parallel for simd schedule(static)
        for (ptrdiff_t i = 0; i < n; ++i) y[i] = x[i];
    }
}

void triad(const float* x, const float* y, float* z, ptrdiff_t n, ptrdiff_t calls) {
    while (calls-- > 0) {
#pragma omp parallel for simd schedule(static)
        for (ptrdiff_t i = 0; i < n; ++i) z[i] = x[i] + 3.0f * y[i];
    }
}

// 12 independent accumulators of 16 floats hide the latency of a multiply-add.
#ifdef __AVX512F__
typedef float lanes __attribute__((vector_size(64)));
#else
typedef float lanes __attribute__((vector_size(32)));
#endif

void fma_peak(ptrdiff_t loops, ptrdiff_t calls) {
#pragma omp parallel num_threads(2)
    {
        lanes sums[12], factor, step;
        for (int lane = 0; lane < 16; ++lane) factor[lane] = 0.999f, step[lane] = 0.001f;
        for (int k = 0; k < 12; ++k) sums[k] = step * (float)k;
        for (ptrdiff_t i = 0; i < loops * calls; ++i) {
#pragma GCC unroll 12
            for (int k = 0; k < 12; ++k) sums[k] = sums[k] * factor + step;
        }
        for (int k = 0; k < 12; ++k) __asm__ volatile("" ::"m"(sums[k]));
    }
}

// Two threads hand a cache line to and fro; a round trip is two handoffs.
void handoff(ptrdiff_t trips, ptrdiff_t calls) {
    static _Atomic ptrdiff_t turn;
    turn = 0;
#pragma omp parallel num_threads(2)
    {
        const ptrdiff_t mine = omp_get_thread_num();
        for (ptrdiff_t i = mine; i < 2 * trips * calls; i += 2) {
            while (turn != i) {
            }
            turn = i + 1;
        }
    }
}
