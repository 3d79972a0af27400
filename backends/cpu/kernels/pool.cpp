// backends/cpu/kernels/pool.cpp -- max and average pooling and their gradients, in float32, both
// layouts. Given and adaptive windows become the same: for each axis a list of half-open input
// ranges, cut at the borders. Gradients of max pooling look for the largest element again, so that
// nothing is kept for them.
//
//   row_major      a window row by row: first over rows for whole lines of x, then along the line
//   channels_last  one window after the other, for sixteen channels at a time
#include <algorithm>
#include <array>
#include <vector>

#include "backends/cpu/convert.h"
#include "backends/cpu/in_parts.h"
#include "runtime/host/parallel.h"
#include "runtime/ops/pool.h"

namespace megjit::cpu { namespace {

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
    int64_t span = 1;  // columns of the widest window
    float window_size = 0;  // elements of a window with its padding; 0: only those inside count

    int64_t in_size() const { return in[0] * in[1] * in[2]; }
    int64_t out_size() const { return out[0] * out[1] * out[2]; }
    float weight(int64_t elements) const {
        return 1 / (window_size > 0 ? window_size : static_cast<float>(elements));
    }
};

// The lines of x that a row of windows covers, as the first pass sees them.
struct Lines {
    int64_t d0 = 0, d1 = 0, h0 = 0, h1 = 0, count = 0;
    Lines(const Pooling& p, int64_t row) {
        const int64_t d = row / p.out[1], h = row % p.out[1];
        d0 = p.ranges[0].begin[d], d1 = p.ranges[0].end[d], h0 = p.ranges[1].begin[h],
        h1 = p.ranges[1].end[h];
        count = (d1 - d0) * (h1 - h0);
    }
};

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/pool.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

// ---- runs over the whole tensor ----

// Calls window(lines, first column, last column, place) for rows [from, to) of places.
template <class Window>
void each_window(const Pooling& p, int64_t from, int64_t to, const Window& window) {
    for (int64_t row = from; row < to; ++row) {
        const Lines l(p, row);
        for (int64_t o = 0; o < p.out[2]; ++o)
            window(l, p.ranges[2].begin[o], p.ranges[2].end[o], row * p.out[2] + o);
    }
}

constexpr int64_t kPoolGrain = 1 << 14;
constexpr int64_t kChannels = 64;  // channels of one task in channels_last gradients

// A task of a parallel run has three values per input column and one per window of a row.
size_t line_bytes(const Pooling& p) {
    return (static_cast<size_t>(3 * p.in[2] + p.out[2]) * 4 + 63) / 64 * 64;
}

struct Task {
    float* line = nullptr;
    int32_t *rows = nullptr, *columns = nullptr, *positions = nullptr;
};

constexpr int64_t kMostParts = 64;

// Divides planes into parts with a piece of the workspace each.
template <class Plane>
void each_plane(const Pooling& p, int64_t parts, void* workspace, const Plane& plane) {
    const int64_t planes = p.n * p.c;
    parallel_for(parts, 1, 1, [&](int64_t lo, int64_t hi) {
        for (int64_t part = lo; part < hi; ++part) {
            float* const line = reinterpret_cast<float*>(static_cast<char*>(workspace) +
                                                         static_cast<size_t>(part) * line_bytes(p));
            int32_t* const rows = reinterpret_cast<int32_t*>(line + p.in[2]);
            const Task task{line, rows, rows + p.in[2], rows + 2 * p.in[2]};
            for (int64_t i = planes * part / parts; i < planes * (part + 1) / parts; ++i)
                plane(i, task);
        }
    });
}

// Calls strip(n, c0, c1) for channels [c0, c1) of sample n, for gradients that add into a sample.
template <class Strip>
void each_strip(const Pooling& p, const Strip& strip) {
    const int64_t strips = (p.c + kChannels - 1) / kChannels;
    parallel_for(p.n * strips,
                 std::max<int64_t>(1, kPoolGrain / (p.in_size() * std::min(p.c, kChannels))), 1,
                 [&](int64_t lo, int64_t hi) {
        for (int64_t i = lo; i < hi; ++i)
            strip(i / strips, i % strips * kChannels,
                  std::min(p.c, i % strips * kChannels + kChannels));
    });
}

enum class Kind { max, max_grad, max_pick, mean, mean_grad };

void run_row_major(const Pooling& p, Kind kind, int64_t parts, const float* a, const float* b,
                   float* to, void* workspace) {
    const int64_t big = p.in_size(), small = p.out_size(), rows = p.out[0] * p.out[1];
    each_plane(p, parts, workspace, [&](int64_t i, const Task& task) {
        switch (kind) {
            case Kind::max:
                return MEGJIT_BEST(max_plane)(p, a + i * big, to + i * small, task.line);
            case Kind::mean:
                return MEGJIT_BEST(mean_plane)(p, a + i * big, to + i * small, task.line);
            case Kind::mean_grad:
                return MEGJIT_BEST(mean_grad_plane)(p, a + i * small, to + i * big, task.line);
            case Kind::max_grad:
            case Kind::max_pick: break;
        }
        const bool pick = kind == Kind::max_pick;
        if (!pick) std::memset(to + i * big, 0, static_cast<size_t>(big) * sizeof(float));
        for (int64_t row = 0; row < rows; ++row) {
            MEGJIT_BEST(positions_of_row)(p, Lines(p, row), a + i * big, task.line, task.rows,
                                          task.columns, task.positions);
            const int64_t at = i * small + row * p.out[2];
            if (pick)
                for (int64_t o = 0; o < p.out[2]; ++o) to[at + o] = b[i * big + task.positions[o]];
            else
                for (int64_t o = 0; o < p.out[2]; ++o) to[i * big + task.positions[o]] += b[at + o];
        }
    });
}

void run_channels_last(const Pooling& p, Kind kind, const float* a, const float* b, float* to) {
    const int64_t big = p.in_size() * p.c, small = p.out_size() * p.c, rows = p.out[0] * p.out[1];
    if (kind == Kind::max || kind == Kind::mean) {
        parallel_for(p.n * rows, std::max<int64_t>(1, kPoolGrain / (p.out[2] * p.c)), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i)
                each_window(p, i % rows, i % rows + 1,
                            [&](const Lines& l, int64_t w0, int64_t w1, int64_t o) {
                    (kind == Kind::max ? MEGJIT_BEST(max_window) : MEGJIT_BEST(mean_window))(
                        p, l, w0, w1, a + i / rows * big, to + i / rows * small + o * p.c);
                });
        });
        return;
    }
    each_strip(p, [&](int64_t n, int64_t c0, int64_t c1) {
        const bool pick = kind == Kind::max_pick;
        float* const target = to + n * (pick ? small : big);
        if (!pick)
            for (int64_t i = 0; i < p.in_size(); ++i)
                std::memset(target + i * p.c + c0, 0, static_cast<size_t>(c1 - c0) * sizeof(float));
        each_window(p, 0, rows, [&](const Lines& l, int64_t w0, int64_t w1, int64_t o) {
            if (kind == Kind::mean_grad)
                return MEGJIT_BEST(mean_grad_window)(p, l, w0, w1, a + n * small + o * p.c + c0,
                                                     target + c0, c1 - c0);
            int32_t positions[kChannels];
            MEGJIT_BEST(positions_of_window)(p, l, w0, w1, a + n * big + c0, c1 - c0, positions);
            const float* const from = b + n * (pick ? big : small);
            for (int64_t c = c0; c < c1; ++c)
                if (pick) target[o * p.c + c] = from[positions[c - c0] * p.c + c];
                else target[positions[c - c0] * p.c + c] += from[o * p.c + c];
        });
    });
}

