// backends/cpu/kernels/matrix_product.h -- products of float32 and float64 matrices by loops of
// ours (contraction.h): of float64, which oneDNN does not compute, and of a build without oneDNN.
#pragma once

#include <vector>

#include "backends/cpu/executable.h"
#include "backends/cpu/products.h"
#include "runtime/ops/matmul.h"

namespace megjit::cpu {

// y = x w for each batch element, whose factors begin at x + x_at[i] and w + w_at[i].
struct MatrixProducts {
    Matrix x, w, y;
    std::vector<int64_t> x_at = {0}, w_at = {0};
};

Prepared prepare_matrix_products(MatrixProducts products, runtime::DType dtype);

// No matrix is empty; the problem has no steps.
Prepared prepare_matrix_products(const runtime::MatmulProblem& problem, runtime::DType dtype);

}  // namespace megjit::cpu
