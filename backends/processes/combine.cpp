#include "backends/processes/combine.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>

#include "runtime/host/error.h"
#include "runtime/host/half.h"
#include "runtime/host/parallel.h"

namespace megjit::processes {

using runtime::Combine;
using runtime::DType;

namespace {

constexpr int64_t kBlock = 1024;  // elements that stay in the L1 cache
constexpr int64_t kGrain = 64 * kBlock;  // elements of one thread

struct Half {
    uint16_t bits;
    using Wide = float;
    static float widen(Half v) { return runtime::half_to_float(v.bits); }
    static Half narrow(float v) { return {runtime::float_to_half(v)}; }
};
struct BFloat {
    uint16_t bits;
    using Wide = float;
    static float widen(BFloat v) { return runtime::bfloat_to_float(v.bits); }
    static BFloat narrow(float v) { return {runtime::float_to_bfloat(v)}; }
};
struct Bool {
    uint8_t value;
    using Wide = int32_t;
    static int32_t widen(Bool v) { return v.value; }
    static Bool narrow(int32_t v) { return {static_cast<uint8_t>(v != 0)}; }
};
// Integers wrap: they are added as unsigned numbers.
template <class T>
struct Plain {
    T value;
    using Wide = T;
    static T widen(Plain v) { return v.value; }
    static Plain narrow(T v) { return {v}; }
};

template <Combine op, class T>
T apply(T a, T b) {
    constexpr bool is_number = std::is_arithmetic_v<T>;
    if constexpr (op == Combine::sum || op == Combine::prod) {
        if constexpr (std::is_integral_v<T>) {
            using Natural = std::make_unsigned_t<decltype(+a)>;
            const auto x = static_cast<Natural>(a), y = static_cast<Natural>(b);
            return static_cast<T>(op == Combine::sum ? x + y : x * y);
        } else {
            return op == Combine::sum ? a + b : a * b;
        }
    } else if constexpr (is_number) {
        if constexpr (std::is_floating_point_v<T>)
            if (std::isnan(a) || std::isnan(b)) return a + b;
        return op == Combine::max ? std::max(a, b) : std::min(a, b);
    } else {
        return a;  // complex numbers have no order: inference refuses them
    }
}

template <class E, Combine op>
void combine_all(std::span<const void* const> parts, void* out, int64_t count) {
    using Wide = typename E::Wide;
    runtime::parallel_for(count, kGrain, kBlock, [&](int64_t lo, int64_t hi) {
        Wide sum[kBlock];
        for (int64_t at = lo; at < hi; at += kBlock) {
            const int64_t n = std::min(kBlock, hi - at);
            const E* first = static_cast<const E*>(parts[0]) + at;
            for (int64_t i = 0; i < n; ++i) sum[i] = E::widen(first[i]);
            for (const void* part : parts.subspan(1)) {
                const E* next = static_cast<const E*>(part) + at;
                for (int64_t i = 0; i < n; ++i) sum[i] = apply<op>(sum[i], E::widen(next[i]));
            }
            E* to = static_cast<E*>(out) + at;
            for (int64_t i = 0; i < n; ++i) to[i] = E::narrow(sum[i]);
        }
    });
}

template <class E>
void combine_by(std::span<const void* const> parts, void* out, int64_t count, Combine op) {
    switch (op) {
        case Combine::sum: return combine_all<E, Combine::sum>(parts, out, count);
        case Combine::prod: return combine_all<E, Combine::prod>(parts, out, count);
        case Combine::max: return combine_all<E, Combine::max>(parts, out, count);
        case Combine::min: return combine_all<E, Combine::min>(parts, out, count);
    }
}

}  // namespace

void combine(std::span<const void* const> parts, void* out, int64_t count, DType dtype,
             Combine op) {
    switch (dtype) {
        case DType::f32: return combine_by<Plain<float>>(parts, out, count, op);
        case DType::f16: return combine_by<Half>(parts, out, count, op);
        case DType::bf16: return combine_by<BFloat>(parts, out, count, op);
        case DType::i32: return combine_by<Plain<int32_t>>(parts, out, count, op);
        case DType::f64: return combine_by<Plain<double>>(parts, out, count, op);
        case DType::i64: return combine_by<Plain<int64_t>>(parts, out, count, op);
        case DType::i16: return combine_by<Plain<int16_t>>(parts, out, count, op);
        case DType::i8: return combine_by<Plain<int8_t>>(parts, out, count, op);
        case DType::u8: return combine_by<Plain<uint8_t>>(parts, out, count, op);
        case DType::u16: return combine_by<Plain<uint16_t>>(parts, out, count, op);
        case DType::b8: return combine_by<Bool>(parts, out, count, op);
        case DType::c64: return combine_by<Plain<std::complex<float>>>(parts, out, count, op);
    }
}

}  // namespace megjit::processes
