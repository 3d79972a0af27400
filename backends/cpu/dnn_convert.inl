// backends/cpu/dnn_convert.inl -- bfloat16 to and from float. See dnn_each_isa.h.

using Halves = uint16_t __attribute__((vector_size(2 * MEGJIT_LANE_COUNT)));
using Words = uint32_t __attribute__((vector_size(4 * MEGJIT_LANE_COUNT)));

void bfloat_to_floats(const uint16_t* from, float* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Halves halves;
        std::memcpy(&halves, from + i, sizeof halves);
        const Words bits = __builtin_convertvector(halves, Words) << 16;
        std::memcpy(to + i, &bits, sizeof bits);
    }
    for (; i < n; ++i) to[i] = runtime::bfloat_to_float(from[i]);
}

void floats_to_bfloat(const float* from, uint16_t* to, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Words bits;
        std::memcpy(&bits, from + i, sizeof bits);
        const Words rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16, nan = (bits >> 16) | 0x40u;
        const Words chosen = (bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded;
        const Halves halves = __builtin_convertvector(chosen, Halves);
        std::memcpy(to + i, &halves, sizeof halves);
    }
    for (; i < n; ++i) to[i] = runtime::float_to_bfloat(from[i]);
}
