// backends/cpu/kernels/pivots.h -- the choice of pivots in elimination with exchanged rows.
#pragma once

#include <cmath>
#include <cstdint>

namespace megjit::cpu {

// Returns the row of a (n x n), from row c on, whose element in column c is the largest; the first
// of equal ones.
inline int64_t pivot_of(const double* a, int64_t n, int64_t c) {
    int64_t pivot = c;
    for (int64_t r = c + 1; r < n; ++r)
        if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
    return pivot;
}

}  // namespace megjit::cpu
