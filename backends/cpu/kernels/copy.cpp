// backends/cpu/kernels/copy.cpp -- kernels that only move elements. All but padding are one copy
// between strided regions, which picks the widest way: whole runs, repeated values, or square
// tiles.
#include <algorithm>
#include <array>
#include <vector>

#include "backends/cpu/elements.h"
#include "codegen/strides.h"
#include "runtime/core/number_to_integer.h"

#define MEGJIT_KERNELS "backends/cpu/kernels/transposed_words.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

constexpr int64_t kGrainBytes = 128 * 1024;  // fewer bytes are not worth a second thread
constexpr int64_t kTile = 64;

// The index along each axis of a region, for walking it row by row.
struct Cursor {
    int64_t at[runtime::kMaxRank] = {};
    int64_t from = 0, to = 0;
    // Starts at row `row` of the outer axes [0, axes).
    Cursor(const Region& r, int axes, int64_t row) {
        for (int i = axes - 1; i >= 0; --i) {
            at[i] = row % r.axes[i].extent;
            row /= r.axes[i].extent;
            from += at[i] * r.axes[i].from;
            to += at[i] * r.axes[i].to;
        }
    }
    void next(const Region& r, int axes) {
        for (int i = axes - 1; i >= 0; --i) {
            from += r.axes[i].from;
            to += r.axes[i].to;
            if (++at[i] < r.axes[i].extent) return;
            from -= r.axes[i].from * r.axes[i].extent;
            to -= r.axes[i].to * r.axes[i].extent;
            at[i] = 0;
        }
    }
};

template <class T>
void move_row(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t n) {
    if (to_step == 1 && from_step == 1) {
        if (n * static_cast<int64_t>(sizeof(T)) >= 64) {
            std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
        } else {
            for (int64_t i = 0; i < n; ++i) to[i] = from[i];
        }
    } else if (to_step == 1 && from_step == 0) {
        std::fill_n(to, n, *from);
    } else if (to_step == 1 && from_step == -1) {
        for (int64_t i = 0; i < n; ++i) to[i] = from[-i];
    } else {
        for (int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
    }
}

template <class T>
void copy_rows(const Region& r, const T* from, T* to) {
    const int last = r.rank - 1;
    const int64_t n = r.axes[last].extent;
    int64_t total = 1;
    for (int i = 0; i < r.rank; ++i) total *= r.axes[i].extent;
    parallel_for(total, kGrainBytes / static_cast<int64_t>(sizeof(T)), 1,
                 [&](int64_t lo, int64_t hi) {
        Cursor cursor(r, last, lo / n);
        for (int64_t skip = lo % n; lo < hi; skip = 0, cursor.next(r, last)) {
            const int64_t count = std::min(n - skip, hi - lo);
            move_row(from + cursor.from + skip * r.axes[last].from, r.axes[last].from,
                     to + cursor.to + skip * r.axes[last].to, r.axes[last].to, count);
            lo += count;
        }
    });
}

// Elements of 4 bytes are transposed in registers, others in a block that stays in the first-level
// cache.
template <class T>
void transpose_tile(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t ps,
                    int64_t qs) {
    if constexpr (sizeof(T) == 4)
        return MEGJIT_BEST(transpose_words)(from, from_step, to, to_step, ps, qs);
    if (qs < 8) {  // for interleaving, the long axis is the inner one
        for (int64_t q = 0; q < qs; ++q)
            for (int64_t p = 0; p < ps; ++p) to[p * to_step + q] = from[q * from_step + p];
        return;
    }
    T block[kTile][kTile + 8 / sizeof(T)];
    for (int64_t q = 0; q < qs; ++q)
        std::memcpy(block[q], from + q * from_step, static_cast<size_t>(ps) * sizeof(T));
    for (int64_t p = 0; p < ps; ++p)
        for (int64_t q = 0; q < qs; ++q) to[p * to_step + q] = block[q][p];
}

// The axis along which `from` is contiguous while `to` is not; -1 when tiles would not help.
int tile_axis(const Region& r) {
    if (r.rank < 2 || r.axes[r.rank - 1].to != 1 || r.axes[r.rank - 1].from == 1 ||
        r.axes[r.rank - 1].from == 0)
        return -1;
    for (int i = 0; i + 1 < r.rank; ++i)
        if (r.axes[i].from == 1) return i;
    return -1;
}

template <class T>
void copy_tiles(const Region& r, int axis, const T* from, T* to) {
    const int last = r.rank - 1;
    Region outer;
    for (int i = 0; i < last; ++i)
        if (i != axis) outer.push(r.axes[i].extent, r.axes[i].from, r.axes[i].to);
    int64_t outers = 1;
    for (int i = 0; i < outer.rank; ++i) outers *= outer.axes[i].extent;
    const int64_t ps = r.axes[axis].extent, qs = r.axes[last].extent;
    const int64_t p_tiles = (ps + kTile - 1) / kTile, q_tiles = (qs + kTile - 1) / kTile,
                  tiles = p_tiles * q_tiles;
    const int64_t tile_bytes =
        std::min(ps, kTile) * std::min(qs, kTile) * static_cast<int64_t>(sizeof(T));
    parallel_for(outers * tiles, std::max<int64_t>(1, kGrainBytes / tile_bytes), 1,
                 [&](int64_t lo, int64_t hi) {
        for (int64_t part = lo; part < hi; ++part) {
            const Cursor cursor(outer, outer.rank, part / tiles);
            const int64_t p = part % tiles / q_tiles * kTile, q = part % tiles % q_tiles * kTile;
            transpose_tile(from + cursor.from + q * r.axes[last].from + p, r.axes[last].from,
                           to + cursor.to + p * r.axes[axis].to + q, r.axes[axis].to,
                           std::min(kTile, ps - p), std::min(kTile, qs - q));
        }
    });
}

}  // namespace

