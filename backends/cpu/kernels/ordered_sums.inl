// backends/cpu/kernels/ordered_sums.inl -- sums of float32 in the order of codegen/row_plan.h, for
// the kernels of each_isa.h, which include this file after <algorithm>, <array> and
// codegen/row_plan.h.

// Computes some sums over 0..n-1, in the order of codegen/row_plan.h: the same at every width of
// vectors. `terms(V{}, i, out)` puts the terms at i, or at the kLanes indices from i on, into
// out[0..sums-1].
template <size_t sums, class Terms>
MEGJIT_INLINE std::array<double, sums> ordered_sums(int64_t n, const Terms& terms) {
    constexpr int64_t lanes = codegen::kRowLanes, group = lanes * codegen::kChain;
    double totals[sums][lanes] = {};
    for (int64_t first = 0; first < n; first += group) {
        const int64_t end = std::min(n, first + group), whole = end - (end - first) % lanes;
        Floats vectors[sums][lanes / kLanes] = {};
        for (int64_t i = first; i < whole; i += lanes)
            for (int64_t v = 0; v < lanes / kLanes; ++v) {
                Floats out[sums];
                terms(Floats{}, i + v * kLanes, out);
                for (size_t s = 0; s < sums; ++s) vectors[s][v] += out[s];
            }
        float chains[sums][lanes];
        std::memcpy(chains, vectors, sizeof chains);
        for (int64_t i = whole; i < end; ++i) {
            float out[sums];
            terms(float{}, i, out);
            for (size_t s = 0; s < sums; ++s) chains[s][i - whole] += out[s];
        }
        for (size_t s = 0; s < sums; ++s)
            for (int64_t lane = 0; lane < lanes; ++lane)
                totals[s][lane] += static_cast<double>(chains[s][lane]);
    }
    std::array<double, sums> result;
    for (size_t s = 0; s < sums; ++s) result[s] = joined_by_halves<lanes / 2>(totals[s]);
    return result;
}
