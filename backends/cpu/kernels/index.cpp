// backends/cpu/kernels/index.cpp -- kernels that read and write at places given by int32 tensors.
// All places are checked, in the calling thread, before anything is written. Threads share writes
// by their places in x, so that repeated places are written in the same order whatever the number
// of threads.
#include <vector>

#include "backends/cpu/elements.h"
#include "runtime/ops/boxes.h"
#include "runtime/ops/index.h"

#define MEGJIT_KERNELS "backends/cpu/kernels/index.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

void check_places(const std::string& op, const int32_t* index, int64_t n, int64_t axis,
                  int64_t extent) {
    if (MEGJIT_BEST(all_within)(index, n, -extent, extent)) return;
    for (int64_t i = 0; i < n; ++i)
        if (index[i] < -extent || index[i] >= extent)
            runtime::refuse_place(op, index[i], axis, extent);
}

inline int64_t wrapped(int32_t place, int64_t extent) { return place < 0 ? place + extent : place; }

// --- index_get, index_set, index_add --------------------------------------------------------

// x as [pre, places, rest..., run]: the axes before neighbouring index axes, these, and the axes
// after them.
struct Access {
    std::string op;
    struct Index {
        int64_t axis = 0, extent = 0, stride = 0, numel = 0;
        Region from;  // strides of the index tensor, broadcast to the places
    };
    std::vector<Index> indices = {};
    int64_t places = 1;
    int64_t pre = 1, pre_stride = 0;
    Region rest = {};  // whole axes between index axes that are not neighbours
    int64_t rest_count = 1;
    int64_t run = 1;  // contiguous elements
    int64_t x_elements = 0;
};

Access plan_access(const OpCall& call, size_t first) {
    Access a;
    a.op = call.op.name;
    const Shape& x = call.inputs[0].shape;
    const auto strides = x.row_major_strides();
    const auto& axes = call.integers("axes");
    Shape places;
    for (size_t k = first; k < call.inputs.size(); ++k)
        places = *broadcast(places, call.inputs[k].shape);
    a.places = places.numel();
    a.x_elements = x.numel();
    uint32_t mask = 0;
    bool adjacent = true;
    int last = 0;
    for (size_t k = 0; k < axes.size(); ++k) {
        const Shape& index = call.inputs[first + k].shape;
        const int axis = static_cast<int>(axes[k]);
        Access::Index one{.axis = axis,
                          .extent = x[axis],
                          .stride = strides[static_cast<size_t>(axis)],
                          .numel = index.numel(),
                          .from = {}};
        const auto from = index.row_major_strides(), to = places.row_major_strides();
        for (int i = 0; i < places.rank(); ++i) {
            const int j = i - (places.rank() - index.rank());
            one.from.push(places[i], j < 0 || index[j] == 1 ? 0 : from[static_cast<size_t>(j)],
                          to[static_cast<size_t>(i)]);
        }
        one.from = one.from.merged();
        a.indices.push_back(one);
        mask |= 1u << axis;
        last = std::max(last, axis);
        adjacent = adjacent && (k == 0 || axes[k] == axes[k - 1] + 1);
    }
    for (int i = last + 1; i < x.rank(); ++i) a.run *= x[i];
    if (adjacent) {
        for (int i = 0; i < axes[0]; ++i) a.pre *= x[i];
        a.pre_stride = axes[0] > 0 ? strides[static_cast<size_t>(axes[0]) - 1] : 0;
        return a;
    }
    for (int i = 0; i < last; ++i)
        if (!(mask >> i & 1u)) {
            a.rest.push(x[i], strides[static_cast<size_t>(i)], 0);
            a.rest_count *= x[i];
        }
    return a;
}

