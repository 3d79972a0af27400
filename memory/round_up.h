// memory/round_up.h -- the multiple of an alignment at or above a number of bytes.
#pragma once

#include <cstddef>

namespace megjit::memory {

// `align` is a power of two.
inline size_t round_up(size_t x, size_t align) { return (x + align - 1) & ~(align - 1); }

}  // namespace megjit::memory
