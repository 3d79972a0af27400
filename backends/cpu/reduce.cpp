// backends/cpu/reduce.cpp -- reductions. The order of additions follows from the shape alone, so that
// every number of threads gives the same bits.
//
// Neighbouring axes of one kind are merged. The elements of a result are then rows of contiguous elements
// (the last axis is reduced: "inner") or columns of rows (the last axis is kept: "outer"). Floats are added
// in trees of eight and the trees' sums in double: 1e-7 relative error for any length, at memory speed.
// Few results of many elements each are cut into groups, whose partial results are combined in order.
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/elements.h"

namespace megjit::cpu {
namespace {

constexpr int64_t kGroupElements = 32768;  // of one task, where a result is cut
constexpr int64_t kStrip = 512;            // columns that one task reduces at a time
constexpr int kSumLanes = 16, kJoinLanes = 64;  // independent chains: sums take eight values a step
constexpr int64_t kShort = 32;             // rows below this are reduced one element after the other

// --- what is reduced ------------------------------------------------------------------------

struct Sum {
    template <class C>
    using Acc = std::conditional_t<std::is_same_v<C, float>, double, std::conditional_t<std::is_integral_v<C>, uint32_t, std::complex<double>>>;
    template <class A>
    static constexpr A start() { return A{}; }
    template <class A>
    static A join(A a, A b) { return a + b; }
};
struct Prod {
    template <class C>
    using Acc = std::conditional_t<std::is_same_v<C, float>, double, uint32_t>;
    template <class A>
    static constexpr A start() { return A{1}; }
    template <class A>
    static A join(A a, A b) { return a * b; }
};
struct Max {
    template <class C>
    using Acc = C;
    template <class A>
    static constexpr A start() { return std::numeric_limits<A>::has_infinity ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::lowest(); }
    template <class A>
    static A join(A a, A b) { return ((b > a) | (b != b)) ? b : a; }
};
struct Min {
    template <class C>
    using Acc = C;
    template <class A>
    static constexpr A start() { return std::numeric_limits<A>::has_infinity ? std::numeric_limits<A>::infinity() : std::numeric_limits<A>::max(); }
    template <class A>
    static A join(A a, A b) { return ((b < a) | (b != b)) ? b : a; }
};

template <class Op, class T>
using AccOf = typename Op::template Acc<Computed<T>>;

// The sum of eight values, in the one order that all kernels use.
template <class C>
[[gnu::always_inline]] inline C tree(C a, C b, C c, C d, C e, C f, C g, C h) { return ((a + b) + (c + d)) + ((e + f) + (g + h)); }

// --- rows -----------------------------------------------------------------------------------

// The result of n contiguous elements.
template <class Op, class T>
MEGJIT_CLONES AccOf<Op, T> reduce_row(const T* x, int64_t n) {
    using A = AccOf<Op, T>;
    constexpr int kLanes = std::is_same_v<Op, Sum> ? kSumLanes : kJoinLanes;
    A lane[kLanes];
    for (A& v : lane) v = Op::template start<A>();
    int64_t i = 0;
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<Computed<T>, float>) {
        for (; i + 8 * kLanes <= n; i += 8 * kLanes)
            for (int j = 0; j < kLanes; ++j) {
                const T* p = x + i + j;
                lane[j] += static_cast<double>(tree(widen(p[0]), widen(p[kLanes]), widen(p[2 * kLanes]), widen(p[3 * kLanes]), widen(p[4 * kLanes]),
                                                    widen(p[5 * kLanes]), widen(p[6 * kLanes]), widen(p[7 * kLanes])));
            }
    }
    for (; i + kLanes <= n; i += kLanes)
        for (int j = 0; j < kLanes; ++j) lane[j] = Op::join(lane[j], static_cast<A>(widen(x[i + j])));
    for (int64_t j = 0; i + j < n; ++j) lane[j] = Op::join(lane[j], static_cast<A>(widen(x[i + j])));
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int j = 0; j < width; ++j) lane[j] = Op::join(lane[j], lane[j + width]);
    return lane[0];
}