// Computes where each place begins in x, in elements; throws for a place outside.
void resolve(const Access& a, void* const* indices, int64_t* offsets) {
    for (size_t k = 0; k < a.indices.size(); ++k)
        if (a.places > 0)
            check_places(a.op, static_cast<const int32_t*>(indices[k]), a.indices[k].numel,
                         a.indices[k].axis, a.indices[k].extent);
    std::fill_n(offsets, a.places, int64_t{0});
    for (size_t k = 0; k < a.indices.size(); ++k) {
        const Access::Index& one = a.indices[k];
        const auto* index = static_cast<const int32_t*>(indices[k]);
        parallel_for(a.places, 65536, 1, [&](int64_t lo, int64_t hi) {
            if (one.from.rank == 1) {
                for (int64_t i = lo; i < hi; ++i)
                    offsets[i] +=
                        wrapped(index[i * one.from.axes[0].from], one.extent) * one.stride;
                return;
            }
            for (int64_t i = lo; i < hi; ++i) {
                int64_t left = i, at = 0;
                for (int d = one.from.rank - 1; d >= 0; --d) {
                    at += left % one.from.axes[d].extent * one.from.axes[d].from;
                    left /= one.from.axes[d].extent;
                }
                offsets[i] += wrapped(index[at], one.extent) * one.stride;
            }
        });
    }
}

int64_t rest_offset(const Region& rest, int64_t index) {
    int64_t offset = 0;
    for (int d = rest.rank - 1; d >= 0; --d) {
        offset += index % rest.axes[d].extent * rest.axes[d].from;
        index /= rest.axes[d].extent;
    }
    return offset;
}

// Calls use(offset in x, row of the value) for rows [lo, hi) of the value, in order.
template <class Use>
void for_rows(const Access& a, const int64_t* offsets, int64_t lo, int64_t hi, const Use& use) {
    if (lo >= hi) return;
    if (a.rest_count == 1) {
        int64_t p = lo / a.places, k = lo % a.places;
        for (int64_t row = lo; row < hi; ++row) {
            use(p * a.pre_stride + offsets[k], row);
            if (++k == a.places) k = 0, ++p;
        }
        return;
    }
    for (int64_t row = lo; row < hi; ++row)
        use(offsets[row / a.rest_count] + rest_offset(a.rest, row % a.rest_count), row);
}

int64_t row_count(const Access& a) { return a.run == 0 ? 0 : a.pre * a.places * a.rest_count; }

template <class T>
void get_rows(const Access& a, const int64_t* offsets, const T* x, T* y) {
    const int64_t run = a.run, grain = std::max<int64_t>(1, 32768 / (run + 4));
    parallel_for(row_count(a), grain, 1, [&](int64_t lo, int64_t hi) {
        if (run == 1)
            return for_rows(a, offsets, lo, hi,
                            [=](int64_t from, int64_t row) { y[row] = x[from]; });
        if (run * static_cast<int64_t>(sizeof(T)) < 64)
            return for_rows(a, offsets, lo, hi, [=](int64_t from, int64_t row) {
                for (int64_t i = 0; i < run; ++i) y[row * run + i] = x[from + i];
            });
        for_rows(a, offsets, lo, hi, [=](int64_t from, int64_t row) {
            std::memcpy(y + row * run, x + from, static_cast<size_t>(run) * sizeof(T));
        });
    });
}

// Applies put(to, from, count) to every row; each thread has a part of x to itself.
template <class T, class S, class Put>
void write_rows(const Access& a, const int64_t* offsets, const S* value, T* x, const Put& put) {
    const int64_t run = a.run, rows = row_count(a);
    if (a.pre >= runtime::thread_count()) {  // no place is in two of the parts along these axes
        const int64_t of_part = rows / a.pre;
        const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, of_part * run));
        return parallel_for(a.pre, grain, 1, [&](int64_t lo, int64_t hi) {
            for_rows(a, offsets, lo * of_part, hi * of_part,
                     [=, &put](int64_t to, int64_t row) { put(x + to, value + row * run, run); });
        });
    }
    const int64_t grain = rows * run < 65536
                              ? a.x_elements
                              : std::max<int64_t>(1, a.x_elements / runtime::thread_count());
    parallel_for(a.x_elements, grain, std::max<int64_t>(1, run), [&](int64_t lo, int64_t hi) {
        for_rows(a, offsets, 0, rows, [=, &put](int64_t to, int64_t row) {
            if (to >= lo && to < hi) put(x + to, value + row * run, run);
        });
    });
}

