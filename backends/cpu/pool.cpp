// backends/cpu/pool.cpp -- max and average pooling and their gradients, in float32, both layouts.
// Given and adaptive windows are one thing here: per axis a list of half-open input ranges, cut at the
// borders. Gradients of max pooling look for the largest element again, so that nothing is kept for them.
//
//   row_major      a window row by row: first over rows for whole lines of x, then along the line
//   channels_last  one window after the other, for sixteen channels at a time
#include <algorithm>
#include <array>
#include <vector>

#include "backends/cpu/dnn.h"
#include "backends/cpu/dnn_simd.h"
#include "runtime/ops/window.h"
#include "runtime/parallel.h"

namespace megjit::cpu {
namespace {

using namespace simd;
using runtime::Layout;
using runtime::OpCall;
using runtime::parallel_for;
using runtime::Shape;
using runtime::Type;

struct Ranges {
    std::vector<int32_t> begin = {}, end = {};
    int64_t size() const { return static_cast<int64_t>(begin.size()); }
};

struct Pooling {
    int64_t n = 0, c = 0;
    int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};  // depth, height, width
    std::array<Ranges, 3> ranges = {};
    float window_size = 0;  // elements of a window with its padding; 0: those inside only

    int64_t in_size() const { return in[0] * in[1] * in[2]; }
    int64_t out_size() const { return out[0] * out[1] * out[2]; }
    float weight(int64_t elements) const { return 1 / (window_size > 0 ? window_size : static_cast<float>(elements)); }
};

// One place of the window along depth and height, as the first pass sees it.
struct Lines {
    int64_t d0 = 0, d1 = 0, h0 = 0, h1 = 0, count = 0;
    Lines(const Pooling& p, int64_t row) {
        const int64_t d = row / p.out[1], h = row % p.out[1];
        d0 = p.ranges[0].begin[d], d1 = p.ranges[0].end[d], h0 = p.ranges[1].begin[h], h1 = p.ranges[1].end[h];
        count = (d1 - d0) * (h1 - h0);
    }
};

// ---- row_major: one plane [depth, height, width]; `line` holds `width` floats, `rows` as many ints ----

MEGJIT_CLONES void max_plane(const Pooling& p, const float* x, float* y, float* line) {
    const int64_t width = p.in[2], rows = p.out[0] * p.out[1];
    for (int64_t row = 0; row < rows; ++row, y += p.out[2]) {
        const Lines l(p, row);
        over_lanes(width, MEGJIT_LANES(V, w) {
            V best = get<V>(x + (l.d0 * p.in[1] + l.h0) * width + w);
            for (int64_t d = l.d0; d < l.d1; ++d)
                for (int64_t h = l.h0; h < l.h1; ++h) best = larger(best, get<V>(x + (d * p.in[1] + h) * width + w));
            put(line + w, best);
        });
        for (int64_t o = 0; o < p.out[2]; ++o) {
            float best = line[p.ranges[2].begin[o]];
            for (int64_t w = p.ranges[2].begin[o] + 1; w < p.ranges[2].end[o]; ++w) best = larger(best, line[w]);
            y[o] = best;
        }
    }
}

MEGJIT_CLONES void mean_plane(const Pooling& p, const float* x, float* y, float* line) {
    const int64_t width = p.in[2], rows = p.out[0] * p.out[1];
    for (int64_t row = 0; row < rows; ++row, y += p.out[2]) {
        const Lines l(p, row);
        over_lanes(width, MEGJIT_LANES(V, w) {
            V sum{};
            for (int64_t d = l.d0; d < l.d1; ++d)
                for (int64_t h = l.h0; h < l.h1; ++h) sum += get<V>(x + (d * p.in[1] + h) * width + w);
            put(line + w, sum);
        });
        for (int64_t o = 0; o < p.out[2]; ++o) {
            const int64_t begin = p.ranges[2].begin[o], end = p.ranges[2].end[o];
            float sum = 0;
            for (int64_t w = begin; w < end; ++w) sum += line[w];
            y[o] = sum * p.weight(l.count * (end - begin));
        }
    }
}

MEGJIT_CLONES void mean_grad_plane(const Pooling& p, const float* dy, float* dx, float* line) {
    const int64_t width = p.in[2], rows = p.out[0] * p.out[1];
    std::memset(dx, 0, static_cast<size_t>(p.in_size()) * sizeof(float));
    for (int64_t row = 0; row < rows; ++row, dy += p.out[2]) {
        const Lines l(p, row);
        std::memset(line, 0, static_cast<size_t>(width) * sizeof(float));
        for (int64_t o = 0; o < p.out[2]; ++o) {
            const int64_t begin = p.ranges[2].begin[o], end = p.ranges[2].end[o];
            const float share = dy[o] * p.weight(l.count * (end - begin));
            for (int64_t w = begin; w < end; ++w) line[w] += share;
        }
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h) {
                float* const to = dx + (d * p.in[1] + h) * width;
                over_lanes(width, MEGJIT_LANES(V, w) { put<V>(to + w, get<V>(to + w) + get<V>(line + w)); });
            }
    }
}