// acc[c] joined with each of `rows` rows of `n` elements.
template <class Op, class T>
MEGJIT_CLONES void reduce_columns(const T* x, int64_t rows, int64_t stride, int64_t n, AccOf<Op, T>* acc) {
    using A = AccOf<Op, T>;
    int64_t r = 0;
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<Computed<T>, float>) {
        for (; r + 8 <= rows; r += 8) {
            const T *a = x + r * stride, *b = a + stride, *c = b + stride, *d = c + stride, *e = d + stride, *f = e + stride, *g = f + stride,
                    *h = g + stride;
            for (int64_t i = 0; i < n; ++i)
                acc[i] += static_cast<double>(tree(widen(a[i]), widen(b[i]), widen(c[i]), widen(d[i]), widen(e[i]), widen(f[i]), widen(g[i]), widen(h[i])));
        }
    }
    for (; r + 4 <= rows; r += 4) {
        const T *a = x + r * stride, *b = a + stride, *c = b + stride, *d = c + stride;
        for (int64_t i = 0; i < n; ++i)
            acc[i] = Op::join(Op::join(Op::join(Op::join(acc[i], static_cast<A>(widen(a[i]))), static_cast<A>(widen(b[i]))), static_cast<A>(widen(c[i]))),
                              static_cast<A>(widen(d[i])));
    }
    for (; r < rows; ++r) {
        const T* a = x + r * stride;
        for (int64_t i = 0; i < n; ++i) acc[i] = Op::join(acc[i], static_cast<A>(widen(a[i])));
    }
}

// --- the walk over a tensor -----------------------------------------------------------------

// Kept and reduced axes after merging; the last axis of the tensor stands apart.
struct Plan {
    Region kept;             // `from`: stride in x
    Region reduced;          // likewise, without the last axis
    int64_t kept_count = 1;  // products of the extents
    int64_t reduced_count = 1;
    int64_t last = 1;  // extent of the last axis
    bool inner = true;  // the last axis is reduced
    int64_t elements = 0;
    int64_t result_elements = 0;
    int64_t groups = 1;      // into which the reduced elements of one result are cut
    int64_t last_parts = 1;  // of these, into how many the last axis is cut (inner only)
};

int64_t offset_of(const Region& r, int64_t index) {
    int64_t offset = 0;
    for (int i = r.rank - 1; i >= 0 && index; --i) {
        offset += index % r.extent[i] * r.from[i];
        index /= r.extent[i];
    }
    return offset;
}

Plan plan_reduction(const Shape& shape, uint32_t mask) {
    struct Axis { int64_t extent = 1; bool reduced = false; };
    std::vector<Axis> axes;
    for (int i = 0; i < shape.rank(); ++i) {
        const bool reduced = mask >> i & 1u;
        if (shape[i] == 1) continue;
        if (!axes.empty() && axes.back().reduced == reduced) axes.back().extent *= shape[i];
        else axes.push_back({shape[i], reduced});
    }
    if (axes.empty()) axes.push_back({1, true});
    Plan plan;
    plan.elements = shape.numel();
    plan.last = axes.back().extent;
    plan.inner = axes.back().reduced;
    int64_t stride = plan.elements;
    for (size_t i = 0; i + 1 < axes.size(); ++i) {
        stride /= std::max<int64_t>(1, axes[i].extent);
        (axes[i].reduced ? plan.reduced : plan.kept).push(axes[i].extent, stride, 0);
        (axes[i].reduced ? plan.reduced_count : plan.kept_count) *= axes[i].extent;
    }
    plan.result_elements = plan.kept_count * (plan.inner ? 1 : plan.last);
    // Enough results keep every thread busy; otherwise each is cut into at most 64 groups.
    const int64_t tasks = plan.inner ? plan.kept_count : plan.kept_count * ((plan.last + kStrip - 1) / kStrip);
    if (tasks < 64 && plan.elements >= 4 * kGroupElements) {
        const int64_t wanted = std::clamp<int64_t>(plan.elements / kGroupElements / std::max<int64_t>(1, tasks), 1, 64);
        if (plan.inner && plan.reduced_count < wanted) plan.last_parts = (wanted + plan.reduced_count - 1) / plan.reduced_count;
        plan.groups = std::min(wanted, plan.reduced_count * plan.last_parts);
    }
    return plan;
}