Prepared prepare_index_get(const OpCall& call, std::span<const Type>) {
    const Access a = plan_access(call, 1);
    return with_bytes(size_of(call.inputs[0].dtype), [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void* work) {
            resolve(a, in + 1, static_cast<int64_t*>(work));
            get_rows(a, static_cast<const int64_t*>(work), static_cast<const T*>(in[0]),
                     static_cast<T*>(out[0]));
        }, static_cast<size_t>(a.places) * sizeof(int64_t));
    });
}

Prepared prepare_index_set(const OpCall& call, std::span<const Type> outputs) {
    const Access a = plan_access(call, 2);
    const auto bytes = static_cast<int64_t>(outputs[0].bytes());
    return with_bytes(size_of(outputs[0].dtype), [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void* work) {
            resolve(a, in + 2, static_cast<int64_t*>(work));
            copy_bytes(in[0], out[0], bytes);
            write_rows(a, static_cast<const int64_t*>(work), static_cast<const T*>(in[1]),
                       static_cast<T*>(out[0]), [](T* to, const T* from, int64_t n) {
                for (int64_t i = 0; i < n; ++i) to[i] = from[i];
            });
        }, static_cast<size_t>(a.places) * sizeof(int64_t), true);
    });
}

// Chooses the type that adds as the dtype does: sums of integers wrap, so their signs do not
// matter.
template <class Fn>
auto with_terms(DType dtype, Fn&& fn) {
    switch (dtype) {
        case DType::f32: return fn(std::type_identity<float>{});
        case DType::f16: return fn(std::type_identity<Half>{});
        case DType::bf16: return fn(std::type_identity<BFloat>{});
        case DType::f64: return fn(std::type_identity<double>{});
        case DType::c64: return fn(std::type_identity<Complex>{});
        case DType::i64: return fn(std::type_identity<int64_t>{});
        case DType::i32: return fn(std::type_identity<int32_t>{});
        case DType::i16:
        case DType::u16: return fn(std::type_identity<int16_t>{});
        case DType::i8:
        case DType::u8:
        case DType::b8: break;
    }
    return fn(std::type_identity<int8_t>{});
}

template <class C, class T>
void add_row(C* to, const T* from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_integral_v<C>) {  // sums wrap
            using Natural = std::make_unsigned_t<decltype(+to[i])>;
            to[i] = static_cast<C>(static_cast<Natural>(to[i]) + static_cast<Natural>(from[i]));
        } else to[i] += widen(from[i]);
    }
}

// Halves are added up in float, in the workspace at `sums`, and are rounded once.
template <class T, class Add>
void with_sums(const void* x, void* y, int64_t n, float* sums, const Add& add) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>) {
        const T* from = static_cast<const T*>(x);
        for (int64_t i = 0; i < n; ++i) sums[i] = widen(from[i]);
        add(sums);
        for (int64_t i = 0; i < n; ++i) static_cast<T*>(y)[i] = narrow_to<T>(sums[i]);
    } else {
        copy_bytes(x, y, n * static_cast<int64_t>(sizeof(T)));
        add(static_cast<T*>(y));
    }
}
size_t sums_bytes(const Type& x) {
    return x.dtype == DType::f16 || x.dtype == DType::bf16
               ? static_cast<size_t>(x.numel()) * sizeof(float)
               : 0;
}

Prepared prepare_index_add(const OpCall& call, std::span<const Type> outputs) {
    const Access a = plan_access(call, 2);
    const int64_t n = outputs[0].numel();
    const size_t offsets_bytes = (static_cast<size_t>(a.places) * sizeof(int64_t) + 63) / 64 * 64;
    return with_terms(outputs[0].dtype, [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void* work) {
            const auto* offsets = static_cast<const int64_t*>(work);
            resolve(a, in + 2, static_cast<int64_t*>(work));
            with_sums<T>(in[0], out[0], n,
                         reinterpret_cast<float*>(static_cast<char*>(work) + offsets_bytes),
                         [&]<class C>(C* to) {
                write_rows(a, offsets, static_cast<const T*>(in[1]), to,
                           [](C* at, const T* from, int64_t count) { add_row(at, from, count); });
            });
        }, offsets_bytes + sums_bytes(outputs[0]), true);
    });
}

