// runtime/core/number_to_integer.h -- the one conversion of a number to an integer element.
#pragma once

#include <cstdint>
#include <limits>

namespace megjit::runtime {

// Truncates. NaN, and what int32 cannot hold, give INT32_MIN, as f32_to_i32 of kernels does;
// narrower dtypes take the low bits.
inline int32_t number_to_integer(double value) {
    constexpr double kLimit = 2147483648.0;  // 2^31
    return value > -kLimit - 1 && value < kLimit ? static_cast<int32_t>(value)
                                                 : std::numeric_limits<int32_t>::min();
}

}  // namespace megjit::runtime