void copy_bytes(const void* from, void* to, int64_t bytes) {
    if (from == to) return;
    parallel_for(bytes, 2 * kGrainBytes, 64, [=](int64_t lo, int64_t hi) {
        std::memcpy(static_cast<char*>(to) + lo, static_cast<const char*>(from) + lo,
                    static_cast<size_t>(hi - lo));
    });
}

void copy_region(const Region& r, size_t element_bytes, const void* from, void* to) {
    for (int i = 0; i < r.rank; ++i)
        if (r.axes[i].extent == 0) return;
    if (r.is_block()) {
        if (from != to)
            copy_bytes(from, to, r.axes[0].extent * static_cast<int64_t>(element_bytes));
        return;
    }
    const int axis = tile_axis(r);
    with_bytes(element_bytes, [&]<class T>(std::type_identity<T>) {
        if (axis < 0) copy_rows(r, static_cast<const T*>(from), static_cast<T*>(to));
        else copy_tiles(r, axis, static_cast<const T*>(from), static_cast<T*>(to));
    });
}

namespace {

char* at(void* p, int64_t elements, size_t bytes) {
    return static_cast<char*>(p) + elements * static_cast<int64_t>(bytes);
}

Prepared prepare_reshape(const OpCall& call, std::span<const Type>) {
    const auto bytes = static_cast<int64_t>(call.inputs[0].bytes());
    return executable([=](void* const* in, void* const* out, void*) {
        copy_bytes(in[0], out[0], bytes);
    }, 0, true);
}

Prepared prepare_broadcast_to(const OpCall& call, std::span<const Type> outputs) {
    const Shape &x = call.inputs[0].shape, &y = outputs[0].shape;
    const auto from = x.row_major_strides(), to = y.row_major_strides();
    Region r;
    for (int i = 0; i < y.rank(); ++i) {
        const int j = i - (y.rank() - x.rank());
        r.push(y[i], j < 0 || x[j] == 1 ? 0 : from[j], to[i]);
    }
    r = r.merged();
    const size_t bytes = size_of(call.inputs[0].dtype);
    return executable(
        [=](void* const* in, void* const* out, void*) { copy_region(r, bytes, in[0], out[0]); });
}

Prepared prepare_transpose(const OpCall& call, std::span<const Type> outputs) {
    const auto from = call.inputs[0].shape.row_major_strides(),
               to = outputs[0].shape.row_major_strides();
    const auto& perm = call.integers("perm");
    Region r;
    for (int i = 0; i < outputs[0].rank(); ++i)
        r.push(outputs[0].shape[i], from[static_cast<size_t>(perm[static_cast<size_t>(i)])], to[i]);
    r = r.merged();
    const size_t bytes = size_of(call.inputs[0].dtype);
    return executable(
        [=](void* const* in, void* const* out, void*) { copy_region(r, bytes, in[0], out[0]); });
}

// The region of a slice: the strides of the whole tensor times the steps, and the first element.
struct Window {
    std::array<int64_t, runtime::kMaxRank> strides{};
    int64_t begin = 0;
};
Window window_of(const OpCall& call, const Type& whole) {
    Window w;
    std::ranges::copy(codegen::dense_strides(whole), w.strides.begin());
    for (size_t i = 0; i < static_cast<size_t>(whole.rank()); ++i) {
        w.begin += call.integers("begin")[i] * w.strides[i];
        w.strides[i] *= call.integers("step")[i];
    }
    return w;
}

Prepared prepare_slice(const OpCall& call, std::span<const Type> outputs) {
    const Window w = window_of(call, call.inputs[0]);
    const std::vector<int64_t> to = codegen::dense_strides(outputs[0]);
    Region r;
    for (int i : codegen::memory_order(outputs[0].layout, outputs[0].rank()))
        r.push(outputs[0].shape[i], w.strides[static_cast<size_t>(i)], to[static_cast<size_t>(i)]);
    r = r.merged();
    const size_t bytes = size_of(call.inputs[0].dtype);
    if (outputs[0].numel() == 0) return executable([](void* const*, void* const*, void*) {});
    std::vector<runtime::Executable::Part> parts;
    if (r.is_block()) parts.push_back({.offset = static_cast<size_t>(w.begin) * bytes});
    return executable([=](void* const* in, void* const* out, void*) {
        copy_region(r, bytes, at(in[0], w.begin, bytes), out[0]);
    }, 0, false, std::move(parts));
}

Prepared prepare_slice_set(const OpCall& call, std::span<const Type>) {
    const Type &x = call.inputs[0], &value = call.inputs[1];
    const Window w = window_of(call, x);
    const auto from = value.shape.row_major_strides();
    Region r;
    for (int i = 0; i < x.rank(); ++i)
        r.push(value.shape[i], from[static_cast<size_t>(i)], w.strides[static_cast<size_t>(i)]);
    r = r.merged();
    const size_t bytes = size_of(x.dtype);
    const auto all = static_cast<int64_t>(x.bytes());
    const bool any = value.numel() > 0;
    return executable([=](void* const* in, void* const* out, void*) {
        copy_bytes(in[0], out[0], all);
        if (any) copy_region(r, bytes, in[1], at(out[0], w.begin, bytes));
    }, 0, true);
}

Prepared prepare_concat(const OpCall& call, std::span<const Type> outputs) {
    const int axis = runtime::normalize_axis(call.integer("axis"), outputs[0].rank(), call.op.name);
    // The order in memory: axes outside of `axis`, `axis` itself, and the axes inside.
    const std::vector<int> order = codegen::memory_order(outputs[0].layout, outputs[0].rank());
    const auto place = std::ranges::find(order, axis) - order.begin();
    Shape in_memory;
    for (int i : order) in_memory.push_back(outputs[0].shape[i]);
    const Split whole = split_at(in_memory, static_cast<int>(place));
    const size_t bytes = size_of(outputs[0].dtype);
    std::vector<int64_t> lengths;
    std::vector<runtime::Executable::Part> parts;
    size_t end = 0;
    for (const Type& x : call.inputs) {
        lengths.push_back(x.shape[axis] * whole.inner);
        if (whole.outer == 1) parts.push_back({.of_output = true, .offset = end});
        end += x.bytes();
    }
    return executable([=](void* const* in, void* const* out, void*) {
        int64_t begin = 0;
        for (size_t k = 0; k < lengths.size(); begin += lengths[k++]) {
            Region r;
            r.push(whole.outer, lengths[k], whole.length * whole.inner);
            r.push(lengths[k], 1, 1);
            copy_region(r.merged(), bytes, in[k], at(out[0], begin, bytes));
        }
    }, 0, false, std::move(parts));
}

// --- padding --------------------------------------------------------------------------------

enum class PadMode : uint8_t { constant, edge, reflect };
PadMode pad_mode(const OpCall& call) {
    const std::string& mode = call.text("mode");
    return mode == "edge"      ? PadMode::edge
           : mode == "reflect" ? PadMode::reflect
                               : PadMode::constant;
}

// For each axis, in memory's order: the place that each place of the padded side comes from, or -1
// for the constant.
struct PadPlan {
    int rank = 0;
    Shape narrow, wide;
    std::vector<int64_t> low;
    std::vector<std::vector<int64_t>> source;
};
PadPlan plan_pad(const OpCall& call, const Type& narrow, const Type& wide) {
    PadPlan plan;
    plan.rank = narrow.rank();
    const PadMode mode = pad_mode(call);
    for (int axis : codegen::memory_order(narrow.layout, plan.rank)) {
        const int64_t n = narrow.shape[axis],
                      low = call.integers("before")[static_cast<size_t>(axis)];
        plan.narrow.push_back(n);
        plan.wide.push_back(wide.shape[axis]);
        plan.low.push_back(low);
        std::vector<int64_t> source(static_cast<size_t>(wide.shape[axis]));
        for (int64_t j = 0; j < wide.shape[axis]; ++j) {
            int64_t from = j - low;
            if (from < 0) from = mode == PadMode::constant ? -1 : mode == PadMode::edge ? 0 : -from;
            else if (from >= n)
                from = mode == PadMode::constant ? -1
                       : mode == PadMode::edge   ? n - 1
                                                 : 2 * n - 2 - from;
            source[static_cast<size_t>(j)] = from;
        }
        plan.source.push_back(std::move(source));
    }
    return plan;
}

template <class T>
void pad_rows(const PadPlan& plan, T value, const T* x, T* y) {
    const int last = plan.rank - 1;
    const int64_t width = plan.wide[last], inner = plan.narrow[last], low = plan.low.back();
    const int64_t rows = plan.wide.numel() / width;
    const std::vector<int64_t>& source = plan.source.back();
    parallel_for(rows,
                 std::max<int64_t>(1, kGrainBytes / (width * static_cast<int64_t>(sizeof(T)))), 1,
                 [&](int64_t lo, int64_t hi) {
        for (int64_t row = lo; row < hi; ++row) {
            int64_t rest = row, from = 0, stride = inner;
            for (int i = last - 1; i >= 0; --i) {
                const int64_t place =
                    plan.source[static_cast<size_t>(i)][static_cast<size_t>(rest % plan.wide[i])];
                rest /= plan.wide[i];
                if (place < 0) from = INT64_MIN / 2;
                from += place * stride;
                stride *= plan.narrow[i];
            }
            T* to = y + row * width;
            if (from < 0) {
                std::fill_n(to, width, value);
                continue;
            }
            const auto border = [&](int64_t begin, int64_t end) {
                for (int64_t j = begin; j < end; ++j) {
                    const int64_t place = source[static_cast<size_t>(j)];
                    to[j] = place < 0 ? value : x[from + place];
                }
            };
            border(0, low);
            std::copy_n(x + from, inner, to + low);
            border(low + inner, width);
        }
    });
}

template <class T>
T element_of(double value) {
    if constexpr (std::is_same_v<T, double>) return value;
    else if constexpr (std::is_integral_v<T>) return narrow_to<T>(value);
    else return narrow_to<T>(static_cast<float>(value));
}

// The bits of one element, in the low bytes.
uint64_t bits_of(DType dtype, double value) {
    uint64_t bits = 0;
    with_any(dtype, [&]<class T>(std::type_identity<T>) {
        const T element = dtype == DType::b8 ? element_of<T>(value != 0) : element_of<T>(value);
        std::memcpy(static_cast<void*>(&bits), &element, sizeof element);
    });
    return bits;
}

Prepared prepare_pad(const OpCall& call, std::span<const Type> outputs) {
    const DType dtype = outputs[0].dtype;
    const uint64_t bits = bits_of(dtype, call.real("value"));
    const auto bytes = static_cast<int64_t>(outputs[0].bytes());
    if (outputs[0].rank() == 0 || bytes == 0)
        return executable(
            [=](void* const* in, void* const* out, void*) { copy_bytes(in[0], out[0], bytes); });
    const auto plan = std::make_shared<const PadPlan>(plan_pad(call, call.inputs[0], outputs[0]));
    return with_bytes(size_of(dtype), [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void*) {
            pad_rows(*plan, static_cast<T>(bits), static_cast<const T*>(in[0]),
                     static_cast<T*>(out[0]));
        });
    });
}