// --- gather and scatter ---------------------------------------------------------------------

// index as [outer axes, length, inner axes], and the strides of its lines in x.
struct Along {
    std::string op;
    int64_t axis = 0, extent = 0;  // the axis of x
    int64_t length = 1;  // extent of the index along the axis
    Region outer, inner;  // the other axes; `from`: strides of x, `to`: of the index
    int64_t outers = 1, inners = 1;
    int64_t x_stride = 1, elements = 0;
};

Along plan_along(const OpCall& call) {
    const Shape &x = call.inputs[0].shape, &index = call.inputs[1].shape;
    const int axis = runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    Along a{.op = call.op.name,
            .axis = axis,
            .extent = x[axis],
            .length = index[axis],
            .outer = {},
            .inner = {},
            .elements = index.numel()};
    const auto from = x.row_major_strides(), to = index.row_major_strides();
    a.x_stride = from[static_cast<size_t>(axis)];
    for (int i = 0; i < x.rank(); ++i) {
        if (i == axis) continue;
        (i < axis ? a.outer : a.inner)
            .push(index[i], from[static_cast<size_t>(i)], to[static_cast<size_t>(i)]);
        (i < axis ? a.outers : a.inners) *= index[i];
    }
    a.outer = a.outer.merged();
    a.inner = a.inner.merged();
    return a;
}

// Calls use(place in x, place in index) over lines [lo, hi) of outers x inners, each line in order.
template <class Use>
void for_lines(const Along& a, const int32_t* index, int64_t lo, int64_t hi, const Use& use) {
    while (lo < hi) {
        const int64_t o = lo / a.inners, first = lo % a.inners,
                      last = std::min(a.inners, first + hi - lo);
        const int64_t x_base = rest_offset(a.outer, o), index_base = o * a.length * a.inners;
        if (a.inner.rank == 1) {
            const int64_t step = a.inner.axes[0].extent == 1 ? 0 : a.inner.axes[0].from;
            for (int64_t j = 0; j < a.length; ++j)
                for (int64_t i = first; i < last; ++i) {
                    const int64_t at = index_base + j * a.inners + i;
                    use(x_base + wrapped(index[at], a.extent) * a.x_stride + i * step, at);
                }
        } else {
            for (int64_t i = first; i < last; ++i) {
                const int64_t base = x_base + rest_offset(a.inner, i);
                for (int64_t j = 0; j < a.length; ++j) {
                    const int64_t at = index_base + j * a.inners + i;
                    use(base + wrapped(index[at], a.extent) * a.x_stride, at);
                }
            }
        }
        lo += last - first;
    }
}

template <class Use>
void over_lines(const Along& a, const int32_t* index, const Use& use) {
    if (a.elements == 0) return;
    parallel_for(a.outers * a.inners, std::max<int64_t>(1, 16384 / a.length), 1,
                 [&](int64_t lo, int64_t hi) { for_lines(a, index, lo, hi, use); });
}

Prepared prepare_gather(const OpCall& call, std::span<const Type>) {
    const Along a = plan_along(call);
    return with_bytes(size_of(call.inputs[0].dtype), [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void*) {
            const auto* index = static_cast<const int32_t*>(in[1]);
            const T* x = static_cast<const T*>(in[0]);
            T* y = static_cast<T*>(out[0]);
            check_places(a.op, index, a.elements, a.axis, a.extent);
            if (a.outers * a.inners == 1 && a.elements > 0)  // a single line: reads may be divided
                return parallel_for(a.length, 32768, 1, [=](int64_t lo, int64_t hi) {
                    for (int64_t i = lo; i < hi; ++i)
                        y[i] = x[wrapped(index[i], a.extent) * a.x_stride];
                });
            over_lines(a, index, [=](int64_t from, int64_t at) { y[at] = x[from]; });
        });
    });
}

