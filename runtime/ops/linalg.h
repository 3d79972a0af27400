// runtime/ops/linalg.h -- what ops of matrices share, and what kernels of every device say of
// matrices that they cannot take.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/core/tensor.h"

namespace megjit::runtime {

Shape with_last(const Shape& shape, int64_t rows, int64_t columns);  // other matrices
TensorRef transposed(const TensorRef& x);  // each matrix

[[noreturn]] void refuse_singular(std::string_view op, int64_t matrix, int64_t count);
[[noreturn]] void refuse_indefinite(int64_t matrix, int64_t count);  // of cholesky

}  // namespace megjit::runtime
