// runtime/ops/linalg.h -- what kernels of every device say of a matrix without an inverse.
#pragma once

#include <cstdint>

namespace megjit::runtime {

[[noreturn]] void refuse_singular(int64_t matrix, int64_t count);

}  // namespace megjit::runtime
