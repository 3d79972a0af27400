// backends/cpu/kernels/sort.cpp -- sort, topk and cumsum along one axis.
// An element becomes a 32-bit key whose unsigned order is that of the values, and travels with its
// place in one 64-bit word: the order of these words is a stable order of the elements.
#include <algorithm>
#include <cmath>

#include "backends/cpu/elements.h"

namespace megjit::cpu {
namespace {

// NaN counts as the largest number; -0 equals 0.
inline uint32_t key_of(float v) {
    if (v != v) return 0xFFFFFFFFu;
    const uint32_t bits = std::bit_cast<uint32_t>(v + 0.0f);
    return bits ^ ((bits >> 31) ? 0xFFFFFFFFu : 0x80000000u);
}
inline uint32_t key_of(int32_t v) { return static_cast<uint32_t>(v) ^ 0x80000000u; }
inline uint64_t key_of(double v) {
    if (v != v) return ~uint64_t{0};
    const auto bits = std::bit_cast<uint64_t>(v + 0.0);
    return bits ^ ((bits >> 63) ? ~uint64_t{0} : uint64_t{1} << 63);
}
inline uint64_t key_of(int64_t v) {
    return static_cast<uint64_t>(v) ^ uint64_t { 1 } << 63;
}

// Sorts by digits of the key, least significant first; digits that are all equal are skipped.
// Returns where the result is.
template <int kBits>
const uint64_t* radix_sort(uint64_t* words, uint64_t* spare, int64_t n) {
    constexpr int kBuckets = 1 << kBits;
    for (int shift = 32; shift < 64; shift += kBits) {
        int64_t begin[kBuckets] = {};
        for (int64_t i = 0; i < n; ++i) ++begin[words[i] >> shift & (kBuckets - 1)];
        if (begin[words[0] >> shift & (kBuckets - 1)] == n) continue;
        int64_t sum = 0;
        for (int64_t& count : begin) sum += std::exchange(count, sum);
        for (int64_t i = 0; i < n; ++i)
            spare[begin[words[i] >> shift & (kBuckets - 1)]++] = words[i];
        std::swap(words, spare);
    }
    return words;
}

struct Order {
    Split split;
    int64_t k = 0;  // results per line
    bool descending = false;
};

// A word with a key of 64 bits has no room for a place.
template <class T>
void sort_wide_line(const Order& order, const T* x, int64_t stride, T* values, int32_t* places,
                    uint64_t* words) {
    const int64_t n = order.split.length;
    auto* const order_of = reinterpret_cast<int32_t*>(words + n);
    for (int64_t i = 0; i < n; ++i) {
        words[i] = order.descending ? ~key_of(x[i * stride]) : key_of(x[i * stride]);
        order_of[i] = static_cast<int32_t>(i);
    }
    const auto before = [=](int32_t a, int32_t b) {
        return words[a] != words[b] ? words[a] < words[b] : a < b;
    };
    if (order.k < n) std::nth_element(order_of, order_of + order.k, order_of + n, before);
    std::sort(order_of, order_of + order.k, before);
    for (int64_t i = 0; i < order.k; ++i) {
        places[i * stride] = order_of[i];
        values[i * stride] = x[order_of[i] * stride];
    }
}

template <class T>
void sort_narrow_line(const Order& order, const T* x, int64_t stride, T* values, int32_t* places,
                      uint64_t* words) {
    const int64_t n = order.split.length, k = order.k;
    const uint32_t flip = order.descending ? 0xFFFFFFFFu : 0;
    for (int64_t i = 0; i < n; ++i)
        words[i] = static_cast<uint64_t>(key_of(widen(x[i * stride])) ^ flip) << 32 |
                   static_cast<uint64_t>(i);
    if (k < n) {
        std::nth_element(words, words + k, words + n);
        std::sort(words, words + k);
    } else if (n < 64) {
        std::sort(words, words + n);
    }
    const uint64_t* sorted = words;
    if (k == n && n >= 64)
        sorted =
            n < 16384 ? radix_sort<8>(words, words + n, n) : radix_sort<11>(words, words + n, n);
    for (int64_t i = 0; i < k; ++i) {
        const auto place = static_cast<int32_t>(sorted[i]);
        places[i * stride] = place;
        values[i * stride] = x[place * stride];
    }
}

template <class T>
void sort_line(const Order& order, const T* x, int64_t stride, T* values, int32_t* places,
               uint64_t* words) {
    if constexpr (sizeof(T) == 8) return sort_wide_line(order, x, stride, values, places, words);
    else sort_narrow_line(order, x, stride, values, places, words);
}

Prepared prepare_sort(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (x.rank() == 0) {
        const auto bytes = static_cast<int64_t>(x.bytes());
        return executable([=](void* const* in, void* const* out, void*) {
            copy_bytes(in[0], out[0], bytes);
            *static_cast<int32_t*>(out[1]) = 0;
        });
    }
    const int axis = runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    const Order order{.split = split_at(x.shape, axis),
                      .k = outputs[0].shape[axis],
                      .descending = call.flag("descending")};
    const int64_t lines = order.split.outer * order.split.inner, n = order.split.length;
    if (x.numel() == 0) return executable([](void* const*, void* const*, void*) {});
    return with_real(x.dtype, [&]<class T>(std::type_identity<T>) {
        return executable([=](void* const* in, void* const* out, void* work) {
            parallel_for(lines, std::max<int64_t>(1, 1024 / n), 1, [=](int64_t lo, int64_t hi) {
                const int64_t inner = order.split.inner;
                for (int64_t line = lo; line < hi; ++line) {
                    const int64_t from = line / inner * n * inner + line % inner,
                                  to = line / inner * order.k * inner + line % inner;
                    sort_line(order, static_cast<const T*>(in[0]) + from, inner,
                              static_cast<T*>(out[0]) + to, static_cast<int32_t*>(out[1]) + to,
                              static_cast<uint64_t*>(work) + 2 * n * line);
                }
            });
        }, static_cast<size_t>(2 * n * lines) * sizeof(uint64_t));
    });
}

// --- cumsum ---------------------------------------------------------------------------------

struct Scan {
    Split split;
    bool exclusive = false, reverse = false;
};

template <class Out, class A>
Out rounded(A a) {
    if constexpr (std::is_same_v<A, std::complex<double>>)
        return Out(static_cast<float>(a.real()), static_cast<float>(a.imag()));
    else if constexpr (std::is_same_v<Out, double>) return a;
    else if constexpr (std::is_same_v<A, double>) return narrow_to<Out>(static_cast<float>(a));
    else return static_cast<Out>(a);
}

// Sums columns side by side, one row after the other; floats are added up in double.
template <class T, class Out>
void scan_columns(const Scan& s, const T* x, Out* y, int64_t n) {
    using C = Computed<T>;
    using A = std::conditional_t<
        std::is_floating_point_v<C>, double,
        std::conditional_t<std::is_same_v<C, Complex>, std::complex<double>,
                           std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>>>;
    constexpr int64_t kColumns = 64;
    A acc[kColumns] = {};
    int64_t at = s.reverse ? (s.split.length - 1) * s.split.inner : 0;
    const int64_t step = s.reverse ? -s.split.inner : s.split.inner;
    for (int64_t r = 0; r < s.split.length; ++r, at += step)
        for (int64_t c = 0; c < n; ++c) {
            const A next = acc[c] + static_cast<A>(widen(x[at + c]));
            y[at + c] = rounded<Out>(s.exclusive ? acc[c] : next);
            acc[c] = next;
        }
}

template <class T, class Out>
Prepared make_scan(const Scan& s) {
    constexpr int64_t kColumns = 64;
    const int64_t strips = (s.split.inner + kColumns - 1) / kColumns;
    const int64_t grain = std::max<int64_t>(
        1, 16384 / std::max<int64_t>(1, s.split.length * std::min(kColumns, s.split.inner)));
    return executable([=](void* const* in, void* const* out, void*) {
        parallel_for(s.split.outer * strips, grain, 1, [=](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) {
                const int64_t column = i % strips * kColumns,
                              at = i / strips * s.split.length * s.split.inner + column;
                scan_columns(s, static_cast<const T*>(in[0]) + at, static_cast<Out*>(out[0]) + at,
                             std::min(kColumns, s.split.inner - column));
            }
        });
    });
}

Prepared prepare_cumsum(const OpCall& call, std::span<const Type>) {
    const Type& x = call.inputs[0];
    const int axis = runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    const Scan s{.split = split_at(x.shape, axis),
                 .exclusive = call.flag("exclusive"),
                 .reverse = call.flag("reverse")};
    if (x.dtype == DType::b8) return make_scan<uint8_t, int32_t>(s);
    return with_any(x.dtype, [&]<class T>(std::type_identity<T>) { return make_scan<T, T>(s); });
}

}  // namespace

void register_sort_kernels() {
    register_kernel("sort", prepare_sort);
    register_kernel("topk", prepare_sort);
    register_kernel("cumsum", prepare_cumsum);
}

}  // namespace megjit::cpu