// ---- preparation ----

Ranges ranges_of(const runtime::PoolWindow& window, int axis, int64_t in, int64_t out) {
    Ranges ranges;
    for (int64_t o = 0; o < out; ++o) {
        const auto [begin, end] = window.range(axis, o, in, out);
        ranges.begin.push_back(static_cast<int32_t>(begin));
        ranges.end.push_back(static_cast<int32_t>(end));
    }
    return ranges;
}

Pooling pooling_of(const OpCall& call, const Shape& x, const Shape& y) {
    const int dims = x.rank() - 2;
    Pooling p{.n = x[0], .c = x[1]};
    const runtime::PoolWindow window = runtime::pool_window(call, dims);
    for (int axis = 0; axis < 3; ++axis) {
        const int mine =
            axis - (3 - dims);  // spatial axis of the tensor; below 0: an axis of extent 1
        p.in[axis] = mine < 0 ? 1 : x[mine + 2];
        p.out[axis] = mine < 0 ? 1 : y[mine + 2];
        if (mine < 0) p.ranges[axis] = {{0}, {1}};
        else p.ranges[axis] = ranges_of(window, mine, p.in[axis], p.out[axis]);
    }
    for (int64_t o = 0; o < p.out[2]; ++o)
        p.span = std::max<int64_t>(p.span, p.ranges[2].end[o] - p.ranges[2].begin[o]);
    if (window.counts_padding) {
        p.window_size = 1;
        for (int axis = 0; axis < dims; ++axis)
            p.window_size *= static_cast<float>(window.window.kernel[axis]);
    }
    if (p.in_size() > INT32_MAX)
        throw runtime::DeviceError(
            runtime::cat(call.op.name, ": planes of more than 2^31 elements"));
    return p;
}