// Part `group` of the reduction of kept element `k` (inner).
template <class Op, class T>
AccOf<Op, T> reduce_inner(const Plan& plan, const T* x, int64_t k, int64_t group) {
    using A = AccOf<Op, T>;
    const T* base = x + offset_of(plan.kept, k);
    const int64_t units = plan.reduced_count * plan.last_parts, part = (plan.last + plan.last_parts - 1) / plan.last_parts;
    const int64_t lo = units * group / plan.groups, hi = units * (group + 1) / plan.groups;
    A acc = Op::template start<A>();
    for (int64_t unit = lo; unit < hi; ++unit) {
        const int64_t begin = unit % plan.last_parts * part, end = std::min(plan.last, begin + part);
        if (begin < end) acc = Op::join(acc, reduce_row<Op, T>(base + offset_of(plan.reduced, unit / plan.last_parts) + begin, end - begin));
    }
    return acc;
}

// Part `group` of the reduction of columns [begin, begin + n) of kept row `k` (outer).
template <class Op, class T>
void reduce_outer(const Plan& plan, const T* x, int64_t k, int64_t group, int64_t begin, int64_t n, AccOf<Op, T>* acc) {
    using A = AccOf<Op, T>;
    const T* base = x + offset_of(plan.kept, k) + begin;
    for (int64_t i = 0; i < n; ++i) acc[i] = Op::template start<A>();
    int64_t lo = plan.reduced_count * group / plan.groups;
    const int64_t hi = plan.reduced_count * (group + 1) / plan.groups;
    const int64_t run = plan.reduced.rank ? plan.reduced.extent[plan.reduced.rank - 1] : 1;
    const int64_t stride = plan.reduced.rank ? plan.reduced.from[plan.reduced.rank - 1] : 0;
    while (lo < hi) {  // rows at one stride
        const int64_t rows = std::min(run - lo % run, hi - lo);
        reduce_columns<Op, T>(base + offset_of(plan.reduced, lo), rows, stride, n, acc);
        lo += rows;
    }
}

template <class Out, class A>
Out finish(A acc, double scale) {
    if constexpr (std::is_same_v<A, std::complex<double>>) return Out(static_cast<float>(acc.real()), static_cast<float>(acc.imag()));
    else if constexpr (std::is_floating_point_v<A>) return narrow_to<Out>(static_cast<float>(static_cast<double>(acc) * scale));
    else if constexpr (std::is_same_v<A, uint32_t>)
        return narrow_to<Out>(std::is_integral_v<Out> ? static_cast<int32_t>(acc) : static_cast<float>(static_cast<int32_t>(acc) * scale));
    else return narrow_to<Out>(acc);
}

// Results [lo, hi), of rows that are short and follow each other.
template <class Op, class T, class Out>
void reduce_short_rows(const T* x, int64_t length, int64_t lo, int64_t hi, double scale, Out* y) {
    using A = AccOf<Op, T>;
    for (int64_t i = lo; i < hi; ++i) {
        A acc = Op::template start<A>();
        for (int64_t j = 0; j < length; ++j) acc = Op::join(acc, static_cast<A>(widen(x[i * length + j])));
        y[i] = finish<Out>(acc, scale);
    }
}

