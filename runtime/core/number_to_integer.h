// runtime/core/number_to_integer.h -- the one conversion of a number to an integer element.
#pragma once

#include <cstdint>
#include <limits>

namespace megjit::runtime {

// Truncates. NaN, and numbers that T cannot hold, give T's least value, as `cast` of kernels does;
// dtypes narrower than int32 take the low bits.
template <class T = int32_t>
T number_to_integer(double value) {
    constexpr double kLeast = static_cast<double>(std::numeric_limits<T>::min());
    // As doubles, -2^63 and -2^63 - 1 are the same.
    const bool fits = (sizeof(T) < 8 ? value > kLeast - 1 : value >= kLeast) && value < -kLeast;
    return fits ? static_cast<T>(value) : std::numeric_limits<T>::min();
}

}  // namespace megjit::runtime