// Each row of dx gathers the rows of dy that came from it, always in the same order.
template <class T, class Sum>
void fold_rows(const PadPlan& plan, const std::vector<std::vector<std::vector<int64_t>>>& images,
               const T* dy, T* dx, Sum* sums) {
    const int last = plan.rank - 1;
    const int64_t width = plan.wide[last], inner = plan.narrow[last],
                  rows = plan.narrow.numel() / std::max<int64_t>(1, inner);
    const auto strides = plan.wide.row_major_strides();
    const int64_t* source = plan.source.back().data();
    parallel_for(rows, std::max<int64_t>(1, 16384 / width), 1, [&](int64_t lo, int64_t hi) {
        for (int64_t row = lo; row < hi; ++row) {
            const std::vector<int64_t>* choices[runtime::kMaxRank] = {};
            int64_t combinations = 1, rest = row;
            for (int i = last - 1; i >= 0; --i) {
                choices[i] =
                    &images[static_cast<size_t>(i)][static_cast<size_t>(rest % plan.narrow[i])];
                rest /= plan.narrow[i];
                combinations *= static_cast<int64_t>(choices[i]->size());
            }
            Sum* sum = sums + row * inner;
            std::fill_n(sum, inner, Sum{});
            for (int64_t c = 0; c < combinations; ++c) {
                int64_t from = 0, which = c;
                for (int i = last - 1; i >= 0; --i) {
                    const auto n = static_cast<int64_t>(choices[i]->size());
                    from += (*choices[i])[static_cast<size_t>(which % n)] *
                            strides[static_cast<size_t>(i)];
                    which /= n;
                }
                for (int64_t j = 0; j < width; ++j)
                    sum[source[j]] += static_cast<Sum>(widen(dy[from + j]));
            }
            for (int64_t j = 0; j < inner; ++j) dx[row * inner + j] = narrow_to<T>(sum[j]);
        }
    });
}