// For each window the position of its first largest element in the plane: lines[r][w] first, where the
// row r counts as the tie-breaker, then along the line.
MEGJIT_CLONES void positions_of_row(const Pooling& p, const Lines& l, const float* x, float* line, int32_t* rows, int32_t* positions) {
    const int64_t width = p.in[2];
    over_lanes(width, MEGJIT_LANES(V, w) {
        using I = typename IndexType<V>::Type;
        const int32_t first = static_cast<int32_t>(l.d0 * p.in[1] + l.h0);
        V best = get<V>(x + first * width + w);
        I at = I{} + first;
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h) {
                const V value = get<V>(x + (d * p.in[1] + h) * width + w);
                const auto wins = beats(value, best);
                best = wins ? value : best;
                at = wins ? I{} + static_cast<int32_t>(d * p.in[1] + h) : at;
            }
        put(line + w, best);
        std::memcpy(rows + w, &at, sizeof at);
    });
    for (int64_t o = 0; o < p.out[2]; ++o) {
        int64_t at = p.ranges[2].begin[o];
        for (int64_t w = at + 1; w < p.ranges[2].end[o]; ++w) {
            const bool equal = line[w] == line[at] || (line[w] != line[w] && line[at] != line[at]);
            if (equal ? rows[w] < rows[at] : beats(line[w], line[at])) at = w;
        }
        positions[o] = static_cast<int32_t>(rows[at] * width + at);
    }
}

// ---- channels_last: one sample [spatial..., c], channels [first, last) ----

template <class Window>
void each_window(const Pooling& p, int64_t from, int64_t to, const Window& window) {  // rows of windows
    for (int64_t row = from; row < to; ++row) {
        const Lines l(p, row);
        for (int64_t o = 0; o < p.out[2]; ++o) window(l, p.ranges[2].begin[o], p.ranges[2].end[o], row * p.out[2] + o);
    }
}

MEGJIT_CLONES void max_window(const Pooling& p, const Lines& l, int64_t w0, int64_t w1, const float* x, float* y) {
    over_lanes(p.c, MEGJIT_LANES(V, c) {
        V best = get<V>(x + ((l.d0 * p.in[1] + l.h0) * p.in[2] + w0) * p.c + c);
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h)
                for (int64_t w = w0; w < w1; ++w) best = larger(best, get<V>(x + ((d * p.in[1] + h) * p.in[2] + w) * p.c + c));
        put(y + c, best);
    });
}

