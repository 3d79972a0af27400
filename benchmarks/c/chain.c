// The chain of cases/fused_chain.py, fused by hand.
#include <math.h>
#include <stddef.h>

static void chain_once(const float* restrict x, float* restrict y, ptrdiff_t n) {
#pragma omp parallel for simd schedule(static) if (parallel : n > 20000)
    for (ptrdiff_t i = 0; i < n; ++i) {
        float v = x[i];
        float t = v * v * v * 0.044715f + v;
        t = tanhf(t * 0.7978846f);
        y[i] = (t + 1.0f) * 0.5f * v + v;
    }
}

void chain(const float* x, float* y, ptrdiff_t n, ptrdiff_t calls) {
    while (calls-- > 0) {
        chain_once(x, y, n);
        __asm__ volatile("" ::: "memory");
    }
}