Prepared prepare_pad_grad(const OpCall& call, std::span<const Type> outputs) {
    const auto bytes = static_cast<int64_t>(outputs[0].bytes());
    if (outputs[0].rank() == 0 || bytes == 0)
        return executable(
            [=](void* const* in, void* const* out, void*) { copy_bytes(in[0], out[0], bytes); });
    if (pad_mode(call) == PadMode::constant)
        runtime::user_error(
            {.what = "pad_grad: mode constant has no kernel", .fix = "its gradient is a slice"});
    const auto plan = std::make_shared<const PadPlan>(plan_pad(call, outputs[0], call.inputs[0]));
    std::vector<std::vector<std::vector<int64_t>>> images;
    for (int i = 0; i < plan->rank; ++i) {
        auto& axis = images.emplace_back(static_cast<size_t>(plan->narrow[i]));
        const auto& source = plan->source[static_cast<size_t>(i)];
        for (size_t j = 0; j < source.size(); ++j)
            axis[static_cast<size_t>(source[j])].push_back(static_cast<int64_t>(j));
    }
    const auto workspace = static_cast<size_t>(outputs[0].numel()) *
                           (outputs[0].dtype == DType::f64 ? sizeof(double) : sizeof(float));
    return with_real(outputs[0].dtype, [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void* work) {
            using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
            fold_rows(*plan, images, static_cast<const T*>(in[0]), static_cast<T*>(out[0]),
                      static_cast<Sum*>(work));
        }, workspace);
    });
}

