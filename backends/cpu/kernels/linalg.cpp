// backends/cpu/kernels/linalg.cpp -- inverse by Gauss and Jordan with row pivots, singular values
// and eigenvalues by one-sided Jacobi rotations (Hestenes 1958). Both compute in double, one matrix
// a thread.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "backends/cpu/elements.h"
#include "backends/cpu/kernels/pivots.h"
#include "runtime/ops/linalg.h"

#include "backends/cpu/kernels/linalg_loops.h"

namespace megjit::cpu {
namespace {

// a and inverse are n x n; a is destroyed. Returns false for a singular matrix.
bool invert(double* a, double* inverse, int64_t n) {
    std::fill_n(inverse, n * n, 0.0);
    for (int64_t i = 0; i < n; ++i) inverse[i * n + i] = 1;
    for (int64_t c = 0; c < n; ++c) {
        const int64_t pivot = pivot_of(a, n, c);
        if (a[pivot * n + c] == 0) return false;
        if (pivot != c) {
            std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
            std::swap_ranges(inverse + c * n, inverse + (c + 1) * n, inverse + pivot * n);
        }
        const double scale = 1 / a[c * n + c];
        for (int64_t i = c; i < n; ++i) a[c * n + i] *= scale;
        for (int64_t i = 0; i < n; ++i) inverse[c * n + i] *= scale;
        for (int64_t r = 0; r < n; ++r) {
            const double factor = a[r * n + c];
            if (r == c || factor == 0) continue;
            for (int64_t i = c; i < n; ++i) a[r * n + i] -= factor * a[c * n + i];
            for (int64_t i = 0; i < n; ++i) inverse[r * n + i] -= factor * inverse[c * n + i];
        }
    }
    return true;
}

Prepared prepare_matinv(const OpCall& call, std::span<const Type>) {
    const Type& x = call.inputs[0];
    const int64_t n = x.shape[x.rank() - 1], size = n * n, count = size ? x.numel() / size : 0;
    return executable([=](void* const* in, void* const* out, void* work) {
        std::atomic<int64_t> singular{-1};
        parallel_for(count, std::max<int64_t>(1, 20000 / (size * n + 1)), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t k = lo; k < hi; ++k) {
                double *a = static_cast<double*>(work) + 2 * k * size, *inverse = a + size;
                std::copy_n(static_cast<const float*>(in[0]) + k * size, size, a);
                if (!invert(a, inverse, n)) singular = k;
                float* y = static_cast<float*>(out[0]) + k * size;
                for (int64_t i = 0; i < size; ++i) y[i] = static_cast<float>(inverse[i]);
            }
        });
        if (singular >= 0) runtime::refuse_singular("matinv", singular, count);
    }, static_cast<size_t>(2 * size * count) * sizeof(double));
}

// --- singular values ------------------------------------------------------------------------

// Makes the k rows of a (each of n elements, k <= n) orthogonal; v (k x k) collects the rotations.
void orthogonalise(double* a, double* v, int64_t k, int64_t n) {
    for (int sweep = 0; sweep < 60; ++sweep) {
        bool changed = false;
        for (int64_t p = 0; p + 1 < k; ++p)
            for (int64_t q = p + 1; q < k; ++q) {
                double *x = a + p * n, *y = a + q * n;
                const double xx = MEGJIT_BEST(dot)(x, x, n), yy = MEGJIT_BEST(dot)(y, y, n),
                             xy = MEGJIT_BEST(dot)(x, y, n);
                if (!(std::abs(xy) > 1e-15 * std::sqrt(xx * yy))) continue;
                changed = true;
                const double zeta = (yy - xx) / (2 * xy),
                             t = std::copysign(1.0, zeta) /
                                 (std::abs(zeta) + std::hypot(1.0, zeta));
                const double c = 1 / std::hypot(1.0, t), s = c * t;
                MEGJIT_BEST(rotate)(x, y, n, c, s);
                MEGJIT_BEST(rotate)(v + p * k, v + q * k, k, c, s);
            }
        if (!changed) return;
    }
}

