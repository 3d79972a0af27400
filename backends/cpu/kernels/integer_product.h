// backends/cpu/kernels/integer_product.h -- products of integer matrices, whose sums wrap in the
// dtype of the result.
#pragma once

#include "backends/cpu/executable.h"
#include "runtime/ops/matmul.h"

namespace megjit::cpu {

// Prepares a product of matrices of type `from` whose results have that type or int32. No matrix is
// empty.
Prepared prepare_integer_product(const runtime::MatmulProblem& problem, runtime::DType from,
                                 runtime::DType to);

// Does prepare_integer_product take less time than any library, which would pack the matrix first?
bool is_product_of_few_bytes(const runtime::MatmulProblem& problem, runtime::DType from,
                             runtime::DType to);

}  // namespace megjit::cpu
