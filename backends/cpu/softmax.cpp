// backends/cpu/softmax.cpp -- softmax and log_softmax along any axis, in float32.
// x is [outer, length, inner]: rows when inner is 1, else strips of neighbouring columns side by side.
#include <algorithm>
#include <cmath>

#include "backends/cpu/dnn.h"
#include "backends/cpu/dnn_simd.h"
#include "runtime/parallel.h"

namespace megjit::cpu {
namespace {

using namespace simd;
using runtime::OpCall;
using runtime::Type;

template <class V>
MEGJIT_INLINE V exp_of(const V& x) {
    return exp_of_negative<V, typename IndexType<V>::Type>(x);
}

MEGJIT_CLONES void softmax_row(const float* x, float* y, int64_t n, bool log) {
    Floats tops = all(-INFINITY);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) tops = larger(tops, load(x + i));
    float top = tops[0];
    for (int lane = 1; lane < kLanes; ++lane) top = larger(top, tops[lane]);
    for (; i < n; ++i) top = larger(top, x[i]);

    Floats sums{};
    float tail = 0;
    for (i = 0; i + kLanes <= n; i += kLanes) {
        const Floats e = exp_of(load(x + i) - top);
        sums += e;
        if (!log) store(y + i, e);
    }
    for (; i < n; ++i) {
        const float e = exp_of(x[i] - top);
        tail += e;
        if (!log) y[i] = e;
    }
    const float total = sum(sums) + tail;
    if (log) {
        const float shift = std::log(total);  // twice subtracted: top + shift would round
        for (i = 0; i + kLanes <= n; i += kLanes) store(y + i, load(x + i) - top - shift);
        for (; i < n; ++i) y[i] = x[i] - top - shift;
    } else {
        const float scale = 1 / total;
        for (i = 0; i + kLanes <= n; i += kLanes) store(y + i, load(y + i) * scale);
        for (; i < n; ++i) y[i] *= scale;
    }
}

// `width` up to kStrip neighbouring columns of [length, inner].
constexpr int64_t kStrip = 64;
MEGJIT_CLONES void softmax_strip(const float* x, float* y, int64_t length, int64_t inner, int64_t width, bool log) {
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
            put<V>(to + c, log ? get<V>(from + c) - get<V>(top + c) - get<V>(total + c) : get<V>(to + c) * get<V>(total + c));
        });
    }
}

Prepared prepare_softmax(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (Prepared converted = in_float32_like({x.dtype, x.shape}, call, outputs, prepare_softmax)) return converted;
    if (x.numel() == 0) return make_zeros(outputs);
    const int axis = runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; ++i) outer *= x.shape[i];
    for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape[i];
    const int64_t length = x.shape[axis];
    const bool log = call.op.name == "log_softmax";
    const int64_t strips = (inner + kStrip - 1) / kStrip, grain = std::max<int64_t>(1, 8192 / (length * std::min(inner, kStrip)));
    return make_kernel([=](void* const* in, void* const* out, void*) {
        const float* from = static_cast<const float*>(in[0]);
        float* to = static_cast<float*>(out[0]);
        runtime::parallel_for(outer * strips, grain, 1, [=](int64_t lo, int64_t hi) {
            for (int64_t part = lo; part < hi; ++part) {
                const int64_t strip = part % strips * kStrip, at = part / strips * length * inner + strip;
                if (inner == 1) softmax_row(from + at, to + at, length, log);
                else softmax_strip(from + at, to + at, length, inner, std::min(kStrip, inner - strip), log);
            }
        });
    });
}

}  // namespace

void register_softmax_kernels() {
    register_kernel("softmax", prepare_softmax);
    register_kernel("log_softmax", prepare_softmax);
}

}  // namespace megjit::cpu
