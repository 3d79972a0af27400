// backends/cpu/kernels/softmax.inl -- softmax of rows and of strips of columns. See each_isa.h.

#include "backends/cpu/kernels/ordered_sums.inl"

template <class V>
MEGJIT_INLINE V exp_of(const V& x) {
    return exp_of_negative<V, typename IndexType<V>::Type>(x);
}

void softmax_row(const float* x, float* y, int64_t n, bool log) {
    Floats tops = all(-INFINITY);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) tops = larger(tops, load(x + i));
    float top = tops[0];
    for (int lane = 1; lane < kLanes; ++lane) top = larger(top, tops[lane]);
    for (; i < n; ++i) top = larger(top, x[i]);

    const float total = static_cast<float>(ordered_sums<1>(n, MEGJIT_TERMS(V, at, out) {
        out[0] = exp_of(get<V>(x + at) - top);
        if (!log) put(y + at, out[0]);
    })[0]);
    if (log) {
        const float shift = std::log(total);  // top + shift would be rounded
        for (i = 0; i + kLanes <= n; i += kLanes) store(y + i, load(x + i) - top - shift);
        for (; i < n; ++i) y[i] = x[i] - top - shift;
    } else {
        const float scale = 1 / total;
        for (i = 0; i + kLanes <= n; i += kLanes) store(y + i, load(y + i) * scale);
        for (; i < n; ++i) y[i] *= scale;
    }
}

void softmax_strip(const float* x, float* y, int64_t length, int64_t inner, int64_t width,
                   bool log) {
    float top[kStrip], total[kStrip];
    over_lanes(width, MEGJIT_LANES(V, c) {
        V best = get<V>(x + c), sum{};
        for (int64_t i = 1; i < length; ++i) best = larger(best, get<V>(x + i * inner + c));
        put(top + c, best), put(total + c, sum);
    });
    for (int64_t i = 0; i < length; ++i) {
        const float* from = x + i * inner;
        float* to = y + i * inner;
        over_lanes(width, MEGJIT_LANES(V, c) {
            const V e = exp_of(get<V>(from + c) - get<V>(top + c));
            put<V>(total + c, get<V>(total + c) + e);
            if (!log) put(to + c, e);
        });
    }
    for (int64_t c = 0; c < width; ++c) total[c] = log ? std::log(total[c]) : 1 / total[c];
    for (int64_t i = 0; i < length; ++i) {
        const float* from = x + i * inner;
        float* to = y + i * inner;
        over_lanes(width, MEGJIT_LANES(V, c) {
            put<V>(to + c, log ? get<V>(from + c) - get<V>(top + c) - get<V>(total + c)
                               : get<V>(to + c) * get<V>(total + c));
        });
    }
}
