// backends/cpu/kernels/norm.cpp -- batch and layer normalization and their gradients, in float32 at
// the speed of memory. Sums of runs have the order of codegen/row_plan.h; sums of columns run in
// float32 over some rows and are added up in double. Row-major groups take two passes, mean then
// squares, while they are in the second cache; channels_last takes one pass about a shift near the
// mean, which is as exact unless the shift is many deviations away.
#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cpu/convert.h"
#include "codegen/row_plan.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

using runtime::Layout;
using runtime::OpCall;
using runtime::parallel_for;
using runtime::Type;

constexpr int64_t kBlock = 4096;  // elements whose columns are summed in float32
constexpr int64_t kGrain = 1 << 14;  // this many elements are worth a thread

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/norm.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

// Sums two values per column over the rows of [rows, c], in parts whose borders depend on the shape
// alone, so that results depend neither on timing nor on the number of threads. `block(row, rows,
// first, second)` gives the sums of a few rows.
struct ColumnSums {
    static constexpr int64_t kMostParts = 16;
    int64_t rows = 0, c = 0, parts = 1, block = 1;

    ColumnSums() = default;
    ColumnSums(int64_t rows, int64_t c) : rows(rows), c(c) {
        const int64_t worth = std::max<int64_t>(1, rows * c / kGrain);
        parts = std::min<int64_t>({worth, rows, kMostParts});
        block = std::clamp<int64_t>(kBlock / std::max<int64_t>(c, 1), 8, 256);
    }
    // Room for doubles [parts][2][c], then floats [parts][2][c].
    size_t workspace_bytes() const {
        return static_cast<size_t>(parts * 2 * c) * (sizeof(double) + sizeof(float));
    }

    // The result is doubles [2][c] at the start of the workspace.
    template <class Block>
    const double* run(void* workspace, const Block& body) const {
        double* const sums = static_cast<double*>(workspace);
        float* const floats = reinterpret_cast<float*>(sums + parts * 2 * c);
        parallel_for(parts, 1, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t part = lo; part < hi; ++part) {
                double* const total = sums + part * 2 * c;
                float *const first = floats + part * 2 * c, *const second = first + c;
                std::fill(total, total + 2 * c, 0.0);
                const int64_t end = rows * (part + 1) / parts;
                for (int64_t row = rows * part / parts; row < end; row += block) {
                    body(row, std::min(block, end - row), first, second);
                    for (int64_t i = 0; i < 2 * c; ++i) total[i] += static_cast<double>(first[i]);
                }
            }
        });
        for (int64_t part = 1; part < parts; ++part)
            for (int64_t i = 0; i < 2 * c; ++i) sums[i] += sums[part * 2 * c + i];
        return sums;
    }
};

// ---- batch_norm ----

struct BatchShape {
    int64_t n = 0, c = 0, spatial = 1;
    bool by_rows = false;  // channels_last, or no axis follows the channel axis

    explicit BatchShape(const Type& x) : n(x.shape[0]), c(x.shape[1]) {
        for (int axis = 2; axis < x.rank(); ++axis) spatial *= x.shape[axis];
        by_rows = x.layout == Layout::channels_last || spatial == 1;
    }
    int64_t count() const { return n * spatial; }
    int64_t channel_grain() const {
        return std::max<int64_t>(1, kGrain / std::max<int64_t>(count(), 1));
    }
    int64_t row_grain() const { return std::max<int64_t>(1, kGrain / std::max<int64_t>(c, 1)); }
};

// Computes the statistics of a batch, and, if there is a `y` to write, the normalized x.
struct BatchForward {
    BatchShape s;
    float eps = 0;
    bool normalizes = true;
    ColumnSums sums = {};
    size_t sum_bytes = 0;

