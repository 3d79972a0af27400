// backends/cpu/products.h -- products of float32 matrices for kernels that have them inside: by
// oneDNN (onednn/products.cpp), or by loops of ours where it was not built in (contractions/).
#pragma once

#include <cstdint>
#include <functional>

#include "backends/cpu/executable.h"
#include "runtime/core/op.h"

namespace megjit::cpu {

// Element (r, c) lies at r * row_step + c * column_step; one of the two steps is 1.
struct Matrix {
    int64_t rows = 0, columns = 0;
    int64_t row_step = 0, column_step = 1;
};
inline Matrix dense_matrix(int64_t rows, int64_t columns) { return {rows, columns, columns}; }

// Computes y = x w. In: x, w. The call is named in errors.
Prepared prepare_product(const runtime::OpCall& call, const Matrix& x, const Matrix& w,
                         const Matrix& y);

// A right factor that many products read.
struct PackedFactor {
    Prepared pack;  // from w to `bytes` bytes
    size_t bytes = 0;
    // Computes y = x w for dense x and y. In: x of so many rows, what `pack` wrote.
    std::function<Prepared(int64_t rows)> product;
};
// `rows`: those that most products have. `product` is called while the call lives.
PackedFactor pack_factor(const runtime::OpCall& call, const Matrix& w, int64_t rows);

// Do products on this CPU compute in that floating dtype? Others are converted to float32.
bool computes_natively(runtime::DType dtype);

}  // namespace megjit::cpu
