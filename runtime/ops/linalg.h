// runtime/ops/linalg.h -- what ops of matrices share, and the errors of kernels of every device for
// matrices that they cannot take.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/core/tensor.h"

namespace megjit::runtime {

Shape with_last(const Shape& shape, int64_t rows, int64_t columns);  // resizes matrices
TensorRef transposed(const TensorRef& x);  // transposes each matrix

[[noreturn]] void refuse_singular(std::string_view op, int64_t matrix, int64_t count);
[[noreturn]] void refuse_indefinite(int64_t matrix, int64_t count);  // the error of cholesky
[[noreturn]] void refuse_pivot(int32_t pivot, int64_t rows);  // the error of exchanged_rows

}  // namespace megjit::runtime