Prepared prepare_scatter(const OpCall& call, std::span<const Type> outputs) {
    const Along a = plan_along(call);
    const auto bytes = static_cast<int64_t>(outputs[0].bytes());
    return with_bytes(size_of(outputs[0].dtype), [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void*) {
            const auto* index = static_cast<const int32_t*>(in[1]);
            const T* source = static_cast<const T*>(in[2]);
            T* y = static_cast<T*>(out[0]);
            check_places(a.op, index, a.elements, a.axis, a.extent);
            copy_bytes(in[0], y, bytes);
            over_lines(a, index, [=](int64_t to, int64_t at) { y[to] = source[at]; });
        }, 0, true);
    });
}

Prepared prepare_scatter_add(const OpCall& call, std::span<const Type> outputs) {
    const Along a = plan_along(call);
    const int64_t n = outputs[0].numel();
    return with_terms(outputs[0].dtype, [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void* work) {
            const auto* index = static_cast<const int32_t*>(in[1]);
            const T* source = static_cast<const T*>(in[2]);
            check_places(a.op, index, a.elements, a.axis, a.extent);
            with_sums<T>(in[0], out[0], n, static_cast<float*>(work), [&]<class C>(C* y) {
                over_lines(a, index,
                           [=](int64_t to, int64_t at) { add_row(y + to, source + at, 1); });
            });
        }, sums_bytes(outputs[0]), true);
    });
}

// A function of `mode`, one call for each element: three loops a dtype would be three times as long
// to compile. NaN wins, and products of integers wrap.
template <class C>
auto combination(const std::string& mode) -> C (*)(C, C) {
    if (mode == "max") return [](C a, C b) { return b > a || b != b ? b : a; };
    if (mode == "min") return [](C a, C b) { return b < a || b != b ? b : a; };
    return [](C a, C b) {
        if constexpr (std::is_integral_v<C>) {
            using Natural = std::make_unsigned_t<decltype(a * b)>;
            return static_cast<C>(static_cast<Natural>(a) * static_cast<Natural>(b));
        } else return a * b;
    };
}

Prepared prepare_scatter_reduce(const OpCall& call, std::span<const Type> outputs) {
    const Along a = plan_along(call);
    const int64_t n = outputs[0].numel();
    return with_real(outputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
        return executable(
            [=, mode = call.text("mode")](void* const* in, void* const* out, void* work) {
            const auto* index = static_cast<const int32_t*>(in[1]);
            const T* source = static_cast<const T*>(in[2]);
            check_places(a.op, index, a.elements, a.axis, a.extent);
            with_sums<T>(in[0], out[0], n, static_cast<float*>(work), [&]<class C>(C* y) {
                over_lines(a, index, [=, combine = combination<C>(mode)](int64_t to, int64_t at) {
                    y[to] = combine(y[to], static_cast<C>(widen(source[at])));
                });
            });
        }, sums_bytes(outputs[0]), true);
    });
}

Prepared prepare_checked_index(const OpCall& call, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel(), axis = call.integer("axis"),
                  extent = call.integer("extent");
    return executable([=, op = call.text("op")](void* const* in, void* const* out, void*) {
        const auto* index = static_cast<const int32_t*>(in[0]);
        auto* y = static_cast<int32_t*>(out[0]);
        check_places(op, index, n, axis, extent);
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<int32_t>(wrapped(index[i], extent));
    }, 0, true);
}

Prepared prepare_checked_label(const OpCall& call, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel(), classes = call.integer("classes");
    return executable([=, op = call.text("op")](void* const* in, void* const* out, void*) {
        const auto* label = static_cast<const int32_t*>(in[0]);
        for (int64_t i = 0; i < n; ++i)
            if (label[i] < 0 || label[i] >= classes) runtime::refuse_label(op, label[i], classes);
        std::copy_n(label, n, static_cast<int32_t*>(out[0]));
    }, 0, true);
}

