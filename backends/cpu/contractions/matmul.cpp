// backends/cpu/contractions/matmul.cpp -- matrix products without oneDNN, and products.h.
#include <cstring>
#include <vector>

#include "backends/cpu/convert.h"
#include "backends/cpu/epilogue.h"
#include "backends/cpu/kernels/contraction.h"
#include "backends/cpu/kernels/integer_product.h"
#include "backends/cpu/products.h"
#include "runtime/ops/matmul.h"

namespace megjit::cpu {
namespace {

using runtime::MatmulProblem;
using runtime::OpCall;
using runtime::Type;

// Copies terms of a tile's columns; see ContractionTile::add.
void copy_block(const Matrix& w, const float* from, const ContractionTile<float>& tile,
                int64_t term, int64_t count, float* to) {
    from += term * w.row_step + tile.column * w.column_step;
    for (int64_t t = 0; t < count; ++t, from += w.row_step, to += ContractionTile<float>::kColumns)
        if (w.column_step == 1)
            std::memcpy(to, from, static_cast<size_t>(tile.columns) * sizeof(float));
        else
            for (int64_t c = 0; c < tile.columns; ++c) to[c] = from[c * w.column_step];
}

// y = x w for each batch element, whose factors begin at x + x_at[i] and w + w_at[i].
struct Products {
    Matrix x, w, y;
    std::vector<int64_t> x_at = {0}, w_at = {0};

    void run(const float* x_first, const float* w_first, float* to) const {
        each_tile<float>(std::ssize(x_at), y.rows, y.columns, w.rows,
                         [&](int64_t batch, ContractionTile<float>& tile) {
            const auto i = static_cast<size_t>(batch);
            const float* const right = w_first + w_at[i];
            tile.add({x_first + x_at[i], x.row_step, x.column_step}, w.rows,
                     [&](int64_t term, int64_t count, float* block) {
                copy_block(w, right, tile, term, count, block);
            });
            tile.store(to + batch * y.rows * y.columns, y.row_step);
        });
    }
};

Prepared prepared(Products products) {
    return executable([products = std::move(products)](void* const* in, void* const* out, void*) {
        products.run(static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                     static_cast<float*>(out[0]));
    });
}

// Where the factors of each batch element begin; axes of extent 1 are broadcast.
std::vector<int64_t> places_of(const std::vector<int64_t>& batch, const std::vector<int64_t>& own,
                               int64_t size) {
    std::vector<int64_t> places = {0};
    int64_t step = size;
    for (size_t axis = batch.size(); axis-- > 0;) {
        std::vector<int64_t> more;
        for (int64_t i = 0; i < batch[axis]; ++i)
            for (const int64_t place : places)
                more.push_back(place + (own[axis] > 1 ? i * step : 0));
        step *= own[axis];
        places = std::move(more);
    }
    return places;
}

Prepared prepare_matmul(const OpCall& call, std::span<const Type> outputs) {
    const MatmulProblem p = runtime::matmul_problem(call, outputs);
    if (outputs[0].numel() == 0 || p.k == 0) return make_zeros(outputs);
    if (!is_floating(call.inputs[0].dtype))
        return prepare_integer_product(p, call.inputs[0].dtype, outputs[0].dtype);
    if (Prepared converted = in_float32(call, outputs, prepare_matmul)) return converted;
    const auto matrix = [](int64_t rows, int64_t columns, bool transposed) {
        return transposed ? Matrix{rows, columns, 1, rows} : dense_matrix(rows, columns);
    };
    return prepared({matrix(p.m, p.k, p.ta), matrix(p.k, p.n, p.tb), dense_matrix(p.m, p.n),
                     places_of(p.batch, p.a_batch, p.m * p.k),
                     places_of(p.batch, p.b_batch, p.k * p.n)});
}

Prepared prepare_matmul_epilogue(const OpCall& call, std::span<const Type> outputs) {
    if (Prepared converted = in_float32(call, outputs, prepare_matmul_epilogue)) return converted;
    const MatmulProblem p = runtime::matmul_problem(call, outputs);
    return steps_after(prepare_matmul(call, outputs), p.steps,
                       {p.n ? outputs[0].numel() / p.n : 0, p.n, 1, p.n});
}

}  // namespace

Prepared prepare_product(const OpCall&, const Matrix& x, const Matrix& w, const Matrix& y) {
    return prepared({x, w, y});
}

PackedFactor pack_factor(const OpCall&, const Matrix& w, int64_t) {
    const auto copy = [w](void* const* in, void* const* out, void*) {
        const auto* from = static_cast<const float*>(in[0]);
        auto* to = static_cast<float*>(out[0]);
        for (int64_t r = 0; r < w.rows; ++r)
            for (int64_t c = 0; c < w.columns; ++c)
                *to++ = from[r * w.row_step + c * w.column_step];
    };
    const auto product = [w](int64_t rows) {
        return prepared({dense_matrix(rows, w.rows), dense_matrix(w.rows, w.columns),
                         dense_matrix(rows, w.columns)});
    };
    return {executable(copy), static_cast<size_t>(w.rows * w.columns) * sizeof(float), product};
}

bool computes_natively(runtime::DType dtype) { return dtype == runtime::DType::f32; }

void register_matmul_kernels() {
    register_kernel("matmul", prepare_matmul);
    register_kernel("matmul_epilogue", prepare_matmul_epilogue);
}

}  // namespace megjit::cpu