    void operator()(void* const* in, void* const* out, void* workspace) const {
        const float *x = static_cast<const float*>(in[0]), *scale = nullptr, *bias = nullptr;
        float* y = nullptr;
        if (normalizes)
            scale = static_cast<const float*>(in[1]), bias = static_cast<const float*>(in[2]),
            y = static_cast<float*>(*out++);
        float *mean = static_cast<float*>(out[0]), *var = static_cast<float*>(out[1]);
        s.by_rows ? by_rows(x, scale, bias, y, mean, var, workspace)
                  : by_channels(x, scale, bias, y, mean, var);
    }
    void by_channels(const float* x, const float* scale, const float* bias, float* y, float* mean,
                     float* var) const {
        const double inverse = 1 / static_cast<double>(s.count());
        parallel_for(s.c, s.channel_grain(), 1, [&](int64_t lo, int64_t hi) {
            for (int64_t c = lo; c < hi; ++c) {
                double total = 0, squares = 0;
                for (int64_t n = 0; n < s.n; ++n)
                    total += MEGJIT_BEST(sum_run)(x + (n * s.c + c) * s.spatial, s.spatial);
                mean[c] = static_cast<float>(total * inverse);
                for (int64_t n = 0; n < s.n; ++n)
                    squares += MEGJIT_BEST(sum_squares_run)(x + (n * s.c + c) * s.spatial, mean[c],
                                                            s.spatial);
                var[c] = static_cast<float>(squares * inverse);
                if (!y) continue;
                const float factor = scale[c] / std::sqrt(var[c] + eps);
                for (int64_t n = 0; n < s.n; ++n) {
                    const int64_t at = (n * s.c + c) * s.spatial;
                    MEGJIT_BEST(normalize_run)(x + at, y + at, mean[c], factor, bias[c], s.spatial);
                }
            }
        });
    }
    void by_rows(const float* x, const float* scale, const float* bias, float* y, float* mean,
                 float* var, void* workspace) const {
        float* const factor = reinterpret_cast<float*>(static_cast<char*>(workspace) + sum_bytes);
        // The shift is the mean of up to 64 rows spread over the batch. `mean` holds it until the
        // mean is known.
        const int64_t rows = s.count(), samples = std::min<int64_t>(rows, 64);
        std::fill(mean, mean + s.c, 0.0f);
        for (int64_t i = 0; i < samples; ++i)
            for (int64_t c = 0; c < s.c; ++c) mean[c] += x[rows * i / samples * s.c + c];
        for (int64_t c = 0; c < s.c; ++c) mean[c] /= static_cast<float>(samples);
        const double* total =
            sums.run(workspace, [&](int64_t row, int64_t count, float* first, float* second) {
            MEGJIT_BEST(add_moments_rows)(x + row * s.c, mean, count, s.c, first, second);
        });
        const double inverse = 1 / static_cast<double>(rows);
        for (int64_t c = 0; c < s.c; ++c) {
            const double offset = total[c] * inverse;
            const double variance = total[s.c + c] * inverse - offset * offset;
            var[c] = variance < 0 ? 0.0f : static_cast<float>(variance);  // a NaN stays NaN
            mean[c] = static_cast<float>(static_cast<double>(mean[c]) + offset);
            if (y) factor[c] = scale[c] / std::sqrt(var[c] + eps);
        }
        if (!y) return;
        parallel_for(rows, s.row_grain(), 1, [&](int64_t lo, int64_t hi) {
            MEGJIT_BEST(normalize_rows)(x + lo * s.c, y + lo * s.c, mean, factor, bias, hi - lo,
                                        s.c);
        });
    }
};

Prepared prepare_batch_norm(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (Prepared converted = in_float32_like(x, call, outputs, prepare_batch_norm))
        return converted;
    if (x.numel() == 0) return make_zeros(outputs);
    BatchForward run{.s = BatchShape(x), .normalizes = call.op.name == "batch_norm"};
    if (run.normalizes) run.eps = static_cast<float>(call.real("eps"));
    if (!run.s.by_rows) return executable(run);
    run.sums = ColumnSums(run.s.count(), run.s.c);
    run.sum_bytes = run.sums.workspace_bytes();
    return executable(run, run.sum_bytes + static_cast<size_t>(run.s.c) * sizeof(float));
}

// Computes the sums over a batch that are the gradients of scale and bias, and, if there is a `dx`
// to write, the gradient of x.
struct BatchBackward {
    BatchShape s;
    float eps = 0;
    bool writes_dx = true;
    ColumnSums sums = {};
    size_t sum_bytes = 0;

