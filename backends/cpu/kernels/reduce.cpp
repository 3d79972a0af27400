// backends/cpu/kernels/reduce.cpp -- reductions. The order of additions follows from the shape
// alone, so that every number of threads gives the same bits.
//
// Neighbouring axes of one kind are merged. The elements of a result are then rows of contiguous
// elements (the last axis is reduced: "inner") or columns of rows (the last axis is kept: "outer").
// If there are few results of many elements each, these are divided into groups, whose partial
// results are combined in order.
#include <vector>

#include "backends/cpu/kernels/reduce_rows.h"

namespace megjit::cpu {
namespace {

// --- the walk over a tensor -----------------------------------------------------------------

// Kept and reduced axes after merging; the last axis of the tensor is separate.
struct Plan {
    Region kept;  // `from`: stride in x
    Region reduced;  // likewise, but without the last axis
    int64_t kept_count = 1;  // products of the extents
    int64_t reduced_count = 1;
    int64_t last = 1;  // extent of the last axis
    bool inner = true;  // the last axis is reduced
    int64_t elements = 0;
    int64_t result_elements = 0;
    int64_t groups = 1;  // groups of reduced elements of one result
    int64_t last_parts = 1;  // parts of the last axis among these (inner only)
};

int64_t offset_of(const Region& r, int64_t index) {
    int64_t offset = 0;
    for (int i = r.rank - 1; i >= 0 && index; --i) {
        offset += index % r.axes[i].extent * r.axes[i].from;
        index /= r.axes[i].extent;
    }
    return offset;
}

Plan plan_reduction(const Shape& shape, uint32_t mask) {
    struct Axis {
        int64_t extent = 1;
        bool reduced = false;
    };
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
    // Many results keep every thread busy; otherwise each is divided into at most 64 groups.
    const int64_t tasks =
        plan.inner ? plan.kept_count : plan.kept_count * ((plan.last + kStrip - 1) / kStrip);
    if (tasks < 64 && plan.elements >= 4 * kGroupElements) {
        const int64_t wanted = std::clamp<int64_t>(
            plan.elements / kGroupElements / std::max<int64_t>(1, tasks), 1, 64);
        if (plan.inner && plan.reduced_count < wanted)
            plan.last_parts = (wanted + plan.reduced_count - 1) / plan.reduced_count;
        plan.groups = std::min(wanted, plan.reduced_count * plan.last_parts);
    }
    return plan;
}

// Reduces part `group` of kept element `k` (inner).
template <class Op, class C>
AccOf<Op, C> reduce_inner(const Plan& plan, const Source<C>& x, int64_t k, int64_t group, C* room) {
    using A = AccOf<Op, C>;
    const int64_t base = offset_of(plan.kept, k);
    const int64_t units = plan.reduced_count * plan.last_parts,
                  part = (plan.last + plan.last_parts - 1) / plan.last_parts;
    const int64_t lo = units * group / plan.groups, hi = units * (group + 1) / plan.groups;
    A lanes[kLanesOf<Op>];
    std::fill(std::begin(lanes), std::end(lanes), Op::template start<A>());
    for (int64_t unit = lo; unit < hi; ++unit) {
        const int64_t begin = unit % plan.last_parts * part,
                      end = std::min(plan.last, begin + part);
        if (begin < end)
            join_run<Op, C>(x, base + offset_of(plan.reduced, unit / plan.last_parts) + begin,
                            end - begin, lanes, room);
    }
    return folded<Op>(lanes);
}

// Reduces part `group` of columns [begin, begin + n) of kept row `k` (outer).
template <class Op, class C>
void reduce_outer(const Plan& plan, const Source<C>& x, int64_t k, int64_t group, int64_t begin,
                  int64_t n, AccOf<Op, C>* acc, C* room) {
    using A = AccOf<Op, C>;
    const int64_t base = offset_of(plan.kept, k) + begin;
    for (int64_t i = 0; i < n; ++i) acc[i] = Op::template start<A>();
    int64_t lo = plan.reduced_count * group / plan.groups;
    const int64_t hi = plan.reduced_count * (group + 1) / plan.groups;
    const int64_t run = plan.reduced.rank ? plan.reduced.axes[plan.reduced.rank - 1].extent : 1;
    const int64_t stride = plan.reduced.rank ? plan.reduced.axes[plan.reduced.rank - 1].from : 0;
    while (lo < hi) {  // takes rows with one stride between them
        const int64_t rows = std::min(run - lo % run, hi - lo);
        reduce_columns<Op, C>(x, base + offset_of(plan.reduced, lo), rows, stride, n, acc, room);
        lo += rows;
    }
}

template <class Out, class A>
Out finish(A acc, double divisor) {
    if constexpr (std::is_same_v<A, std::complex<double>>)
        return Out(static_cast<float>(acc.real()), static_cast<float>(acc.imag()));
    else if constexpr (std::is_floating_point_v<A> && std::is_same_v<Out, double>)
        return static_cast<double>(acc) / divisor;
    else if constexpr (std::is_floating_point_v<A>)
        return narrow_to<Out>(static_cast<float>(static_cast<double>(acc) / divisor));
    else if constexpr (std::is_unsigned_v<A>) return static_cast<Out>(acc);
    else return narrow_to<Out>(acc);
}

// Where results go, and in which dtype.
template <class A>
struct Sink {
    void (*store)(const A* acc, int64_t n, double divisor, void* y, int64_t at) = nullptr;
    double divisor = 1;
    void* y = nullptr;