template <class Op, class T, class Out>
void reduce_all(const Plan& plan, double scale, const T* x, Out* y, void* workspace) {
    using A = AccOf<Op, T>;
    if (plan.result_elements == 0) return;
    A* partial = static_cast<A*>(workspace);  // [result, group] inner, [group, result] outer
    const int64_t groups = plan.groups, work = plan.elements / std::max<int64_t>(1, plan.result_elements * groups);
    if (plan.inner) {
        const int64_t grain = std::max<int64_t>(1, kGroupElements / (work + 4));
        if (plan.last < kShort && plan.reduced_count == 1 && groups == 1)
            return parallel_for(plan.kept_count, grain, 16, [=, &plan](int64_t lo, int64_t hi) { reduce_short_rows<Op>(x, plan.last, lo, hi, scale, y); });
        parallel_for(plan.kept_count * groups, grain, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) {
                const A acc = reduce_inner<Op, T>(plan, x, i / groups, i % groups);
                if (groups == 1) y[i] = finish<Out>(acc, scale);
                else partial[i] = acc;
            }
        });
        if (groups == 1) return;
        for (int64_t k = 0; k < plan.kept_count; ++k) {
            A acc = partial[k * groups];
            for (int64_t g = 1; g < groups; ++g) acc = Op::join(acc, partial[k * groups + g]);
            y[k] = finish<Out>(acc, scale);
        }
        return;
    }
    const int64_t strips = (plan.last + kStrip - 1) / kStrip;
    const int64_t grain = std::max<int64_t>(1, kGroupElements / ((work + 1) * std::min(plan.last, kStrip)));
    parallel_for(plan.kept_count * strips * groups, grain, 1, [&](int64_t lo, int64_t hi) {
        A local[kStrip];
        for (int64_t i = lo; i < hi; ++i) {
            const int64_t group = i / (plan.kept_count * strips), k = i / strips % plan.kept_count;
            const int64_t begin = i % strips * kStrip, n = std::min(kStrip, plan.last - begin), at = k * plan.last + begin;
            A* acc = groups == 1 ? local : partial + group * plan.result_elements + at;
            reduce_outer<Op, T>(plan, x, k, group, begin, n, acc);
            if (groups == 1)
                for (int64_t c = 0; c < n; ++c) y[at + c] = finish<Out>(acc[c], scale);
        }
    });
    if (groups == 1) return;
    for (int64_t i = 0; i < plan.result_elements; ++i) {
        A acc = partial[i];
        for (int64_t g = 1; g < groups; ++g) acc = Op::join(acc, partial[g * plan.result_elements + i]);
        y[i] = finish<Out>(acc, scale);
    }
}

template <class Op, class T, class Out>
Prepared make_reduction(const Plan& plan, double scale) {
    const size_t workspace = plan.groups == 1 ? 0 : static_cast<size_t>(plan.groups * plan.result_elements) * sizeof(AccOf<Op, T>);
    return executable([=](void* const* in, void* const* out, void* work) {
        reduce_all<Op, T, Out>(plan, scale, static_cast<const T*>(in[0]), static_cast<Out*>(out[0]), work);
    }, workspace);
}

template <class Op, bool Widens>
Prepared prepare_reduction(const OpCall& call, std::span<const Type>) {
    const Type& x = call.inputs[0];
    uint32_t mask = 0;
    for (const int64_t axis : call.integers("axes")) mask |= 1u << axis;
    const Plan plan = plan_reduction(x.shape, mask);
    if constexpr (Widens) {
        if (x.dtype == DType::b8) return make_reduction<Op, uint8_t, int32_t>(plan, 1);
        if constexpr (std::is_same_v<Op, Sum>)
            if (x.dtype == DType::c64) return make_reduction<Op, Complex, Complex>(plan, 1);
    }
    return with_real(x.dtype, [&]<class T>(std::type_identity<T>) { return make_reduction<Op, T, T>(plan, 1); });
}

// Integers are added as integers, whose sum is exact up to 2^31.
Prepared prepare_mean(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    uint32_t mask = 0;
    for (const int64_t axis : call.integers("axes")) mask |= 1u << axis;
    const Plan plan = plan_reduction(x.shape, mask);
    const double count = static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, outputs[0].numel()));
    return with_real(x.dtype, [&]<class T>(std::type_identity<T>) { return make_reduction<Sum, T, float>(plan, 1 / count); });
}

// --- argmax and argmin ----------------------------------------------------------------------

// The first place of the extreme element of a row: the extreme of a block is found at full speed, and only
// a block that improves it is searched.
template <class Op, class T>
int32_t arg_row(const T* x, int64_t n) {
    using C = Computed<T>;
    constexpr int64_t kBlock = 256;
    C best = reduce_row<Op, T>(x, std::min(n, kBlock));
    int64_t block = 0;
    for (int64_t i = kBlock; i < n && best == best; i += kBlock) {
        const C found = reduce_row<Op, T>(x + i, std::min(kBlock, n - i));
        if (Op::join(best, found) == best) continue;
        best = found;
        block = i;
    }
    for (int64_t i = block; i < n; ++i) {
        const C v = widen(x[i]);
        if (v == best || v != v) return static_cast<int32_t>(i);
    }
    return 0;
}

