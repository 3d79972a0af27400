// backends/cpu/instructions.inl -- what the compiler's vector extension has no operator for, by
// instructions of each architecture. Included inside the namespace of a level, after vectors.inl,
// instructions.h and <cstring>. All functions give the same bits on both architectures:
//
//   multiply_add(a, b, c)   a * b + c, rounded once
//   square_root(x)
//   rounded<Rounding>(x)    to an integer, as floats
//   truncated(x)            to int32, towards zero; NaN and what int32 cannot hold give the least
//   any_of(mask)            is any lane not 0?
//   load_first<V>(from, n)  the first n lanes (n <= lanes), and zeros; V: lanes of 4 bytes
//   store_first(to, x, n)   the first n lanes
//   floats_of(halves), halves_of(floats)   float16; to the nearest, ties to even
//   floats_of_bytes<part>(bytes)   the part-th lanes of 16 int8
//   pairs_of_bytes(from)    twice as many int8 as there are lanes, as int16
//   pair_products(a, b)     lanes are two int16 each: the sum of both products, modulo 2^32
//   add_quads(sums, a, b)   lanes are four uint8 each in a, four int8 in b: sums and their four
//                           products, modulo 2^32; only for 16 lanes

enum class Rounding : int { nearest, down, up, to_zero };  // nearest: ties to even

#if defined(__x86_64__)
#include "backends/cpu/instructions_x86.inl"
#elif defined(__aarch64__)
#include "backends/cpu/instructions_arm.inl"
#endif
