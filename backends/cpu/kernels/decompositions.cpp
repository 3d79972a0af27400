// backends/cpu/kernels/decompositions.cpp -- Cholesky's and Householder's decompositions, and
// elimination with row pivots. They compute in double, one matrix a thread; signs are LAPACK's.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "backends/cpu/elements.h"
#include "backends/cpu/kernels/pivots.h"
#include "runtime/ops/linalg.h"

#include "backends/cpu/kernels/linalg_loops.h"

namespace megjit::cpu {
namespace {

// Calls run(matrix, memory) for each matrix, with room for `doubles` numbers. Returns one for which
// run returned false, or -1.
template <class Run>
int64_t for_matrices(int64_t count, int64_t flops, int64_t doubles, void* work, Run run) {
    std::atomic<int64_t> failed{-1};
    parallel_for(count, std::max<int64_t>(1, 20000 / (flops + 1)), 1, [&](int64_t lo, int64_t hi) {
        for (int64_t k = lo; k < hi; ++k)
            if (!run(k, static_cast<double*>(work) + k * doubles)) failed = k;
    });
    return failed;
}

struct Matrices {
    int64_t m = 0, n = 0, count = 0;
    explicit Matrices(const Shape& shape)
        : m(shape[shape.rank() - 2]), n(shape[shape.rank() - 1]), count(1) {
        for (int i = 0; i + 2 < shape.rank(); ++i) count *= shape[i];
    }
    int64_t size() const { return m * n; }
};

size_t bytes_for(int64_t count, int64_t doubles) {
    return static_cast<size_t>(count * doubles) * sizeof(double);
}

// --- cholesky -------------------------------------------------------------------------------

// Works row by row: each element needs the dot of two rows that are known already.
bool factorise(double* a, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j <= i; ++j) {
            const double rest = a[i * n + j] - MEGJIT_BEST(dot)(a + i * n, a + j * n, j);
            if (j < i) a[i * n + j] = rest / a[j * n + j];
            else if (!(rest > 0)) return false;
            else a[i * n + i] = std::sqrt(rest);
        }
    return true;
}

Prepared prepare_cholesky(const OpCall& call, std::span<const Type>) {
    const Matrices x(call.inputs[0].shape);
    const int64_t n = x.n, size = x.size();
    return executable([=](void* const* in, void* const* out, void* work) {
        const int64_t failed =
            for_matrices(x.count, size * n / 3, size, work, [&](int64_t k, double* a) {
            std::copy_n(static_cast<const float*>(in[0]) + k * size, size, a);
            if (!factorise(a, n)) return false;
            float* l = static_cast<float*>(out[0]) + k * size;
            for (int64_t i = 0; i < n; ++i)
                for (int64_t j = 0; j < n; ++j)
                    l[i * n + j] = j <= i ? static_cast<float>(a[i * n + j]) : 0.0f;
            return true;
        });
        if (failed >= 0) runtime::refuse_indefinite(failed, x.count);
    }, bytes_for(x.count, size));
}

// --- elimination ----------------------------------------------------------------------------

void subtract(double* from, double factor, const double* row, int64_t n) {
    if (factor != 0) MEGJIT_BEST(add_scaled)(from, -factor, row, n);
}

// Makes a upper triangular, and changes b (n x k) with it. Returns the sign of the row exchanges,
// or 0 where a pivot is 0.
int eliminate(double* a, double* b, int64_t n, int64_t k) {
    int sign = 1;
    for (int64_t c = 0; c < n; ++c) {
        const int64_t pivot = pivot_of(a, n, c);
        if (a[pivot * n + c] == 0) return 0;
        if (pivot != c) {
            std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
            std::swap_ranges(b + c * k, b + (c + 1) * k, b + pivot * k);
            sign = -sign;
        }
        for (int64_t r = c + 1; r < n; ++r) {
            const double factor = a[r * n + c] / a[c * n + c];
            subtract(a + r * n + c, factor, a + c * n + c, n - c);
            subtract(b + r * k, factor, b + c * k, k);
        }
    }
    return sign;
}

Prepared prepare_solve(const OpCall& call, std::span<const Type>) {
    const Matrices a(call.inputs[0].shape), b(call.inputs[1].shape);
    const int64_t n = a.n, k = b.n, doubles = a.size() + b.size();
    return executable([=](void* const* in, void* const* out, void* work) {
        const int64_t failed = for_matrices(a.count, n * n * (n + k), doubles, work,
                                            [&](int64_t matrix, double* left) {
            double* right = left + a.size();
            std::copy_n(static_cast<const float*>(in[0]) + matrix * a.size(), a.size(), left);
            std::copy_n(static_cast<const float*>(in[1]) + matrix * b.size(), b.size(), right);
            if (!eliminate(left, right, n, k)) return false;
            for (int64_t r = n; r-- > 0;) {
                for (int64_t c = r + 1; c < n; ++c)
                    subtract(right + r * k, left[r * n + c], right + c * k, k);
                for (int64_t i = 0; i < k; ++i) right[r * k + i] /= left[r * n + r];
            }
            float* x = static_cast<float*>(out[0]) + matrix * b.size();
            for (int64_t i = 0; i < b.size(); ++i) x[i] = static_cast<float>(right[i]);
            return true;
        });
        if (failed >= 0) runtime::refuse_singular("solve", failed, a.count);
    }, bytes_for(a.count, doubles));
}

Prepared prepare_slogdet(const OpCall& call, std::span<const Type>) {
    const Matrices x(call.inputs[0].shape);
    const int64_t n = x.n, size = x.size();
    return executable([=](void* const* in, void* const* out, void* work) {
        for_matrices(x.count, size * n, size, work, [&](int64_t k, double* a) {
            std::copy_n(static_cast<const float*>(in[0]) + k * size, size, a);
            int sign = eliminate(a, nullptr, n, 0);
            double logarithm = sign ? 0 : -HUGE_VAL;
            for (int64_t i = 0; sign && i < n; ++i) {
                logarithm += std::log(std::abs(a[i * n + i]));
                if (a[i * n + i] < 0) sign = -sign;
            }
            static_cast<float*>(out[0])[k] = static_cast<float>(sign);
            static_cast<float*>(out[1])[k] = static_cast<float>(logarithm);
            return true;
        });
    }, bytes_for(x.count, size));
}

// Eliminates with row pivots in place; row c is exchanged with row pivots[c] - 1.
void eliminate_in_place(double* a, int32_t* pivots, int64_t n) {
    for (int64_t c = 0; c < n; ++c) {
        const int64_t pivot = pivot_of(a, n, c);
        pivots[c] = static_cast<int32_t>(pivot + 1);
        if (a[pivot * n + c] == 0) continue;
        if (pivot != c) std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
        for (int64_t r = c + 1; r < n; ++r) {
            const double factor = a[r * n + c] /= a[c * n + c];
            subtract(a + r * n + c + 1, factor, a + c * n + c + 1, n - c - 1);
        }
    }
}

Prepared prepare_lu(const OpCall& call, std::span<const Type>) {
    const Matrices x(call.inputs[0].shape);
    const int64_t n = x.n, size = x.size();
    return executable([=](void* const* in, void* const* out, void* work) {
        for_matrices(x.count, size * n, size, work, [&](int64_t k, double* a) {
            std::copy_n(static_cast<const float*>(in[0]) + k * size, size, a);
            eliminate_in_place(a, static_cast<int32_t*>(out[1]) + k * n, n);
            float* lu = static_cast<float*>(out[0]) + k * size;
            for (int64_t i = 0; i < size; ++i) lu[i] = static_cast<float>(a[i]);
            return true;
        });
    }, bytes_for(x.count, size));
}

Prepared prepare_exchanged_rows(const OpCall& call, std::span<const Type>) {
    const Type& x = call.inputs[0];
    const int64_t n = x.shape[x.rank() - 1], count = n ? x.numel() / n : 0;
    return executable([=](void* const* in, void* const* out, void*) {
        const auto* pivots = static_cast<const int32_t*>(in[0]);
        auto* rows = static_cast<int32_t*>(out[0]);
        for (int64_t k = 0; k < count; ++k, pivots += n, rows += n) {
            for (int64_t i = 0; i < n; ++i) {
                if (pivots[i] < 1 || pivots[i] > n) runtime::refuse_pivot(pivots[i], n);
                rows[i] = static_cast<int32_t>(i);
            }
            for (int64_t i = 0; i < n; ++i) std::swap(rows[i], rows[pivots[i] - 1]);
        }
    });
}

Prepared prepare_solve_triangular(const OpCall& call, std::span<const Type>) {
    const Matrices a(call.inputs[0].shape), b(call.inputs[1].shape);
    const bool upper = call.flag("upper"), unit = call.flag("unit");
    const int64_t n = a.n, k = b.n;
    return executable([=](void* const* in, void* const* out, void* work) {
        for_matrices(a.count, n * n * k, b.size(), work, [&](int64_t matrix, double* x) {
            const float* left = static_cast<const float*>(in[0]) + matrix * a.size();
            std::copy_n(static_cast<const float*>(in[1]) + matrix * b.size(), b.size(), x);
            for (int64_t step = 0; step < n; ++step) {
                const int64_t r = upper ? n - 1 - step : step, first = upper ? r + 1 : 0,
                              last = upper ? n : r;
                for (int64_t c = first; c < last; ++c)
                    subtract(x + r * k, static_cast<double>(left[r * n + c]), x + c * k, k);
                if (!unit)
                    for (int64_t i = 0; i < k; ++i)
                        x[r * k + i] /= static_cast<double>(left[r * n + r]);
            }
            float* y = static_cast<float*>(out[0]) + matrix * b.size();
            for (int64_t i = 0; i < b.size(); ++i) y[i] = static_cast<float>(x[i]);
            return true;
        });
    }, bytes_for(a.count, b.size()));
}

// --- qr -------------------------------------------------------------------------------------

// Column c of the `columns` columns (each m elements, one after the other) gets zeros below the
// diagonal by a reflection 1 - tau v v^T, v[0] = 1, which is stored in place of the zeros. Returns
// tau.
double reflect(double* columns, int64_t m, int64_t n, int64_t c) {
    double* v = columns + c * m + c;
    const int64_t rest = m - c;
    const double below = MEGJIT_BEST(dot)(v + 1, v + 1, rest - 1);
    if (below == 0) return 0;
    const double alpha = v[0], beta = -std::copysign(std::sqrt(alpha * alpha + below), alpha);
    for (int64_t i = 1; i < rest; ++i) v[i] /= alpha - beta;
    v[0] = 1;
    const double tau = (beta - alpha) / beta;
    for (int64_t j = c + 1; j < n; ++j) {
        double* column = columns + j * m + c;
        subtract(column, tau * MEGJIT_BEST(dot)(v, column, rest), v, rest);
    }
    v[0] = beta;
    return tau;
}

// Computes the first `want` columns of the product of the reflections.
void reflected(const double* columns, const double* taus, double* q, int64_t m, int64_t steps,
               int64_t want) {
    std::fill_n(q, m * want, 0.0);
    for (int64_t i = 0; i < want; ++i) q[i * m + i] = 1;
    for (int64_t c = steps; c-- > 0;)
        for (int64_t j = c; j < want; ++j) {
            const double* v = columns + c * m + c;
            double* column = q + j * m + c;
            const int64_t rest = m - c - 1;
            const double along = taus[c] * (column[0] + MEGJIT_BEST(dot)(v + 1, column + 1, rest));
            column[0] -= along;
            subtract(column + 1, along, v + 1, rest);
        }
}

Prepared prepare_qr(const OpCall& call, std::span<const Type> outputs) {
    const Matrices x(call.inputs[0].shape);
    const int64_t m = x.m, n = x.n, steps = std::min(m, n),
                  want = outputs[0].shape[outputs[0].rank() - 1];
    const int64_t doubles = m * n + m * want + steps;
    return executable([=](void* const* in, void* const* out, void* work) {
        for_matrices(x.count, m * n * (n + want), doubles, work, [&](int64_t k, double* columns) {
            const float* from = static_cast<const float*>(in[0]) + k * m * n;
            for (int64_t r = 0; r < m; ++r)
                for (int64_t c = 0; c < n; ++c)
                    columns[c * m + r] = static_cast<double>(from[r * n + c]);
            double *vectors = columns + m * n, *taus = vectors + m * want;
            for (int64_t c = 0; c < steps; ++c) taus[c] = reflect(columns, m, n, c);
            reflected(columns, taus, vectors, m, steps, want);
            float *q = static_cast<float*>(out[0]) + k * m * want,
                  *r = static_cast<float*>(out[1]) + k * want * n;
            for (int64_t i = 0; i < m; ++i)
                for (int64_t c = 0; c < want; ++c)
                    q[i * want + c] = static_cast<float>(vectors[c * m + i]);
            for (int64_t i = 0; i < want; ++i)
                for (int64_t c = 0; c < n; ++c)
                    r[i * n + c] = i <= c ? static_cast<float>(columns[c * m + i]) : 0.0f;
            return true;
        });
    }, bytes_for(x.count, doubles));
}

}  // namespace

void register_decomposition_kernels() {
    register_kernel("cholesky", prepare_cholesky);
    register_kernel("qr", prepare_qr);
    register_kernel("slogdet", prepare_slogdet);
    register_kernel("solve", prepare_solve);
    register_kernel("lu", prepare_lu);
    register_kernel("exchanged_rows", prepare_exchanged_rows);
    register_kernel("solve_triangular", prepare_solve_triangular);
}

}  // namespace megjit::cpu
