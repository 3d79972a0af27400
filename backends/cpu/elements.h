// backends/cpu/elements.h -- what the hand-written kernels share: storage types of elements, the
// type that they compute in, executables from functions, and copies between strided regions.
#pragma once

#include <bit>
#include <complex>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/executable.h"
#include "runtime/core/device.h"
#include "runtime/core/number_to_integer.h"
#include "runtime/host/half.h"
#include "runtime/host/parallel.h"
#include "runtime/ops/region.h"

namespace megjit::cpu {

using runtime::DType;
using runtime::OpCall;
using runtime::parallel_for;
using runtime::Shape;
using runtime::Type;

// --- elements -------------------------------------------------------------------------------

struct Half {
    uint16_t bits = 0;
};
struct BFloat {
    uint16_t bits = 0;
};
using Complex = std::complex<float>;

inline float widen(float v) { return v; }
inline double widen(double v) { return v; }
inline int64_t widen(int64_t v) { return v; }
inline Complex widen(Complex v) { return v; }
template <std::integral T>
int32_t widen(T v) {
    return v;
}
inline float widen(BFloat v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }
// Does what half_to_float does, without branches so that loops vectorise: normal numbers by moving
// the exponent, denormals by subtracting 0.5 after their bits were put into a float of 0.5.
inline float widen(Half v) {
    const uint32_t bits = static_cast<uint32_t>(v.bits) << 16, twice = bits + bits;
    const float normal = std::bit_cast<float>((twice >> 4) + (0xE0u << 23)) * 0x1p-112f;
    const float denormal = std::bit_cast<float>((twice >> 17) | (126u << 23)) - 0.5f;
    const uint32_t magnitude =
        twice < (1u << 27) ? std::bit_cast<uint32_t>(denormal) : std::bit_cast<uint32_t>(normal);
    return std::bit_cast<float>((bits & 0x80000000u) | magnitude);
}
template <class T>
using Computed = decltype(widen(T{}));

template <class T, class V>
T narrow_to(V v) {
    if constexpr (std::is_same_v<T, Half>) return {runtime::float_to_half(static_cast<float>(v))};
    else if constexpr (std::is_same_v<T, BFloat>)
        return {runtime::float_to_bfloat(static_cast<float>(v))};
    else if constexpr (std::is_same_v<T, int64_t> && std::is_floating_point_v<V>)
        return runtime::number_to_integer<int64_t>(static_cast<double>(v));
    else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<V>)
        return static_cast<T>(runtime::number_to_integer(v));
    else return static_cast<T>(v);
}

// Calls fn(std::type_identity<T>) with the storage type; bool is a byte of 0 or 1.
template <class Fn>
auto with_real(DType dtype, Fn&& fn) {
    switch (dtype) {
        case DType::f32: return fn(std::type_identity<float>{});
        case DType::f16: return fn(std::type_identity<Half>{});
        case DType::bf16: return fn(std::type_identity<BFloat>{});
        case DType::f64: return fn(std::type_identity<double>{});
        case DType::i64: return fn(std::type_identity<int64_t>{});
        case DType::i32: return fn(std::type_identity<int32_t>{});
        case DType::i16: return fn(std::type_identity<int16_t>{});
        case DType::i8: return fn(std::type_identity<int8_t>{});
        case DType::u16: return fn(std::type_identity<uint16_t>{});
        case DType::u8:
        case DType::b8: return fn(std::type_identity<uint8_t>{});
        case DType::c64: break;
    }
    runtime::user_error({.what = "this op has no kernel for complex64"}, runtime::ErrorKind::type);
}
template <class Fn>
auto with_any(DType dtype, Fn&& fn) {
    if (dtype == DType::c64) return fn(std::type_identity<Complex>{});
    return with_real(dtype, std::forward<Fn>(fn));
}
// Chooses the type by its size alone, for kernels that only move elements.
template <class Fn>
auto with_bytes(size_t bytes, Fn&& fn) {
    switch (bytes) {
        case 1: return fn(std::type_identity<uint8_t>{});
        case 2: return fn(std::type_identity<uint16_t>{});
        case 4: return fn(std::type_identity<uint32_t>{});
        default: return fn(std::type_identity<uint64_t>{});
    }
}

// --- copies ---------------------------------------------------------------------------------

using runtime::Region;
using runtime::Split;
using runtime::split_at;

void copy_region(const Region& merged_region, size_t element_bytes, const void* from, void* to);
void copy_bytes(const void* from, void* to, int64_t bytes);  // runs in parallel

}  // namespace megjit::cpu