Prepared prepare_coordinates(const OpCall& call, std::span<const Type> outputs) {
    const Split s =
        split_at(outputs[0].shape,
                 runtime::normalize_axis(call.integer("axis"), outputs[0].rank(), call.op.name));
    return executable([=](void* const*, void* const* out, void*) {
        auto* y = static_cast<int32_t*>(out[0]);
        for (int64_t o = 0; o < s.outer; ++o)
            for (int64_t i = 0; i < s.length; ++i, y += s.inner)
                std::fill(y, y + s.inner, static_cast<int32_t>(i));
    });
}

// --- one_hot --------------------------------------------------------------------------------

using LabelAt = int64_t (*)(const void* labels, int64_t index);

// Null for dtypes that are no labels.
LabelAt label_reader(DType dtype) {
    return with_real(dtype, []<class L>(std::type_identity<L>) -> LabelAt {
        if constexpr (!std::is_integral_v<L>) return nullptr;
        else
            return [](const void* labels, int64_t i) {
                return static_cast<int64_t>(static_cast<const L*>(labels)[i]);
            };
    });
}

uint64_t bits_of_one(DType dtype) {
    return with_any(dtype, []<class T>(std::type_identity<T>) {
        const T one = narrow_to<T>(1.0f);
        uint64_t bits = 0;
        std::memcpy(&bits, &one, sizeof one);
        return bits;
    });
}

void check_labels(LabelAt label_at, const void* labels, int64_t n, int64_t classes) {
    for (int64_t i = 0; i < n; ++i)
        if (const int64_t label = label_at(labels, i); label < 0 || label >= classes)
            runtime::refuse_label("one_hot", label, classes);
}

Prepared prepare_one_hot(const OpCall& call, std::span<const Type> outputs) {
    const int64_t n = call.inputs[0].numel(), classes = call.integer("num_classes");
    const LabelAt label_at = label_reader(call.inputs[0].dtype);
    if (!label_at) return {};
    return with_bytes(size_of(outputs[0].dtype), [&]<class T>(std::type_identity<T>) {
        return executable([=, one = static_cast<T>(bits_of_one(outputs[0].dtype))](
                              void* const* in, void* const* out, void*) {
            check_labels(label_at, in[0], n, classes);
            T* y = static_cast<T*>(out[0]);
            parallel_for(n, std::max<int64_t>(1, 65536 / classes), 1,
                         [=, labels = in[0]](int64_t lo, int64_t hi) {
                std::fill(y + lo * classes, y + hi * classes, T{});
                for (int64_t i = lo; i < hi; ++i) y[i * classes + label_at(labels, i)] = one;
            });
        });
    });
}

// --- boxes ----------------------------------------------------------------------------------

Prepared prepare_nms_kept(const OpCall& call, std::span<const Type>) {
    return executable(
        [n = call.inputs[0].shape[0], thresh = static_cast<float>(call.real("iou_thresh"))](
            void* const* in, void* const* out, void*) {
        const auto* box = static_cast<const runtime::Box*>(in[0]);
        auto* stays = static_cast<uint8_t*>(out[0]);
        for (int64_t i = 0; i < n; ++i) {
            stays[i] = 1;
            for (int64_t k = 0; k < i && stays[i]; ++k)
                if (stays[k] && overlap(box[k], box[i]) > thresh) stays[i] = 0;
        }
    });
}

}  // namespace

void register_index_kernels() {
    register_kernel("index_get", prepare_index_get);
    register_kernel("index_set", prepare_index_set);
    register_kernel("index_add", prepare_index_add);
    register_kernel("gather", prepare_gather);
    register_kernel("scatter", prepare_scatter);
    register_kernel("scatter_add", prepare_scatter_add);
    register_kernel("scatter_reduce", prepare_scatter_reduce);
    register_kernel("checked_index", prepare_checked_index);
    register_kernel("checked_label", prepare_checked_label);
    register_kernel("coordinates", prepare_coordinates);
    register_kernel("one_hot", prepare_one_hot);
    register_kernel("nms_kept", prepare_nms_kept, [](const OpCall&) { return true; });
}

}  // namespace megjit::cpu