// Makes rows [have, want) of `rows` (each of n elements) unit vectors orthogonal to all before
// them.
void complete(double* rows, int64_t have, int64_t want, int64_t n) {
    int64_t axis = 0;
    for (int64_t r = have; r < want; ++r) {
        double* row = rows + r * n;
        for (double norm = 0; norm < 0.5 / std::sqrt(static_cast<double>(n)) && axis < 2 * n;
             ++axis) {
            std::fill_n(row, n, 0.0);
            row[axis % n] = 1;
            for (int twice = 0; twice < 2; ++twice)
                for (int64_t before = 0; before < r; ++before) {
                    const double along = MEGJIT_BEST(dot)(row, rows + before * n, n);
                    for (int64_t i = 0; i < n; ++i) row[i] -= along * rows[before * n + i];
                }
            norm = std::sqrt(MEGJIT_BEST(dot)(row, row, n));
            for (int64_t i = 0; i < n; ++i) row[i] /= norm;
        }
    }
}

// x is m x n with m <= n by rows (the caller transposes): x = v^T diag(s) w; the rows of w are the
// directions.
struct Svd {
    int64_t k = 0, n = 0, want = 0;  // want: how many rows of w the caller needs
    double *a = nullptr, *v = nullptr, *w = nullptr, *s = nullptr, *sorted_v = nullptr;
    static int64_t doubles(int64_t k, int64_t n, int64_t want) {
        return k * n + 2 * k * k + want * n + 2 * k;
    }
    Svd(int64_t k, int64_t n, int64_t want, double* memory)
        : k(k),
          n(n),
          want(want),
          a(memory),
          v(a + k * n),
          w(v + k * k),
          s(w + want * n),
          sorted_v(s + 2 * k) {}

    void run() {
        std::fill_n(v, k * k, 0.0);
        for (int64_t i = 0; i < k; ++i) v[i * k + i] = 1;
        orthogonalise(a, v, k, n);
        double* norms = s + k;
        for (int64_t i = 0; i < k; ++i)
            norms[i] = std::sqrt(MEGJIT_BEST(dot)(a + i * n, a + i * n, n));
        int64_t rank = 0;
        for (int64_t i = 0; i < k; ++i) {  // largest norm first; selection saves memory
            int64_t best = 0;
            for (int64_t j = 1; j < k; ++j)
                if (norms[j] > norms[best] || norms[best] < 0) best = j;
            s[i] = std::max(0.0, norms[best]);
            std::copy_n(v + best * k, k, sorted_v + i * k);
            if (s[i] > 1e-14 * s[0] && s[i] > 0) {
                for (int64_t c = 0; c < n; ++c) w[i * n + c] = a[best * n + c] / s[i];
                rank = i + 1;
            }
            norms[best] = -1;
        }
        complete(w, rank, want, n);
    }
};