MEGJIT_CLONES void mean_window(const Pooling& p, const Lines& l, int64_t w0, int64_t w1, const float* x, float* y) {
    const float weight = p.weight(l.count * (w1 - w0));
    over_lanes(p.c, MEGJIT_LANES(V, c) {
        V total{};
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h) {
                V line{};
                for (int64_t w = w0; w < w1; ++w) line += get<V>(x + ((d * p.in[1] + h) * p.in[2] + w) * p.c + c);
                total += line;
            }
        put<V>(y + c, total * weight);
    });
}

MEGJIT_CLONES void mean_grad_window(const Pooling& p, const Lines& l, int64_t w0, int64_t w1, const float* dy, float* dx, int64_t channels) {
    const float weight = p.weight(l.count * (w1 - w0));
    for (int64_t d = l.d0; d < l.d1; ++d)
        for (int64_t h = l.h0; h < l.h1; ++h)
            for (int64_t w = w0; w < w1; ++w) {
                float* const to = dx + ((d * p.in[1] + h) * p.in[2] + w) * p.c;
                over_lanes(channels, MEGJIT_LANES(V, c) { put<V>(to + c, get<V>(to + c) + get<V>(dy + c) * weight); });
            }
}

MEGJIT_CLONES void positions_of_window(const Pooling& p, const Lines& l, int64_t w0, int64_t w1, const float* x, int64_t channels,
                                       int32_t* positions) {
    over_lanes(channels, MEGJIT_LANES(V, c) {
        using I = typename IndexType<V>::Type;
        const auto first = static_cast<int32_t>((l.d0 * p.in[1] + l.h0) * p.in[2] + w0);
        V best = get<V>(x + first * p.c + c);
        I at = I{} + first;
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h)
                for (int64_t w = w0; w < w1; ++w) {
                    const auto here = static_cast<int32_t>((d * p.in[1] + h) * p.in[2] + w);
                    const V value = get<V>(x + here * p.c + c);
                    const auto wins = beats(value, best);
                    best = wins ? value : best;
                    at = wins ? I{} + here : at;
                }
        std::memcpy(positions + c, &at, sizeof at);
    });
}

// ---- runs over the whole tensor ----

constexpr int64_t kGrain = 1 << 14;
constexpr int64_t kChannels = 64;  // of one task in channels_last gradients

// A float and an int32 per input column, and an int32 per window of a row; each task of a parallel run has its own.
size_t line_bytes(const Pooling& p) { return (static_cast<size_t>(2 * p.in[2] + p.out[2]) * 4 + 63) / 64 * 64; }

struct Task {
    float* line = nullptr;
    int32_t *rows = nullptr, *positions = nullptr;
};

// Splits planes into one part per thread, so that parts can own a piece of the workspace.
template <class Plane>
void each_plane(const Pooling& p, int64_t parts, void* workspace, const Plane& plane) {
    const int64_t planes = p.n * p.c;
    parallel_for(parts, 1, 1, [&](int64_t lo, int64_t hi) {
        for (int64_t part = lo; part < hi; ++part) {
            float* const line = reinterpret_cast<float*>(static_cast<char*>(workspace) + static_cast<size_t>(part) * line_bytes(p));
            int32_t* const rows = reinterpret_cast<int32_t*>(line + p.in[2]);
            const Task task{line, rows, rows + p.in[2]};
            for (int64_t i = planes * part / parts; i < planes * (part + 1) / parts; ++i) plane(i, task);
        }
    });
}

// Channels [c0, c1) of sample n, for gradients that add into a sample.
template <class Strip>
void each_strip(const Pooling& p, const Strip& strip) {
    const int64_t strips = (p.c + kChannels - 1) / kChannels;
    parallel_for(p.n * strips, std::max<int64_t>(1, kGrain / (p.in_size() * std::min(p.c, kChannels))), 1, [&](int64_t lo, int64_t hi) {
        for (int64_t i = lo; i < hi; ++i) strip(i / strips, i % strips * kChannels, std::min(p.c, i % strips * kChannels + kChannels));
    });
}

enum class Kind { max, max_grad, max_pick, mean, mean_grad };

