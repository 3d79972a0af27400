// backends/processes/combine.h -- combines the vectors of several processes, element by element.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/communicator.h"

namespace megjit::processes {

// out[i] = parts[0][i] op parts[1][i] op ..., in this order; narrow floats are combined in float32
// and rounded once, bool is 0 or 1. `out` may be one of the parts.
void combine(std::span<const void* const> parts, void* out, int64_t count, runtime::DType dtype,
             runtime::Combine combine);

}  // namespace megjit::processes
