// backends/cpu/kernels/depthwise_bytes.inl -- a row of bytes convolved with its own kernel. See
// each_isa.h.

#include "backends/cpu/instructions.inl"

// Writes sum * scale + shift for each place. Sums are whole numbers below 2^24, so that floats add
// them exactly.
template <class T>
void convolve_row(const DepthwiseRow& s, const T* x, const int8_t* w, float scale, float shift,
                  float* y) {
    float row[DepthwiseRow::kMostWidth + MEGJIT_LANE_COUNT];
    for (int64_t i = 0; i < s.width; ++i) row[i] = static_cast<float>(x[i]);
    std::fill_n(row + s.width, MEGJIT_LANE_COUNT, 0.0f);
    for (int64_t t = 0; t < s.places; t += kLanes) {
        Floats sum{};
        for (int64_t tap = 0; tap < s.taps; ++tap) {
            Floats terms;
            std::memcpy(&terms, row + t + tap * s.dilation, sizeof terms);
            sum = multiply_add(terms, all(static_cast<float>(w[tap])), sum);
        }
        const Floats value = sum * all(scale) + all(shift);
        const auto count = static_cast<size_t>(std::min<int64_t>(kLanes, s.places - t));
        std::memcpy(y + t, &value, count * sizeof(float));
    }
}