template <Kind kind>
Prepared prepare_pool(const OpCall& call, std::span<const Type> outputs) {
    if (Prepared converted = in_float32_like(call.inputs[0], call, outputs, prepare_pool<kind>))
        return converted;
    constexpr bool backward = kind == Kind::max_grad || kind == Kind::mean_grad;
    const Type &first = call.inputs[0], &x = kind == Kind::mean_grad ? outputs[0] : first;
    const Type& y = kind == Kind::mean_grad ? first : backward ? call.inputs[1] : outputs[0];
    if (x.numel() == 0 || y.numel() == 0) return make_zeros(outputs);
    if constexpr (kind == Kind::max_grad)
        if (Prepared parts = by_images(call, outputs, {true, true}, prepare_pool<kind>))
            return parts;
    auto p = std::make_shared<const Pooling>(pooling_of(call, x.shape, y.shape));
    const bool channels_last = first.layout == Layout::channels_last;
    const int64_t parts =
        std::min<int64_t>({kMostParts, p->n * p->c, std::max<int64_t>(1, x.numel() / kPoolGrain)});
    return executable(
        [p, channels_last, parts](void* const* in, void* const* out, void* workspace) {
        const float *a = static_cast<const float*>(in[0]),
                    *b = kind == Kind::max_grad || kind == Kind::max_pick
                             ? static_cast<const float*>(in[1])
                             : nullptr;
        if (channels_last) run_channels_last(*p, kind, a, b, static_cast<float*>(out[0]));
        else run_row_major(*p, kind, parts, a, b, static_cast<float*>(out[0]), workspace);
    }, channels_last ? 0 : static_cast<size_t>(parts) * line_bytes(*p));
}

}  // namespace

void register_pool_kernels() {
    for (const std::string prefix : {"", "adaptive_"}) {
        register_kernel(prefix + "max_pool", prepare_pool<Kind::max>);
        register_kernel(prefix + "max_pool_grad", prepare_pool<Kind::max_grad>);
        register_kernel(prefix + "max_pool_pick", prepare_pool<Kind::max_pick>);
        register_kernel(prefix + "avg_pool", prepare_pool<Kind::mean>);
        register_kernel(prefix + "avg_pool_grad", prepare_pool<Kind::mean_grad>);
    }
}

}  // namespace megjit::cpu
