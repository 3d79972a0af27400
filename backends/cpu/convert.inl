// backends/cpu/convert.inl -- float16 and bfloat16 to and from float. See each_isa.h.

#include "backends/cpu/instructions.inl"

void bfloat_to_floats(const uint16_t* from, float* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Halves halves;
        std::memcpy(&halves, from + i, sizeof halves);
        const Uints bits = __builtin_convertvector(halves, Uints) << 16;
        std::memcpy(to + i, &bits, sizeof bits);
    }
    for (; i < n; ++i) to[i] = runtime::bfloat_to_float(from[i]);
}

void floats_to_bfloat(const float* from, uint16_t* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Uints bits;
        std::memcpy(&bits, from + i, sizeof bits);
        const Uints rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16,
                    nan = (bits >> 16) | 0x40u;
        const Uints chosen = (bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded;
        const Halves halves = __builtin_convertvector(chosen, Halves);
        std::memcpy(to + i, &halves, sizeof halves);
    }
    for (; i < n; ++i) to[i] = runtime::float_to_bfloat(from[i]);
}

void half_to_floats(const uint16_t* from, float* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Halves halves;
        std::memcpy(&halves, from + i, sizeof halves);
        store(to + i, floats_of(halves));
    }
    for (; i < n; ++i) to[i] = runtime::half_to_float(from[i]);
}

void floats_to_half(const float* from, uint16_t* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        const Halves halves = halves_of(load(from + i));
        std::memcpy(to + i, &halves, sizeof halves);
    }
    for (; i < n; ++i) to[i] = runtime::float_to_half(from[i]);
}