void run_row_major(const Pooling& p, Kind kind, int64_t parts, const float* a, const float* b, float* to, void* workspace) {
    const int64_t big = p.in_size(), small = p.out_size(), rows = p.out[0] * p.out[1];
    each_plane(p, parts, workspace, [&](int64_t i, const Task& task) {
        switch (kind) {
            case Kind::max: return max_plane(p, a + i * big, to + i * small, task.line);
            case Kind::mean: return mean_plane(p, a + i * big, to + i * small, task.line);
            case Kind::mean_grad: return mean_grad_plane(p, a + i * small, to + i * big, task.line);
            case Kind::max_grad:
            case Kind::max_pick: break;
        }
        const bool pick = kind == Kind::max_pick;
        if (!pick) std::memset(to + i * big, 0, static_cast<size_t>(big) * sizeof(float));
        for (int64_t row = 0; row < rows; ++row) {
            positions_of_row(p, Lines(p, row), a + i * big, task.line, task.rows, task.positions);
            const int64_t at = i * small + row * p.out[2];
            if (pick) for (int64_t o = 0; o < p.out[2]; ++o) to[at + o] = b[i * big + task.positions[o]];
            else for (int64_t o = 0; o < p.out[2]; ++o) to[i * big + task.positions[o]] += b[at + o];
        }
    });
}

void run_channels_last(const Pooling& p, Kind kind, const float* a, const float* b, float* to) {
    const int64_t big = p.in_size() * p.c, small = p.out_size() * p.c, rows = p.out[0] * p.out[1];
    if (kind == Kind::max || kind == Kind::mean) {
        parallel_for(p.n * rows, std::max<int64_t>(1, kGrain / (p.out[2] * p.c)), 1, [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i)
                each_window(p, i % rows, i % rows + 1, [&](const Lines& l, int64_t w0, int64_t w1, int64_t o) {
                    (kind == Kind::max ? max_window : mean_window)(p, l, w0, w1, a + i / rows * big, to + i / rows * small + o * p.c);
                });
        });
        return;
    }
    each_strip(p, [&](int64_t n, int64_t c0, int64_t c1) {
        const bool pick = kind == Kind::max_pick;
        float* const target = to + n * (pick ? small : big);
        if (!pick)
            for (int64_t i = 0; i < p.in_size(); ++i) std::memset(target + i * p.c + c0, 0, static_cast<size_t>(c1 - c0) * sizeof(float));
        each_window(p, 0, rows, [&](const Lines& l, int64_t w0, int64_t w1, int64_t o) {
            if (kind == Kind::mean_grad) return mean_grad_window(p, l, w0, w1, a + n * small + o * p.c + c0, target + c0, c1 - c0);
            int32_t positions[kChannels];
            positions_of_window(p, l, w0, w1, a + n * big + c0, c1 - c0, positions);
            const float* const from = b + n * (pick ? big : small);
            for (int64_t c = c0; c < c1; ++c)
                if (pick) target[o * p.c + c] = from[positions[c - c0] * p.c + c];
                else target[positions[c - c0] * p.c + c] += from[o * p.c + c];
        });
    });
}

// ---- preparation ----

Ranges given_ranges(const runtime::Window& window, int axis, int64_t in, int64_t out) {
    Ranges ranges;
    for (int64_t o = 0; o < out; ++o) {
        const int64_t begin = o * window.stride[axis] - window.padding[axis];
        ranges.begin.push_back(static_cast<int32_t>(std::max<int64_t>(begin, 0)));
        ranges.end.push_back(static_cast<int32_t>(std::min(begin + window.kernel[axis], in)));
    }
    return ranges;
}

Ranges even_ranges(int64_t in, int64_t out) {
    Ranges ranges;
    for (int64_t o = 0; o < out; ++o) {
        ranges.begin.push_back(static_cast<int32_t>(o * in / out));
        ranges.end.push_back(static_cast<int32_t>(((o + 1) * in + out - 1) / out));
    }
    return ranges;
}

