// backends/cpu/reduce_rows.h -- what is reduced, and the loops over rows and columns that
// reduce.cpp and arg_reduce.cpp share.
//
// Narrow dtypes are widened block by block in the L1 cache, so that the loops exist for float,
// int32 and complex alone. Floats are added in trees of eight and the trees' sums in double: 1e-7
// relative error for any length, at memory speed.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/elements.h"

namespace megjit::cpu { namespace {

constexpr int64_t kGroupElements = 32768;  // of one task, where a result is cut
constexpr int64_t kStrip = 512;  // columns that one task reduces at a time
constexpr int kSumLanes = 16, kJoinLanes = 64;  // independent chains: sums take eight values a step
constexpr int64_t kShort = 32;  // rows below this are reduced one element after the other

// --- what is reduced ------------------------------------------------------------------------

struct Sum {
    template <class C>
    using Acc = std::conditional_t<
        std::is_same_v<C, float>, double,
        std::conditional_t<std::is_integral_v<C>, uint32_t, std::complex<double>>>;
    template <class A>
    static constexpr A start() {
        return A{};
    }
    template <class A>
    static A join(A a, A b) {
        return a + b;
    }
};
struct Prod {
    template <class C>
    using Acc = std::conditional_t<std::is_same_v<C, float>, double, uint32_t>;
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

// The sum of eight values, in the one order that all kernels use.
template <class C>
[[gnu::always_inline]] inline C tree(C a, C b, C c, C d, C e, C f, C g, C h) {
    return ((a + b) + (c + d)) + ((e + f) + (g + h));
}

template <class Op>
constexpr int kChains = std::is_same_v<Op, Sum> ? kSumLanes : kJoinLanes;

constexpr int64_t kBlock = 8 * kStrip;  // elements that are widened at a time

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/reduce.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu { namespace {

// --- elements of every dtype, read as what they compute in ------------------------------------

template <class C>
struct Source {
    void (*widen)(const void* data, int64_t at, int64_t n,
                  C* to) = nullptr;  // null: the elements are C themselves
    const void* data = nullptr;

    const C* direct() const { return widen ? nullptr : static_cast<const C*>(data); }
    // n <= kBlock elements from `at` on: where they lie, or in `room`.
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

// The result of the n contiguous elements from `at` on.
template <class Op, class C>
AccOf<Op, C> reduce_row(const Source<C>& x, int64_t at, int64_t n, C* room) {
    using A = AccOf<Op, C>;
    A lane[kChains<Op>];
    for (A& v : lane) v = Op::template start<A>();
    for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t count = std::min(kBlock, n - i);
        MEGJIT_BEST(join_row<Op, C>)(x.block(at + i, count, room), count, lane);
    }
    for (int width = kChains<Op> / 2; width > 0; width /= 2)
        for (int j = 0; j < width; ++j) lane[j] = Op::join(lane[j], lane[j + width]);
    return lane[0];
}

// The same of a source; n <= kStrip. Eight rows at a time, whose order of additions is that of all
// rows at once.
template <class Op, class C>
void reduce_columns(const Source<C>& x, int64_t at, int64_t rows, int64_t stride, int64_t n,
                    AccOf<Op, C>* acc, C* room) {
    if (x.direct()) return MEGJIT_BEST(join_columns<Op, C>)(x.direct() + at, rows, stride, n, acc);
    for (int64_t r = 0; r < rows; r += 8) {
        const int64_t count = std::min<int64_t>(8, rows - r);
        for (int64_t i = 0; i < count; ++i) x.widen(x.data, at + (r + i) * stride, n, room + i * n);
        MEGJIT_BEST(join_columns<Op, C>)(room, count, n, n, acc);
    }
}

}}  // namespace megjit::cpu
