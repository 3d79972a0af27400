// backends/cpu/kernels/filter_sums.inl -- joins partial sums of gradients of weights. Included by
// each_isa.h, behind conv_panels.inl.

template <class V>
MEGJIT_INLINE V joined(const PartialSums& parts, const float* from) {
    V sum = get<V>(from);
    for (int64_t part = 1; part < parts.count; ++part) sum += get<V>(from + part * parts.step);
    return sum;
}

// Joins a panel of sums [taps * panel][lanes] into w [lanes][channels][taps].
void join_turned(const PartialSums& parts, const float* sums, int64_t sums_step, int64_t taps,
                 int64_t panel, int64_t channels, int64_t lanes, float* w, int64_t w_step) {
    const int64_t numbers = channels * taps, whole = numbers / 8 * 8, whole_lanes = lanes / 8 * 8;
    const auto row = [&](int64_t i) { return sums + (i % taps * panel + i / taps) * sums_step; };
    for (int64_t lane = 0; lane < whole_lanes; lane += 8)
        for (int64_t i = 0; i < whole; i += 8) {
            using Float8 = float __attribute__((vector_size(32)));
            Lane8 block[8];
            for (int r = 0; r < 8; ++r) block[r] = (Lane8)joined<Float8>(parts, row(i + r) + lane);
            transpose_lanes(block);
            for (int r = 0; r < 8; ++r) put(w + (lane + r) * w_step + i, block[r]);
        }
    for (int64_t lane = 0; lane < lanes; ++lane)
        for (int64_t i = lane < whole_lanes ? whole : 0; i < numbers; ++i)
            w[lane * w_step + i] = joined<float>(parts, row(i) + lane);
}
