// backends/cpu/kernels/norm.inl -- sums and maps of normalization, over runs of one group and
// over rows with one group per column. See each_isa.h.

#include "backends/cpu/kernels/ordered_sums.inl"

double sum_run(const float* x, int64_t n) {
    return ordered_sums<1>(n, MEGJIT_TERMS(V, i, out) { out[0] = get<V>(x + i); })[0];
}

double sum_squares_run(const float* x, float mean, int64_t n) {
    return ordered_sums<1>(n, MEGJIT_TERMS(V, i, out) {
        const V apart = get<V>(x + i) - mean;
        out[0] = apart * apart;
    })[0];
}

// Adds <dy> and <dy * (x - mean)> to the sums.
void sum_products_run(const float* x, const float* dy, float mean, int64_t n, double* sum_dy,
                      double* sum_dyx) {
    const auto sums = ordered_sums<2>(n, MEGJIT_TERMS(V, i, out) {
        out[0] = get<V>(dy + i);
        out[1] = out[0] * (get<V>(x + i) - mean);
    });
    *sum_dy += sums[0];
    *sum_dyx += sums[1];
}

void normalize_run(const float* x, float* y, float mean, float scale, float bias, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, (load(x + i) - mean) * scale + bias);
    for (; i < n; ++i) y[i] = (x[i] - mean) * scale + bias;
}

// Writes dx = a * (dy - b - (x - mean) * c).
void gradient_run(const float* x, const float* dy, float* dx, float mean, float a, float b, float c,
                  int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        store(dx + i, (load(dy + i) - b - (load(x + i) - mean) * c) * a);
    for (; i < n; ++i) dx[i] = (dy[i] - b - (x[i] - mean) * c) * a;
}

// Adds <x - shift> and <(x - shift)^2> of a few rows to float sums.
void add_moments_rows(const float* x, const float* shift, int64_t rows, int64_t c, float* first,
                      float* second) {
    int64_t i = 0;
    for (; i + kLanes <= c; i += kLanes) {
        const Floats s = load(shift + i);
        Floats a{}, b{};
        for (int64_t r = 0; r < rows; ++r) {
            const Floats d = load(x + r * c + i) - s;
            a += d, b += d * d;
        }
        store(first + i, a), store(second + i, b);
    }
    for (; i < c; ++i) {
        float a = 0, b = 0;
        for (int64_t r = 0; r < rows; ++r) {
            const float d = x[r * c + i] - shift[i];
            a += d, b += d * d;
        }
        first[i] = a, second[i] = b;
    }
}

void add_products_rows(const float* x, const float* dy, const float* mean, int64_t rows, int64_t c,
                       float* first, float* second) {
    int64_t i = 0;
    for (; i + kLanes <= c; i += kLanes) {
        const Floats m = load(mean + i);
        Floats a{}, b{};
        for (int64_t r = 0; r < rows; ++r) {
            const Floats d = load(dy + r * c + i);
            a += d, b += d * (load(x + r * c + i) - m);
        }
        store(first + i, a), store(second + i, b);
    }
    for (; i < c; ++i) {
        float a = 0, b = 0;
        for (int64_t r = 0; r < rows; ++r)
            a += dy[r * c + i], b += dy[r * c + i] * (x[r * c + i] - mean[i]);
        first[i] = a, second[i] = b;
    }
}

void normalize_rows(const float* x, float* y, const float* mean, const float* scale,
                    const float* bias, int64_t rows, int64_t c) {
    for (int64_t r = 0; r < rows; ++r, x += c, y += c) {
        int64_t i = 0;
        for (; i + kLanes <= c; i += kLanes)
            store(y + i, (load(x + i) - load(mean + i)) * load(scale + i) + load(bias + i));
        for (; i < c; ++i) y[i] = (x[i] - mean[i]) * scale[i] + bias[i];
    }
}

void gradient_rows(const float* x, const float* dy, float* dx, const float* mean, const float* a,
                   const float* b, const float* k, int64_t rows, int64_t c) {
    for (int64_t r = 0; r < rows; ++r, x += c, dy += c, dx += c) {
        int64_t i = 0;
        for (; i + kLanes <= c; i += kLanes)
            store(dx + i,
                  (load(dy + i) - load(b + i) - (load(x + i) - load(mean + i)) * load(k + i)) *
                      load(a + i));
        for (; i < c; ++i) dx[i] = (dy[i] - b[i] - (x[i] - mean[i]) * k[i]) * a[i];
    }
}

void affine_run(const float* x, float* y, float mean, float rstd, const float* scale,
                const float* bias, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        store(y + i, (load(x + i) - mean) * rstd * load(scale + i) + load(bias + i));
    for (; i < n; ++i) y[i] = (x[i] - mean) * rstd * scale[i] + bias[i];
}

// Adds <t> and <t * (x - mean)> with t = dy * scale to the sums.
void sum_scaled_products_run(const float* x, const float* dy, const float* scale, float mean,
                             int64_t n, double* sum_t, double* sum_tx) {
    const auto sums = ordered_sums<2>(n, MEGJIT_TERMS(V, i, out) {
        out[0] = get<V>(dy + i) * get<V>(scale + i);
        out[1] = out[0] * (get<V>(x + i) - mean);
    });
    *sum_t += sums[0];
    *sum_tx += sums[1];
}

void scaled_gradient_run(const float* x, const float* dy, const float* scale, float* dx, float mean,
                         float a, float b, float k, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        store(dx + i, (load(dy + i) * load(scale + i) - b - (load(x + i) - mean) * k) * a);
    for (; i < n; ++i) dx[i] = (dy[i] * scale[i] - b - (x[i] - mean) * k) * a;
}

// Sums dy and dy * (x - mean) * rstd over a few rows, per column; statistics belong to rows.
void add_normalized_rows(const float* x, const float* dy, const float* mean, const float* rstd,
                         int64_t rows, int64_t c, float* first, float* second) {
    int64_t i = 0;
    for (; i + kLanes <= c; i += kLanes) {
        Floats a{}, b{};
        for (int64_t r = 0; r < rows; ++r) {
            const Floats d = load(dy + r * c + i);
            a += d, b += d * ((load(x + r * c + i) - mean[r]) * rstd[r]);
        }
        store(first + i, a), store(second + i, b);
    }
    for (; i < c; ++i) {
        float a = 0, b = 0;
        for (int64_t r = 0; r < rows; ++r)
            a += dy[r * c + i], b += dy[r * c + i] * ((x[r * c + i] - mean[r]) * rstd[r]);
        first[i] = a, second[i] = b;
    }
}
