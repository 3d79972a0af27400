// backends/cpu/vectors.inl -- vectors of MEGJIT_LANE_COUNT numbers in the compiler's vector
// extension, which has all of C's operators. Included inside the namespace of a level.

using Floats = float __attribute__((vector_size(4 * MEGJIT_LANE_COUNT)));
using Doubles = double __attribute__((vector_size(4 * MEGJIT_LANE_COUNT)));
using Ints = int32_t __attribute__((vector_size(4 * MEGJIT_LANE_COUNT)));
using Uints = uint32_t __attribute__((vector_size(4 * MEGJIT_LANE_COUNT)));
using Bytes = int8_t __attribute__((vector_size(16)));  // 16 at every level
using Naturals = uint8_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(2 * MEGJIT_LANE_COUNT)));  // bits of float16