    void operator()(void* const* in, void* const* out, void* workspace) const {
        const float *x = static_cast<const float*>(in[0]), *mean = static_cast<const float*>(in[1]),
                    *var = static_cast<const float*>(in[2]);
        const float *scale = writes_dx ? static_cast<const float*>(in[3]) : nullptr,
                    *dy = static_cast<const float*>(in[writes_dx ? 4 : 3]);
        float* const dx = writes_dx ? static_cast<float*>(*out++) : nullptr;
        float *dscale = static_cast<float*>(out[0]), *dbias = static_cast<float*>(out[1]);
        const double inverse = 1 / static_cast<double>(s.count());
        if (!s.by_rows) {
            parallel_for(s.c, s.channel_grain(), 1, [&](int64_t lo, int64_t hi) {
                for (int64_t c = lo; c < hi; ++c) {
                    double sum_dy = 0, sum_dyx = 0;
                    for (int64_t n = 0; n < s.n; ++n) {
                        const int64_t at = (n * s.c + c) * s.spatial;
                        MEGJIT_BEST(sum_products_run)(x + at, dy + at, mean[c], s.spatial, &sum_dy,
                                                      &sum_dyx);
                    }
                    const Terms t = terms(var[c], dx ? scale[c] : 1, sum_dy, sum_dyx, inverse);
                    dscale[c] = t.dscale, dbias[c] = static_cast<float>(sum_dy);
                    if (!dx) continue;
                    for (int64_t n = 0; n < s.n; ++n) {
                        const int64_t at = (n * s.c + c) * s.spatial;
                        MEGJIT_BEST(gradient_run)(x + at, dy + at, dx + at, mean[c], t.a, t.b, t.k,
                                                  s.spatial);
                    }
                }
            });
            return;
        }
        const double* total =
            sums.run(workspace, [&](int64_t row, int64_t count, float* first, float* second) {
            MEGJIT_BEST(add_products_rows)(x + row * s.c, dy + row * s.c, mean, count, s.c, first,
                                           second);
        });
        float* const a = reinterpret_cast<float*>(static_cast<char*>(workspace) + sum_bytes);
        float *const b = a + s.c, *const k = b + s.c;
        for (int64_t c = 0; c < s.c; ++c) {
            const Terms t = terms(var[c], dx ? scale[c] : 1, total[c], total[s.c + c], inverse);
            dscale[c] = t.dscale, dbias[c] = static_cast<float>(total[c]);
            a[c] = t.a, b[c] = t.b, k[c] = t.k;
        }
        if (!dx) return;
        parallel_for(s.count(), s.row_grain(), 1, [&](int64_t lo, int64_t hi) {
            MEGJIT_BEST(gradient_rows)(x + lo * s.c, dy + lo * s.c, dx + lo * s.c, mean, a, b, k,
                                       hi - lo, s.c);
        });
    }
    struct Terms {
        float a = 0, b = 0, k = 0, dscale = 0;  // dx = a * (dy - b - (x - mean) * k)
    };
    Terms terms(float var, float scale, double sum_dy, double sum_dyx, double inverse) const {
        const double r = 1 / std::sqrt(static_cast<double>(var) + static_cast<double>(eps));
        return {static_cast<float>(static_cast<double>(scale) * r),
                static_cast<float>(sum_dy * inverse), static_cast<float>(r * r * sum_dyx * inverse),
                static_cast<float>(r * sum_dyx)};
    }
};

Prepared prepare_batch_norm_grad(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (Prepared converted = in_float32_like(x, call, outputs, prepare_batch_norm_grad))
        return converted;
    if (x.numel() == 0) return make_zeros(outputs);
    BatchBackward run{.s = BatchShape(x),
                      .eps = static_cast<float>(call.real("eps")),
                      .writes_dx = call.op.name == "batch_norm_grad"};
    if (!run.s.by_rows) return executable(run);
    run.sums = ColumnSums(run.s.count(), run.s.c);
    run.sum_bytes = run.sums.workspace_bytes();
    return executable(run, run.sum_bytes + static_cast<size_t>(3 * run.s.c) * sizeof(float));
}

// ---- layer_norm: groups are the rows of [rows, c] ----

struct LayerShape {
    int64_t rows = 1, c = 1;
    LayerShape(const Type& x, int64_t axes) {
        for (int axis = 0; axis < x.rank(); ++axis)
            (axis < x.rank() - axes ? rows : c) *= x.shape[axis];
    }
    int64_t grain() const { return std::max<int64_t>(1, kGrain / std::max<int64_t>(c, 1)); }
};

Prepared prepare_layer_norm(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (Prepared converted = in_float32_like({x.dtype, x.shape}, call, outputs, prepare_layer_norm))
        return converted;
    if (x.numel() == 0) return make_zeros(outputs);
    const LayerShape s(x, call.integer("axes"));
    const bool affine = call.flag("affine");
    const double eps = call.real("eps");
    return executable([=](void* const* in, void* const* out, void*) {
        const float *from = static_cast<const float*>(in[0]),
                    *scale = affine ? static_cast<const float*>(in[1]) : nullptr,
                    *bias = affine ? static_cast<const float*>(in[2]) : nullptr;
        float *to = static_cast<float*>(out[0]), *mean = static_cast<float*>(out[1]),
              *rstd = static_cast<float*>(out[2]);
        parallel_for(s.rows, s.grain(), 1, [=](int64_t lo, int64_t hi) {
            for (int64_t row = lo; row < hi; ++row) {
                const float* const here = from + row * s.c;
                const double count = static_cast<double>(s.c);
                mean[row] = static_cast<float>(MEGJIT_BEST(sum_run)(here, s.c) / count);
                rstd[row] = static_cast<float>(
                    1 /
                    std::sqrt(MEGJIT_BEST(sum_squares_run)(here, mean[row], s.c) / count + eps));
                if (affine)
                    MEGJIT_BEST(affine_run)(here, to + row * s.c, mean[row], rstd[row], scale, bias,
                                            s.c);
                else MEGJIT_BEST(normalize_run)(here, to + row * s.c, mean[row], rstd[row], 0, s.c);
            }
        });
    });
}

