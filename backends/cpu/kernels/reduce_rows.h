// backends/cpu/kernels/reduce_rows.h -- what is reduced, and the loops over rows and columns that
// reduce.cpp and arg_reduce.cpp share.
//
// Narrow dtypes are widened block by block in the L1 cache, so that the loops exist only for float,
// int32, types of 64 bits and complex. Floats are added in the order of codegen/row_plan.h, as in
// generated kernels: in chains of eight, and the chains' sums in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/elements.h"
#include "codegen/row_plan.h"

namespace megjit::cpu { namespace {

constexpr int64_t kGroupElements = 32768;  // elements of a task, if several share a result
constexpr int64_t kStrip = 512;  // columns that one task reduces at a time
constexpr int kJoinLanes = 64;  // independent lanes, where the order of joining changes no bit
constexpr int64_t kShort = 32;  // many rows of fewer elements are reduced at a time

// --- what is reduced ------------------------------------------------------------------------

// The type in which elements are added and multiplied: integers wrap.
template <class C>
using Added = std::conditional_t<
    std::is_floating_point_v<C>, double,
    std::conditional_t<std::is_same_v<C, int64_t>, uint64_t,
                       std::conditional_t<std::is_integral_v<C>, uint32_t, std::complex<double>>>>;

struct Sum {
    template <class C>
    using Acc = Added<C>;
    template <class A>
    static constexpr A start() {
        return A{};
    }
    template <class A>
    static A join(A a, A b) {
        return a + b;
    }
};
// Integers are added as doubles: their sum is exact up to 2^53, and never wraps.
struct Mean : Sum {
    template <class C>
    using Acc = double;
};
struct Prod {
    template <class C>
    using Acc = Added<C>;
    template <class A>
    static constexpr A start() {
        return A{1};
    }
    template <class A>
    static A join(A a, A b) {
        return a * b;
    }
};
struct Max {
    template <class C>
    using Acc = C;
    template <class A>
    static constexpr A start() {
        return std::numeric_limits<A>::has_infinity ? -std::numeric_limits<A>::infinity()
                                                    : std::numeric_limits<A>::lowest();
    }
    template <class A>
    static A join(A a, A b) {
        return ((b > a) | (b != b)) ? b : a;
    }
};
struct Min {
    template <class C>
    using Acc = C;
    template <class A>
    static constexpr A start() {
        return std::numeric_limits<A>::has_infinity ? std::numeric_limits<A>::infinity()
                                                    : std::numeric_limits<A>::max();
    }
    template <class A>
    static A join(A a, A b) {
        return ((b < a) | (b != b)) ? b : a;
    }
};

template <class Op, class C>
using AccOf = typename Op::template Acc<C>;

template <class Op>
constexpr bool kAdds = std::is_base_of_v<Sum, Op>;
template <class Op, class C>
constexpr bool kInChains = kAdds<Op> && std::is_same_v<C, float>;
template <class Op>
constexpr int kLanesOf = kAdds<Op> || std::is_same_v<Op, Prod> ? codegen::kRowLanes : kJoinLanes;

constexpr int64_t kBlock = codegen::kChain * kStrip;  // elements that are widened at a time
static_assert(kBlock % (codegen::kChain * codegen::kRowLanes) == 0);  // a block has whole groups

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/reduce.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu { namespace {

// --- elements of every dtype, read as what they compute in ------------------------------------

template <class C>
struct Source {
    void (*widen)(const void* data, int64_t at, int64_t n,
                  C* to) = nullptr;  // a null `to`: the elements are of type C already
    const void* data = nullptr;

    const C* direct() const { return widen ? nullptr : static_cast<const C*>(data); }
    // n <= kBlock elements from `at` on: in the source itself, or widened in `room`.
    const C* block(int64_t at, int64_t n, C* room) const {
        if (!widen) return direct() + at;
        widen(data, at, n, room);
        return room;
    }
};
template <class T>
Source<Computed<T>> source_of() {
    if constexpr (std::is_same_v<T, Computed<T>>) return {};
    else return {.widen = MEGJIT_BEST(widen_block<T>)};
}

// --- rows -----------------------------------------------------------------------------------

// Joins each lane with its part of the n contiguous elements from `at` on.
template <class Op, class C>
void join_run(const Source<C>& x, int64_t at, int64_t n, AccOf<Op, C>* lanes, C* room) {
    for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t count = std::min(kBlock, n - i);
        MEGJIT_BEST(join_row<Op, C>)(x.block(at + i, count, room), count, lanes);
    }
}

// Joins all lanes.
template <class Op, class A>
A folded(A* lanes) {
    for (int half = kLanesOf<Op> / 2; half > 0; half /= 2)
        for (int j = 0; j < half; ++j) lanes[j] = Op::join(lanes[j], lanes[j + half]);
    return lanes[0];
}

// Reduces the n contiguous elements from `at` on.
template <class Op, class C>
AccOf<Op, C> reduce_row(const Source<C>& x, int64_t at, int64_t n, C* room) {
    using A = AccOf<Op, C>;
    A lanes[kLanesOf<Op>];
    std::fill(std::begin(lanes), std::end(lanes), Op::template start<A>());
    join_run<Op, C>(x, at, n, lanes, room);
    return folded<Op>(lanes);
}

// Joins acc[c] with each of `rows` rows of a source; n <= kStrip. It takes a chain of rows at a
// time: the order is the same as for all rows at once.
template <class Op, class C>
void reduce_columns(const Source<C>& x, int64_t at, int64_t rows, int64_t stride, int64_t n,
                    AccOf<Op, C>* acc, C* room) {
    if (x.direct()) return MEGJIT_BEST(join_columns<Op, C>)(x.direct() + at, rows, stride, n, acc);
    for (int64_t r = 0; r < rows; r += codegen::kChain) {
        const int64_t count = std::min<int64_t>(codegen::kChain, rows - r);
        for (int64_t i = 0; i < count; ++i) x.widen(x.data, at + (r + i) * stride, n, room + i * n);
        MEGJIT_BEST(join_columns<Op, C>)(room, count, n, n, acc);
    }
}

}}  // namespace megjit::cpu
