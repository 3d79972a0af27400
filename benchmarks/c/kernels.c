// What cases/gelu_chain.py, adam.py and rows.py ask for, fused by hand.
#include <math.h>
#include <stddef.h>

#define FOR_EACH_CALL(calls) for (; (calls) > 0; --(calls), ({ __asm__ volatile("" ::: "memory"); }))

void gelu_chain(const float* restrict x, float* restrict y, ptrdiff_t n, ptrdiff_t calls) {
    FOR_EACH_CALL(calls) {
#pragma omp parallel for simd schedule(static) if (parallel : n > 20000)
        for (ptrdiff_t i = 0; i < n; ++i) {
            const float h = x[i] * 1.1f + 0.1f;
            y[i] = h * 0.5f * (erff(h * 0.70710678f) + 1.0f) + x[i];
        }
    }
}

// Adam with the default options and learning rate of adam.py; the steps are counted in *step.
void adam(float* restrict p, float* restrict m, float* restrict v, const float* restrict g, ptrdiff_t* step, ptrdiff_t n,
          ptrdiff_t calls) {
    FOR_EACH_CALL(calls) {
        ++*step;
        const float rate = 0.001f / (1 - powf(0.9f, *step)), root = 1 / sqrtf(1 - powf(0.999f, *step));
#pragma omp parallel for simd schedule(static) if (parallel : n > 20000)
        for (ptrdiff_t i = 0; i < n; ++i) {
            m[i] = 0.9f * m[i] + 0.1f * g[i];
            v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
            p[i] -= rate * m[i] / (sqrtf(v[i]) * root + 1e-8f);
        }
    }
}

enum { ROW = 1024 };  // elements in a row of x

static void statistics(const float* x, float* mean, float* scale) {
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < ROW; ++i) sum += x[i];
    *mean = sum / ROW;
#pragma omp simd reduction(+ : squares)
    for (int i = 0; i < ROW; ++i) squares += (x[i] - *mean) * (x[i] - *mean);
    *scale = 1 / sqrtf(squares / ROW + 1e-5f);
}

void layer_norm(const float* restrict x, const float* restrict w, const float* restrict b, float* restrict y, ptrdiff_t rows,
                ptrdiff_t calls) {
    FOR_EACH_CALL(calls) {
#pragma omp parallel for schedule(static)
        for (ptrdiff_t r = 0; r < rows; ++r) {
            float mean, scale;
            statistics(x + r * ROW, &mean, &scale);
            for (int i = 0; i < ROW; ++i) y[r * ROW + i] = (x[r * ROW + i] - mean) * scale * w[i] + b[i];
        }
    }
}

void layer_norm_grad(const float* restrict x, const float* restrict w, const float* restrict dy, float* restrict dx, float* restrict dw,
                     float* restrict db, ptrdiff_t rows, ptrdiff_t calls) {
    FOR_EACH_CALL(calls) {
        for (int i = 0; i < ROW; ++i) dw[i] = db[i] = 0;
#pragma omp parallel
        {
            float own_dw[ROW] = {0}, own_db[ROW] = {0};
#pragma omp for schedule(static)
            for (ptrdiff_t r = 0; r < rows; ++r) {
                const float *xr = x + r * ROW, *dyr = dy + r * ROW;
                float mean, scale, sum = 0, product = 0;
                statistics(xr, &mean, &scale);
#pragma omp simd reduction(+ : sum, product)
                for (int i = 0; i < ROW; ++i) {
                    const float normal = (xr[i] - mean) * scale;
                    sum += dyr[i] * w[i];
                    product += dyr[i] * w[i] * normal;
                    own_dw[i] += dyr[i] * normal;
                    own_db[i] += dyr[i];
                }
                for (int i = 0; i < ROW; ++i)
                    dx[r * ROW + i] = scale * (dyr[i] * w[i] - sum / ROW - (xr[i] - mean) * scale * product / ROW);
            }
#pragma omp critical
            for (int i = 0; i < ROW; ++i) dw[i] += own_dw[i], db[i] += own_db[i];
        }
    }
}

void softmax(const float* restrict x, float* restrict y, ptrdiff_t rows, ptrdiff_t calls) {
    FOR_EACH_CALL(calls) {
#pragma omp parallel for schedule(static)
        for (ptrdiff_t r = 0; r < rows; ++r) {
            const float* xr = x + r * ROW;
            float* yr = y + r * ROW;
            float top = xr[0], sum = 0;
#pragma omp simd reduction(max : top)
            for (int i = 0; i < ROW; ++i) top = xr[i] > top ? xr[i] : top;
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < ROW; ++i) sum += yr[i] = expf(xr[i] - top);
            for (int i = 0; i < ROW; ++i) yr[i] /= sum;
        }
    }
}

void softmax_grad(const float* restrict x, const float* restrict dy, float* restrict dx, ptrdiff_t rows, ptrdiff_t calls) {
    FOR_EACH_CALL(calls) {
        softmax(x, dx, rows, 1);
#pragma omp parallel for schedule(static)
        for (ptrdiff_t r = 0; r < rows; ++r) {
            const float* dyr = dy + r * ROW;
            float* dxr = dx + r * ROW;
            float product = 0;
#pragma omp simd reduction(+ : product)
            for (int i = 0; i < ROW; ++i) product += dxr[i] * dyr[i];
            for (int i = 0; i < ROW; ++i) dxr[i] *= dyr[i] - product;
        }
    }
}
