#include "backends/cpu/kernels/matrix_product.h"

#include <cstring>

#include "backends/cpu/kernels/contraction.h"

namespace megjit::cpu {
namespace {

using runtime::DType;
using runtime::MatmulProblem;

// Copies terms of a tile's columns; see ContractionTile::add.
template <class T>
void copy_block(const Matrix& w, const T* from, const ContractionTile<T>& tile, int64_t term,
                int64_t count, T* to) {
    from += term * w.row_step + tile.column * w.column_step;
    for (int64_t t = 0; t < count; ++t, from += w.row_step, to += ContractionTile<T>::kColumns)
        if (w.column_step == 1)
            std::memcpy(to, from, static_cast<size_t>(tile.columns) * sizeof(T));
        else
            for (int64_t c = 0; c < tile.columns; ++c) to[c] = from[c * w.column_step];
}

template <class T>
void multiply(const MatrixProducts& p, const T* x_first, const T* w_first, T* to) {
    each_tile<T>(std::ssize(p.x_at), p.y.rows, p.y.columns, p.w.rows,
                 [&](int64_t batch, ContractionTile<T>& tile) {
        const auto i = static_cast<size_t>(batch);
        const T* const right = w_first + p.w_at[i];
        tile.add(LeftRows<T>{x_first + p.x_at[i], p.x.row_step, p.x.column_step}, p.w.rows,
                 [&](int64_t term, int64_t count, T* block) {
            copy_block(p.w, right, tile, term, count, block);
        });
        tile.store(to + batch * p.y.rows * p.y.columns, p.y.row_step);
    });
}

template <class T>
Prepared prepared(MatrixProducts products) {
    return executable([products = std::move(products)](void* const* in, void* const* out, void*) {
        multiply(products, static_cast<const T*>(in[0]), static_cast<const T*>(in[1]),
                 static_cast<T*>(out[0]));
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

}  // namespace

Prepared prepare_matrix_products(MatrixProducts products, DType dtype) {
    return dtype == DType::f64 ? prepared<double>(std::move(products))
                               : prepared<float>(std::move(products));
}

Prepared prepare_matrix_products(const MatmulProblem& p, DType dtype) {
    const auto matrix = [](int64_t rows, int64_t columns, bool transposed) {
        return transposed ? Matrix{rows, columns, 1, rows} : dense_matrix(rows, columns);
    };
    return prepare_matrix_products(
        {matrix(p.m, p.k, p.ta), matrix(p.k, p.n, p.tb), dense_matrix(p.m, p.n),
         places_of(p.batch, p.a_batch, p.m * p.k), places_of(p.batch, p.b_batch, p.k * p.n)},
        dtype);
}

}  // namespace megjit::cpu