    void put(const A* acc, int64_t n, int64_t at) const { store(acc, n, divisor, y, at); }
};
template <class Out, class A>
void store_as(const A* acc, int64_t n, double divisor, void* y, int64_t at) {
    for (int64_t i = 0; i < n; ++i) static_cast<Out*>(y)[at + i] = finish<Out>(acc[i], divisor);
}

// Computes results [lo, hi) of short rows that follow each other.
template <class Op, class C>
void reduce_short_rows(const Source<C>& x, int64_t length, int64_t lo, int64_t hi,
                       const Sink<AccOf<Op, C>>& y) {
    using A = AccOf<Op, C>;
    C room[kShort * kStrip / 4];
    A acc[kStrip / 4];
    for (int64_t i = lo; i < hi; i += kStrip / 4) {
        const int64_t rows = std::min(kStrip / 4, hi - i);
        const C* row = x.block(i * length, rows * length, room);
        if constexpr (kAdds<Op> && std::is_floating_point_v<C>) {
            MEGJIT_BEST(sum_short_rows<C, A>)(row, rows, length, acc);
        } else {
            for (int64_t r = 0; r < rows; ++r, row += length) {
                acc[r] = Op::template start<A>();
                for (int64_t j = 0; j < length; ++j)
                    acc[r] = Op::join(acc[r], static_cast<A>(row[j]));
            }
        }
        y.put(acc, rows, i);
    }
}

template <class Op, class C>
void reduce_all(const Plan& plan, const Source<C>& x, const Sink<AccOf<Op, C>>& y,
                void* workspace) {
    using A = AccOf<Op, C>;
    if (plan.result_elements == 0) return;
    A* partial = static_cast<A*>(workspace);  // inner: [result, group], outer: [group, result]
    const int64_t groups = plan.groups,
                  work = plan.elements / std::max<int64_t>(1, plan.result_elements * groups);
    if (plan.inner) {
        const int64_t grain = std::max<int64_t>(1, kGroupElements / (work + 4));
        if (plan.last < kShort && plan.reduced_count == 1 && groups == 1)
            return parallel_for(plan.kept_count, grain, 16, [&](int64_t lo, int64_t hi) {
                reduce_short_rows<Op, C>(x, plan.last, lo, hi, y);
            });
        parallel_for(plan.kept_count * groups, grain, 1, [&](int64_t lo, int64_t hi) {
            C room[kBlock];
            for (int64_t i = lo; i < hi; ++i) {
                const A acc = reduce_inner<Op, C>(plan, x, i / groups, i % groups, room);
                if (groups == 1) y.put(&acc, 1, i);
                else partial[i] = acc;
            }
        });
        if (groups == 1) return;
        for (int64_t k = 0; k < plan.kept_count; ++k) {
            A acc = partial[k * groups];
            for (int64_t g = 1; g < groups; ++g) acc = Op::join(acc, partial[k * groups + g]);
            y.put(&acc, 1, k);
        }
        return;
    }
    const int64_t strips = (plan.last + kStrip - 1) / kStrip;
    const int64_t grain =
        std::max<int64_t>(1, kGroupElements / ((work + 1) * std::min(plan.last, kStrip)));
    parallel_for(plan.kept_count * strips * groups, grain, 1, [&](int64_t lo, int64_t hi) {
        A local[kStrip];
        C room[kBlock];
        for (int64_t i = lo; i < hi; ++i) {
            const int64_t group = i / (plan.kept_count * strips), k = i / strips % plan.kept_count;
            const int64_t begin = i % strips * kStrip, n = std::min(kStrip, plan.last - begin),
                          at = k * plan.last + begin;
            A* acc = groups == 1 ? local : partial + group * plan.result_elements + at;
            reduce_outer<Op, C>(plan, x, k, group, begin, n, acc, room);
            if (groups == 1) y.put(acc, n, at);
        }
    });
    if (groups == 1) return;
    for (int64_t g = 1; g < groups; ++g)
        for (int64_t i = 0; i < plan.result_elements; ++i)
            partial[i] = Op::join(partial[i], partial[g * plan.result_elements + i]);
    y.put(partial, plan.result_elements, 0);
}

template <class Op, class C>
Prepared executable_of(const Plan& plan, Source<C> x, Sink<AccOf<Op, C>> y) {
    const size_t workspace =
        plan.groups == 1
            ? 0
            : static_cast<size_t>(plan.groups * plan.result_elements) * sizeof(AccOf<Op, C>);
    return executable([=](void* const* in, void* const* out, void* work) {
        Source<C> from = x;
        Sink<AccOf<Op, C>> to = y;
        from.data = in[0];
        to.y = out[0];
        reduce_all<Op, C>(plan, from, to, work);
    }, workspace);
}

template <class Op, class T, class Out>
Prepared make_reduction(const Plan& plan, double divisor) {
    using C = Computed<T>;
    return executable_of<Op, C>(plan, source_of<T>(),
                                {.store = store_as<Out, AccOf<Op, C>>, .divisor = divisor});
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
    return with_real(
        x.dtype, [&]<class T>(std::type_identity<T>) { return make_reduction<Op, T, T>(plan, 1); });
}

Prepared prepare_mean(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    uint32_t mask = 0;
    for (const int64_t axis : call.integers("axes")) mask |= 1u << axis;
    const Plan plan = plan_reduction(x.shape, mask);
    const double count = static_cast<double>(x.numel()) /
                         static_cast<double>(std::max<int64_t>(1, outputs[0].numel()));
    return with_real(x.dtype, [&]<class T>(std::type_identity<T>) {
        return make_reduction<Mean, T,
                              std::conditional_t<std::is_same_v<T, double>, double, float>>(plan,
                                                                                            count);
    });
}

}  // namespace

void register_reduce_kernels() {
    register_kernel("reduce_sum", prepare_reduction<Sum, true>);
    register_kernel("reduce_prod", prepare_reduction<Prod, true>);
    register_kernel("reduce_max", prepare_reduction<Max, false>);
    register_kernel("reduce_min", prepare_reduction<Min, false>);
    register_kernel("even_max", prepare_reduction<Max, false>);
    register_kernel("even_min", prepare_reduction<Min, false>);
    register_kernel("reduce_mean", prepare_mean);
}

}  // namespace megjit::cpu
