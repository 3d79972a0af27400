// backends/cpu/instructions_arm.inl -- see instructions.inl. Vectors have 4 lanes.

MEGJIT_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
MEGJIT_INLINE Floats square_root(Floats x) { return vsqrtq_f32(x); }
template <Rounding mode>
MEGJIT_INLINE Floats rounded(Floats x) {
    if constexpr (mode == Rounding::nearest) return vrndnq_f32(x);
    else if constexpr (mode == Rounding::down) return vrndmq_f32(x);
    else if constexpr (mode == Rounding::up) return vrndpq_f32(x);
    else return vrndq_f32(x);
}
// The instruction gives 0 for NaN, and the nearest int32 for what is out of range.
MEGJIT_INLINE Ints truncated(Floats x) {
    const Ints least = Ints{} + INT32_MIN;
    return x < 0x1p31f ? (Ints)vcvtq_s32_f32(x) : least;
}
MEGJIT_INLINE bool any_of(Ints mask) { return vmaxvq_u32((uint32x4_t)mask) != 0; }
template <class V>
MEGJIT_INLINE V load_first(const void* from, int n) {
    V x = {};
    std::memcpy(&x, from, static_cast<size_t>(n) * 4);
    return x;
}
template <class V>
MEGJIT_INLINE void store_first(void* to, V x, int n) {
    std::memcpy(to, &x, static_cast<size_t>(n) * 4);
}
MEGJIT_INLINE Floats floats_of(Halves halves) {
    return vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t)halves));
}
MEGJIT_INLINE Halves halves_of(Floats x) { return (Halves)vreinterpret_u16_f16(vcvt_f16_f32(x)); }
template <int part>
MEGJIT_INLINE Floats floats_of_bytes(Bytes bytes) {
    const int16x8_t half =
        part < 2 ? vmovl_s8(vget_low_s8((int8x16_t)bytes)) : vmovl_high_s8((int8x16_t)bytes);
    return vcvtq_f32_s32(part % 2 ? vmovl_high_s16(half) : vmovl_s16(vget_low_s16(half)));
}
MEGJIT_INLINE Ints pairs_of_bytes(const int8_t* from) { return (Ints)vmovl_s8(vld1_s8(from)); }
MEGJIT_INLINE Ints pair_products(Ints a, Ints b) {
    const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    return (Ints)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
