// runtime/host/half.h -- float16 and bfloat16 to and from float, one value at a time; round to
// nearest even, NaN stays NaN. The vectorised forms of the kernels must agree with these.
#pragma once

#include <bit>
#include <cstdint>

namespace megjit::runtime {

inline float half_to_float(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1Fu, mantissa = h & 0x3FFu;
    if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
    if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // denormal or zero, exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline uint16_t float_to_half(float f) {
    const uint32_t bits = std::bit_cast<uint32_t>(f);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u)
        return static_cast<uint16_t>(sign | 0x7C00u);  // rounds to infinity
    if (magnitude < 0x38800000u) {  // denormal: units of 2^-24
        const float units = std::bit_cast<float>(magnitude) * 0x1p24f;
        const float rounded = units + 0x1p23f;  // to an integer, half to even
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) & 0xFFFFu));
    }
    const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float bfloat_to_float(uint16_t h) {
    return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

inline uint16_t float_to_bfloat(float f) {
    const uint32_t bits = std::bit_cast<uint32_t>(f);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace megjit::runtime