Prepared prepare_svd(const OpCall& call, std::span<const Type>) {
    const Shape& x = call.inputs[0].shape;
    const int64_t m = x[x.rank() - 2], n = x[x.rank() - 1], small = std::min(m, n),
                  large = std::max(m, n);
    const bool full = call.flag("full_matrices"), tall = m > n;
    int64_t count = 1;
    for (int i = 0; i + 2 < x.rank(); ++i) count *= x[i];
    const int64_t want = full ? large : small, doubles = Svd::doubles(small, large, want);
    const int64_t u_columns = full ? m : small, vh_rows = full ? n : small;
    return executable([=](void* const* in, void* const* out, void* work) {
        std::atomic<bool> bad{false};
        parallel_for(count, std::max<int64_t>(1, 5000 / (small * small * large + 1)), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t b = lo; b < hi; ++b) {
                const float* from = static_cast<const float*>(in[0]) + b * m * n;
                float *u = static_cast<float*>(out[0]) + b * m * u_columns,
                      *s = static_cast<float*>(out[1]) + b * small,
                      *vh = static_cast<float*>(out[2]) + b * vh_rows * n;
                Svd svd(small, large, want, static_cast<double*>(work) + b * doubles);
                bool finite = true;
                for (int64_t r = 0; r < m; ++r)
                    for (int64_t c = 0; c < n; ++c) {
                        finite = finite && std::isfinite(from[r * n + c]);
                        svd.a[tall ? c * m + r : r * n + c] = static_cast<double>(from[r * n + c]);
                    }
                if (!finite) {
                    bad = true;
                    continue;
                }
                svd.run();
                for (int64_t i = 0; i < small; ++i) s[i] = static_cast<float>(svd.s[i]);
                // tall: x^T = v^T s w, so u = w^T and vh = v; else u = v^T and vh = w.
                const double *columns = tall ? svd.w : svd.sorted_v,
                             *rows = tall ? svd.sorted_v : svd.w;
                for (int64_t r = 0; r < m; ++r)
                    for (int64_t c = 0; c < u_columns; ++c)
                        u[r * u_columns + c] = static_cast<float>(columns[c * m + r]);
                for (int64_t i = 0; i < vh_rows * n; ++i) vh[i] = static_cast<float>(rows[i]);
            }
        });
        if (bad)
            runtime::user_error({.what = "svd: the matrix has infinite or NaN elements"},
                                runtime::ErrorKind::runtime);
    }, static_cast<size_t>(doubles * count) * sizeof(double));
}

// A symmetric matrix plus a multiple of the identity that makes all eigenvalues positive has them
// as its singular values, and the left and right vectors are the same.
Prepared prepare_eigh(const OpCall& call, std::span<const Type>) {
    const Type& x = call.inputs[0];
    const int64_t n = x.shape[x.rank() - 1], size = n * n, count = size ? x.numel() / size : 0;
    const int64_t doubles = Svd::doubles(n, n, n);
    return executable([=](void* const* in, void* const* out, void* work) {
        std::atomic<bool> bad{false};
        parallel_for(count, std::max<int64_t>(1, 5000 / (size * n + 1)), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t b = lo; b < hi; ++b) {
                const float* from = static_cast<const float*>(in[0]) + b * size;
                float *w = static_cast<float*>(out[0]) + b * n,
                      *v = static_cast<float*>(out[1]) + b * size;
                Svd svd(n, n, n, static_cast<double*>(work) + b * doubles);
                double sum = 0;  // sum of squares: no eigenvalue is larger than its root
                for (int64_t r = 0; r < n; ++r)
                    for (int64_t c = 0; c < n; ++c) {
                        const auto value =
                            static_cast<double>(r > c ? from[r * n + c] : from[c * n + r]);
                        svd.a[r * n + c] = value;
                        sum += value * value;
                    }
                if (!std::isfinite(sum)) {
                    bad = true;
                    continue;
                }
                const double shift = sum > 0 ? 2 * std::sqrt(sum) : 1;
                for (int64_t i = 0; i < n; ++i) svd.a[i * n + i] += shift;
                svd.run();
                for (int64_t i = 0; i < n; ++i) {  // the largest comes last
                    w[i] = static_cast<float>(svd.s[n - 1 - i] - shift);
                    for (int64_t r = 0; r < n; ++r)
                        v[r * n + i] = static_cast<float>(svd.w[(n - 1 - i) * n + r]);
                }
            }
        });
        if (bad)
            runtime::user_error({.what = "eigh: the matrix has infinite or NaN elements"},
                                runtime::ErrorKind::runtime);
    }, static_cast<size_t>(doubles * count) * sizeof(double));
}

}  // namespace

void register_linalg_kernels() {
    register_kernel("eigh", prepare_eigh);
    register_kernel("matinv", prepare_matinv);
    register_kernel("svd", prepare_svd);
}

}  // namespace megjit::cpu