template <class Op, class T>
MEGJIT_CLONES void arg_columns(const T* x, int64_t rows, int64_t stride, int64_t n, Computed<T>* best, int32_t* place) {
    for (int64_t i = 0; i < n; ++i) {
        best[i] = widen(x[i]);
        place[i] = 0;
    }
    for (int64_t r = 1; r < rows; ++r) {
        const T* row = x + r * stride;
        const auto index = static_cast<int32_t>(r);
        for (int64_t i = 0; i < n; ++i) {
            const auto v = widen(row[i]), b = best[i];
            const bool better = std::is_same_v<Op, Max> ? v > b : v < b, first_nan = (v != v) & (b == b);
            best[i] = (better | first_nan) ? v : b;
            place[i] = (better | first_nan) ? index : place[i];
        }
    }
}

template <class Op, class T>
void arg_all(const Split& s, const T* x, int32_t* y, int32_t* firsts) {
    if (s.inner > 1) {
        constexpr int64_t kColumns = 256;
        const int64_t strips = (s.inner + kColumns - 1) / kColumns;
        const int64_t grain = std::max<int64_t>(1, kGroupElements / (s.length * std::min(s.inner, kColumns)));
        return parallel_for(s.outer * strips, grain, 1, [&](int64_t lo, int64_t hi) {
            Computed<T> best[kColumns];
            for (int64_t i = lo; i < hi; ++i) {
                const int64_t begin = i % strips * kColumns, n = std::min(kColumns, s.inner - begin);
                arg_columns<Op, T>(x + i / strips * s.length * s.inner + begin, s.length, s.inner, n, best, y + i / strips * s.inner + begin);
            }
        });
    }
    // Long rows are cut, and the best of the parts' firsts is the row's.
    const int64_t parts = s.outer < 64 ? std::clamp<int64_t>(s.length / kGroupElements, 1, 64) : 1, part = (s.length + parts - 1) / parts;
    parallel_for(s.outer * parts, std::max<int64_t>(1, kGroupElements / part), 1, [&](int64_t lo, int64_t hi) {
        for (int64_t i = lo; i < hi; ++i) {
            const int64_t begin = std::min(s.length, i % parts * part), n = std::min(part, s.length - begin);
            firsts[i] = n > 0 ? static_cast<int32_t>(begin) + arg_row<Op, T>(x + i / parts * s.length + begin, n) : -1;
        }
    });
    for (int64_t k = 0; k < s.outer; ++k) {
        int32_t best = firsts[k * parts];
        for (int64_t g = 1; g < parts; ++g) {
            const int32_t other = firsts[k * parts + g];
            if (other < 0) continue;
            const auto a = widen(x[k * s.length + best]), b = widen(x[k * s.length + other]);
            if (a == a && !(Op::join(a, b) == a)) best = other;
        }
        y[k] = best;
    }
}

template <class Op>
Prepared prepare_arg(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (outputs[0].numel() == 0) return executable([](void* const*, void* const*, void*) {});
    const int axis = runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    const Split s = split_at(x.shape, axis);
    const size_t workspace = static_cast<size_t>(s.outer) * 64 * sizeof(int32_t);
    return with_real(x.dtype, [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void* work) {
            arg_all<Op, T>(s, static_cast<const T*>(in[0]), static_cast<int32_t*>(out[0]), static_cast<int32_t*>(work));
        }, s.inner > 1 ? 0 : s.outer < 64 ? workspace : workspace / 64);
    });
}

}  // namespace

void register_reduce_kernels() {
    register_kernel("reduce_sum", prepare_reduction<Sum, true>);
    register_kernel("reduce_prod", prepare_reduction<Prod, true>);
    register_kernel("reduce_max", prepare_reduction<Max, false>);
    register_kernel("reduce_min", prepare_reduction<Min, false>);
    register_kernel("reduce_mean", prepare_mean);
    register_kernel("argmax", prepare_arg<Max>);
    register_kernel("argmin", prepare_arg<Min>);
}

}  // namespace megjit::cpu