Prepared prepare_layer_norm_grad(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (Prepared converted =
            in_float32_like({x.dtype, x.shape}, call, outputs, prepare_layer_norm_grad))
        return converted;
    if (x.numel() == 0) return make_zeros(outputs);
    const LayerShape s(x, call.integer("axes"));
    const bool affine = call.flag("affine");
    const ColumnSums sums(s.rows, s.c);
    return executable([=](void* const* in, void* const* out, void* workspace) {
        const float *from = static_cast<const float*>(in[0]),
                    *mean = static_cast<const float*>(in[1]),
                    *rstd = static_cast<const float*>(in[2]),
                    *dy = static_cast<const float*>(in[3]),
                    *scale = affine ? static_cast<const float*>(in[4]) : nullptr;
        float* const dx = static_cast<float*>(out[0]);
        const double inverse = 1 / static_cast<double>(s.c);
        const auto write_rows = [=](int64_t lo, int64_t hi) {
            for (int64_t row = lo; row < hi; ++row) {
                const int64_t at = row * s.c;
                double sum_t = 0, sum_tx = 0;
                if (affine)
                    MEGJIT_BEST(sum_scaled_products_run)(from + at, dy + at, scale, mean[row], s.c,
                                                         &sum_t, &sum_tx);
                else
                    MEGJIT_BEST(sum_products_run)(from + at, dy + at, mean[row], s.c, &sum_t,
                                                  &sum_tx);
                const double r = static_cast<double>(rstd[row]);
                const float b = static_cast<float>(sum_t * inverse),
                            k = static_cast<float>(r * r * sum_tx * inverse);
                if (affine)
                    MEGJIT_BEST(scaled_gradient_run)(from + at, dy + at, scale, dx + at, mean[row],
                                                     rstd[row], b, k, s.c);
                else
                    MEGJIT_BEST(gradient_run)(from + at, dy + at, dx + at, mean[row], rstd[row], b,
                                              k, s.c);
            }
        };
        if (!affine) return parallel_for(s.rows, s.grain(), 1, write_rows);
        // Both read x and dy: a few rows at a time, which stay in the second-level cache.
        const double* total =
            sums.run(workspace, [=](int64_t row, int64_t count, float* first, float* second) {
            write_rows(row, row + count);
            MEGJIT_BEST(add_normalized_rows)(from + row * s.c, dy + row * s.c, mean + row,
                                             rstd + row, count, s.c, first, second);
        });
        float *const dscale = static_cast<float*>(out[1]), *const dbias =
                                                               static_cast<float*>(out[2]);
        for (int64_t c = 0; c < s.c; ++c)
            dbias[c] = static_cast<float>(total[c]), dscale[c] = static_cast<float>(total[s.c + c]);
    }, affine ? sums.workspace_bytes() : 0);
}

// Does the kernel of layer_norm_grad read x and dy once? The kernels that the op expands into read
// them again for the sums of columns, which are other kernels'.
bool gradient_reads_once(const OpCall& call) {
    constexpr int64_t kMostColumns = 4096;  // eight rows of x, dy and dx take 384 KB
    const Type& x = call.inputs[0];
    return x.dtype == runtime::DType::f32 && call.flag("affine") &&
           LayerShape(x, call.integer("axes")).c <= kMostColumns;
}

}  // namespace

void register_norm_kernels() {
    register_kernel("batch_norm", prepare_batch_norm);
    register_kernel("batch_norm_grad", prepare_batch_norm_grad);
    register_kernel("batch_norm_stats", prepare_batch_norm);
    register_kernel("batch_norm_grad_sums", prepare_batch_norm_grad);
    register_kernel("layer_norm", prepare_layer_norm);
    register_kernel("layer_norm_grad", prepare_layer_norm_grad, gradient_reads_once);
}

}  // namespace megjit::cpu