// --- constants and complex parts ------------------------------------------------------------

Prepared prepare_full(const OpCall& call, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel();
    const uint64_t bits = bits_of(outputs[0].dtype, call.real("value"));
    return with_bytes(size_of(outputs[0].dtype), [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const*, void* const* out, void*) {
            T* to = static_cast<T*>(out[0]);
            parallel_for(
                n, 2 * kGrainBytes / static_cast<int64_t>(sizeof(T)), 16,
                [=](int64_t lo, int64_t hi) { std::fill(to + lo, to + hi, static_cast<T>(bits)); });
        });
    });
}

Prepared prepare_complex(const OpCall& call, std::span<const Type>) {
    const int64_t n = call.inputs[0].numel();
    return executable([=](void* const* in, void* const* out, void*) {
        const float *re = static_cast<const float*>(in[0]), *im = static_cast<const float*>(in[1]);
        float* to = static_cast<float*>(out[0]);
        parallel_for(n, 32768, 16, [=](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) {
                to[2 * i] = re[i];
                to[2 * i + 1] = im[i];
            }
        });
    });
}

Prepared prepare_part(const OpCall& call, std::span<const Type>) {
    const int64_t n = call.inputs[0].numel(), part = call.op.name == "imag" ? 1 : 0;
    return executable([=](void* const* in, void* const* out, void*) {
        const float* from = static_cast<const float*>(in[0]) + part;
        float* to = static_cast<float*>(out[0]);
        parallel_for(n, 32768, 16, [=](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) to[i] = from[2 * i];
        });
    });
}

}  // namespace

void register_copy_kernels() {
    register_kernel("reshape", prepare_reshape);
    register_kernel("broadcast_to", prepare_broadcast_to);
    register_kernel("transpose", prepare_transpose);
    register_kernel("slice", prepare_slice);
    register_kernel("slice_set", prepare_slice_set);
    register_kernel("concat", prepare_concat);
    register_kernel("pad", prepare_pad);
    register_kernel("pad_grad", prepare_pad_grad);
    register_kernel("full", prepare_full);
    register_kernel("complex", prepare_complex);
    register_kernel("real", prepare_part);
    register_kernel("imag", prepare_part);
}

}  // namespace megjit::cpu