Pooling pooling_of(const OpCall& call, const Shape& x, const Shape& y, bool adaptive, bool mean) {
    const int dims = x.rank() - 2;
    Pooling p{.n = x[0], .c = x[1]};
    const runtime::Window window = adaptive ? runtime::Window{} : runtime::window_of(call, dims);
    for (int axis = 0; axis < 3; ++axis) {
        const int mine = axis - (3 - dims);  // spatial axis of the tensor, below 0: an axis of extent 1
        p.in[axis] = mine < 0 ? 1 : x[mine + 2];
        p.out[axis] = mine < 0 ? 1 : y[mine + 2];
        p.ranges[axis] = adaptive || mine < 0 ? even_ranges(p.in[axis], p.out[axis]) : given_ranges(window, mine, p.in[axis], p.out[axis]);
    }
    if (mean && !adaptive && call.flag("count_include_padding")) {
        p.window_size = 1;
        for (int axis = 0; axis < dims; ++axis) p.window_size *= static_cast<float>(window.kernel[axis]);
    }
    if (p.in_size() > INT32_MAX) throw runtime::DeviceError(runtime::cat(call.op.name, ": planes of more than 2^31 elements"));
    return p;
}

template <Kind kind, bool adaptive>
Prepared prepare_pool(const OpCall& call, std::span<const Type> outputs) {
    if (Prepared converted = in_float32_like(call.inputs[0], call, outputs, prepare_pool<kind, adaptive>)) return converted;
    constexpr bool backward = kind == Kind::max_grad || kind == Kind::mean_grad, mean = kind == Kind::mean || kind == Kind::mean_grad;
    const Type &first = call.inputs[0], &x = kind == Kind::mean_grad ? outputs[0] : first;
    const Type& y = kind == Kind::mean_grad ? first : backward ? call.inputs[1] : outputs[0];
    if (x.numel() == 0 || y.numel() == 0) return make_zeros(outputs);
    auto p = std::make_shared<const Pooling>(pooling_of(call, x.shape, y.shape, adaptive, mean));
    const bool channels_last = first.layout == Layout::channels_last;
    const int64_t parts = std::min<int64_t>({runtime::thread_count(), p->n * p->c, std::max<int64_t>(1, x.numel() / kGrain)});
    return make_kernel([p, channels_last, parts](void* const* in, void* const* out, void* workspace) {
        const float *a = static_cast<const float*>(in[0]), *b = kind == Kind::max_grad || kind == Kind::max_pick ? static_cast<const float*>(in[1]) : nullptr;
        if (channels_last) run_channels_last(*p, kind, a, b, static_cast<float*>(out[0]));
        else run_row_major(*p, kind, parts, a, b, static_cast<float*>(out[0]), workspace);
    }, channels_last ? 0 : static_cast<size_t>(parts) * line_bytes(*p));
}

}  // namespace

void register_pool_kernels() {
    register_kernel("max_pool", prepare_pool<Kind::max, false>);
    register_kernel("max_pool_grad", prepare_pool<Kind::max_grad, false>);
    register_kernel("max_pool_pick", prepare_pool<Kind::max_pick, false>);
    register_kernel("avg_pool", prepare_pool<Kind::mean, false>);
    register_kernel("avg_pool_grad", prepare_pool<Kind::mean_grad, false>);
    register_kernel("adaptive_max_pool", prepare_pool<Kind::max, true>);
    register_kernel("adaptive_max_pool_grad", prepare_pool<Kind::max_grad, true>);
    register_kernel("adaptive_max_pool_pick", prepare_pool<Kind::max_pick, true>);
    register_kernel("adaptive_avg_pool", prepare_pool<Kind::mean, true>);
    register_kernel("adaptive_avg_pool_grad", prepare_pool<Kind::mean_grad, true>);
}

}  // namespace megjit::cpu
