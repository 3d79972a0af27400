// backends/cpu/vm/vm_kernels.inl -- the bodies of the loops in vm_kernels.h. It is compiled for
// several instruction sets: nothing here may be an inline function that other files share.
#include <cmath>
#include <cstring>

#include "backends/cpu/lanes.h"
#include "backends/cpu/vm/vm_kernels.h"
#include "runtime/core/scalar_math.h"

namespace megjit::cpu::MEGJIT_LEVEL {
namespace {

namespace math = megjit::runtime::math;

template <class T>
const T* at(const void* base, int64_t i) {
    return static_cast<const T*>(base) + i;
}
inline void* at(void* base, int64_t i) { return static_cast<int32_t*>(base) + i; }

// out[i] = f(a[i], b[i], c[i]) over as many operands as Args. A long body is written once, with the
// partial vector inside the loop; a short one gets a loop without branches.
template <bool is_long, auto f, class... Args>
void loop(void* out, const void* a, const void* b, const void* c, int64_t n) {
    const void* const from[] = {a, b, c};
    const auto whole = [&]<size_t... k>(int64_t i, std::index_sequence<k...>) {
        return f(load<Args>(at<int32_t>(from[k], i))...);
    };
    const auto some = [&]<size_t... k>(int64_t i, int count, std::index_sequence<k...>) {
        return f(load_some<Args>(at<int32_t>(from[k], i), count)...);
    };
    constexpr auto all = std::index_sequence_for<Args...>();
    int64_t i = 0;
    if constexpr (is_long) {
        for (; i < n; i += kLanes) {
            const int count = static_cast<int>(n - i < kLanes ? n - i : kLanes);
            const auto result = [&]<size_t... k>(std::index_sequence<k...>) {
                return f((count == kLanes ? load<Args>(at<int32_t>(from[k], i))
                                          : load_some<Args>(at<int32_t>(from[k], i), count))...);
            }(all);
            if (count == kLanes) store(at(out, i), result);
            else store_some(at(out, i), result, count);
        }
    } else {
        for (; i + kLanes <= n; i += kLanes) store(at(out, i), whole(i, all));
        if (i < n)
            store_some(at(out, i), some(i, static_cast<int>(n - i), all), static_cast<int>(n - i));
    }
}

// One element at a time, for what has no vector form.
template <class T, auto f>
void scalar_loop(void* out, const void* a, const void* b, const void*, int64_t n) {
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[i] = f(at<T>(a, 0)[i], at<T>(b, 0)[i]);
}

int32_t floor_mod(int32_t a, int32_t b) {
    if (b == 0 || b == -1) return 0;
    const int32_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
int32_t floor_div(int32_t a, int32_t b) {
    if (b == 0) return 0;
    if (b == -1) return static_cast<int32_t>(0u - static_cast<uint32_t>(a));
    return (a / b) - ((a % b != 0) && ((a % b < 0) != (b < 0)));
}

StepFn f32_step(ScalarOp op) {
    switch (op) {
        case ScalarOp::add: return loop<false, [](F32 a, F32 b) { return a + b; }, F32, F32>;
        case ScalarOp::sub: return loop<false, [](F32 a, F32 b) { return a - b; }, F32, F32>;
        case ScalarOp::mul: return loop<false, [](F32 a, F32 b) { return a * b; }, F32, F32>;
        case ScalarOp::div: return loop<false, [](F32 a, F32 b) { return a / b; }, F32, F32>;
        case ScalarOp::mod:
            return scalar_loop<float, [](float a, float b) { return ::fmodf(a, b); }>;
        case ScalarOp::neg: return loop<false, [](F32 a) { return -a; }, F32>;
        case ScalarOp::abs: return loop<false, [](F32 a) { return abs(a); }, F32>;
        case ScalarOp::max: return loop<false, [](F32 a, F32 b) { return max(a, b); }, F32, F32>;
        case ScalarOp::min: return loop<false, [](F32 a, F32 b) { return min(a, b); }, F32, F32>;
        case ScalarOp::fma:
            return loop<false, [](F32 a, F32 b, F32 c) { return fma(a, b, c); }, F32, F32, F32>;
        case ScalarOp::sqrt: return loop<false, [](F32 a) { return sqrt(a); }, F32>;
        case ScalarOp::floor: return loop<false, [](F32 a) { return floor(a); }, F32>;
        case ScalarOp::ceil: return loop<false, [](F32 a) { return ceil(a); }, F32>;
        case ScalarOp::trunc: return loop<false, [](F32 a) { return trunc(a); }, F32>;
        case ScalarOp::round_even: return loop<false, [](F32 a) { return round_even(a); }, F32>;
        case ScalarOp::lt: return loop<false, [](F32 a, F32 b) { return a < b; }, F32, F32>;
        case ScalarOp::le: return loop<false, [](F32 a, F32 b) { return a <= b; }, F32, F32>;
        case ScalarOp::eq: return loop<false, [](F32 a, F32 b) { return eq(a, b); }, F32, F32>;
        case ScalarOp::ne: return loop<false, [](F32 a, F32 b) { return ne(a, b); }, F32, F32>;
        case ScalarOp::f32_to_i32: return loop<false, [](F32 a) { return to_int(a); }, F32>;
        case ScalarOp::bits_f32_to_i32: return loop<false, [](F32 a) { return a; }, F32>;
#define MEGJIT_LONG(name) \
    case ScalarOp::name: return loop<true, [](F32 a) { return math::name<F32>(a); }, F32>;
            MEGJIT_LONG(exp)
            MEGJIT_LONG(expm1)
            MEGJIT_LONG(log)
            MEGJIT_LONG(log1p)
            MEGJIT_LONG(sin)
            MEGJIT_LONG(cos)
            MEGJIT_LONG(tan)
            MEGJIT_LONG(asin)
            MEGJIT_LONG(acos)
            MEGJIT_LONG(atan)
            MEGJIT_LONG(sinh)
            MEGJIT_LONG(cosh)
            MEGJIT_LONG(tanh)
            MEGJIT_LONG(asinh)
            MEGJIT_LONG(acosh)
            MEGJIT_LONG(atanh)
            MEGJIT_LONG(erf)
            MEGJIT_LONG(erfc)
            MEGJIT_LONG(erfinv)
            MEGJIT_LONG(lgamma)
            MEGJIT_LONG(digamma)
#undef MEGJIT_LONG
        case ScalarOp::atan2:
            return loop<true, [](F32 a, F32 b) { return math::atan2<F32>(a, b); }, F32, F32>;
        case ScalarOp::pow:
            return loop<true, [](F32 a, F32 b) { return math::pow<F32>(a, b); }, F32, F32>;
        default: return nullptr;
    }
}

StepFn i32_step(ScalarOp op) {
    switch (op) {
        case ScalarOp::add: return loop<false, [](I32 a, I32 b) { return a + b; }, I32, I32>;
        case ScalarOp::sub: return loop<false, [](I32 a, I32 b) { return a - b; }, I32, I32>;
        case ScalarOp::mul: return loop<false, [](I32 a, I32 b) { return a * b; }, I32, I32>;
        case ScalarOp::div: return scalar_loop<int32_t, floor_div>;
        case ScalarOp::mod: return scalar_loop<int32_t, floor_mod>;
        case ScalarOp::neg: return loop<false, [](I32 a) { return splat(0) - a; }, I32>;
        case ScalarOp::abs:
            return loop<false, [](I32 a) { return select(a < splat(0), splat(0) - a, a); }, I32>;
        case ScalarOp::max: return loop<false, [](I32 a, I32 b) { return max(a, b); }, I32, I32>;
        case ScalarOp::min: return loop<false, [](I32 a, I32 b) { return min(a, b); }, I32, I32>;
        case ScalarOp::bit_and: return loop<false, [](I32 a, I32 b) { return a & b; }, I32, I32>;
        case ScalarOp::bit_or: return loop<false, [](I32 a, I32 b) { return a | b; }, I32, I32>;
        case ScalarOp::bit_xor: return loop<false, [](I32 a, I32 b) { return a ^ b; }, I32, I32>;
        case ScalarOp::bit_not: return loop<false, [](I32 a) { return a ^ splat(-1); }, I32>;
        case ScalarOp::shl: return loop<false, [](I32 a, I32 b) { return shl(a, b); }, I32, I32>;
        case ScalarOp::shr: return loop<false, [](I32 a, I32 b) { return shr(a, b); }, I32, I32>;
        case ScalarOp::shr_logical:
            return loop<false, [](I32 a, I32 b) { return shr_logical(a, b); }, I32, I32>;
        case ScalarOp::lt: return loop<false, [](I32 a, I32 b) { return a < b; }, I32, I32>;
        case ScalarOp::le: return loop<false, [](I32 a, I32 b) { return a <= b; }, I32, I32>;
        case ScalarOp::eq: return loop<false, [](I32 a, I32 b) { return eq(a, b); }, I32, I32>;
        case ScalarOp::ne: return loop<false, [](I32 a, I32 b) { return ne(a, b); }, I32, I32>;
        case ScalarOp::i32_to_f32: return loop<false, [](I32 a) { return to_float(a); }, I32>;
        case ScalarOp::bits_i32_to_f32: return loop<false, [](I32 a) { return a; }, I32>;
        default: return nullptr;
    }
}

StepFn b1_step(ScalarOp op) {
    switch (op) {
        case ScalarOp::bit_and:
        case ScalarOp::min: return loop<false, [](B1 a, B1 b) { return a & b; }, B1, B1>;
        case ScalarOp::bit_or:
        case ScalarOp::max: return loop<false, [](B1 a, B1 b) { return a | b; }, B1, B1>;
        case ScalarOp::bit_xor:
        case ScalarOp::ne: return loop<false, [](B1 a, B1 b) { return a ^ b; }, B1, B1>;
        case ScalarOp::bit_not: return loop<false, [](B1 a) { return !a; }, B1>;
        case ScalarOp::lt: return loop<false, [](B1 a, B1 b) { return (!a) & b; }, B1, B1>;
        case ScalarOp::le: return loop<false, [](B1 a, B1 b) { return (!a) | b; }, B1, B1>;
        case ScalarOp::eq: return loop<false, [](B1 a, B1 b) { return !(a ^ b); }, B1, B1>;
        case ScalarOp::b1_to_i32: return loop<false, [](B1 a) { return I32{a.v & 1}; }, B1>;
        default: return nullptr;
    }
}

StepFn step(ScalarOp op, ScalarType type) {
    if (op == ScalarOp::select)
        return loop<false, [](B1 c, I32 a, I32 b) { return select(c, a, b); }, B1, I32, I32>;
    switch (type) {
        case ScalarType::f32: return f32_step(op);
        case ScalarType::i32: return i32_step(op);
        case ScalarType::b1: return b1_step(op);
    }
    return nullptr;
}

// float16 in the hardware's rounding, which is that of runtime/host/half.h; bfloat16 by hand.
#ifdef __AVX512F__
F32 widen_half(const void* from) { return {_mm512_cvtph_ps(load<__m256i>(from))}; }
void store_half(void* to, F32 x) { store(to, _mm512_cvtps_ph(x.v, kToEven)); }
F32 narrow_half(F32 x) { return {_mm512_cvtph_ps(_mm512_cvtps_ph(x.v, kToEven))}; }
#else
F32 widen_half(const void* from) { return {_mm256_cvtph_ps(load<__m128i>(from))}; }
void store_half(void* to, F32 x) { store(to, _mm256_cvtps_ph(x.v, kToEven & 7)); }
F32 narrow_half(F32 x) { return {_mm256_cvtph_ps(_mm256_cvtps_ph(x.v, kToEven & 7))}; }
#endif
F32 narrow_bfloat(F32 x) {
    const I32 bits = bits_of(x);
    const I32 rounded = (bits + 0x7FFF) + (shr_logical(bits, 16) & splat(1));
    return float_of(select(ne(x, x), bits | splat(0x400000), rounded) &
                    splat(static_cast<int32_t>(0xFFFF0000)));
}

StepFn narrow(DType dtype) {
    switch (dtype) {
        case DType::f16: return loop<false, narrow_half, F32>;
        case DType::bf16: return loop<false, narrow_bfloat, F32>;
        case DType::i16:
            return loop<false, [](I32 a) { return shr(shl(a, splat(16)), splat(16)); }, I32>;
        case DType::i8:
            return loop<false, [](I32 a) { return shr(shl(a, splat(24)), splat(24)); }, I32>;
        case DType::u8: return loop<false, [](I32 a) { return a & splat(0xFF); }, I32>;
        case DType::u16: return loop<false, [](I32 a) { return a & splat(0xFFFF); }, I32>;
        case DType::f32:
        case DType::i32:
        case DType::b8:
        case DType::c64: break;
    }
    return nullptr;
}

// T elements as 32-bit lanes and back.
template <class T>
struct Lanes {
    typedef T Small __attribute__((vector_size(sizeof(T) * kLanes)));
    static I32 widen(const void* from) {
        return {__builtin_convertvector(load<Small>(from), IntVector)};
    }
    static void narrow(void* to, I32 x) { store(to, __builtin_convertvector(x.v, Small)); }
};
B1 widen_bool(const void* from) { return ne(Lanes<uint8_t>::widen(from), splat(0)); }
void store_bool(void* to, I32 x) { Lanes<uint8_t>::narrow(to, I32{x.v & 1}); }
I32 widen_bfloat(const void* from) { return shl(Lanes<uint16_t>::widen(from), splat(16)); }
void store_bfloat(void* to, I32 x) { Lanes<uint16_t>::narrow(to, shr_logical(x, 16)); }
I32 widen_word(const void* from) { return load<I32>(from); }

// Elements of any stride are first collected into a vector.
template <class T, auto widen>
void load_loop(void* out, const void* from, int64_t stride, int64_t n) {
    const T* source = static_cast<const T*>(from);
    alignas(64) T gathered[kLanes];
    if (stride == 0) {
        for (T& g : gathered) g = *source;
        const auto x = widen(gathered);
        int64_t i = 0;
        for (; i + kLanes <= n; i += kLanes) store(at(out, i), x);
        if (i < n) store_some(at(out, i), x, static_cast<int>(n - i));
        return;
    }
    int64_t i = 0;
    if (stride == 1)
        for (; i + kLanes <= n; i += kLanes) store(at(out, i), widen(source + i));
    for (; i < n; i += kLanes) {
        const int count = static_cast<int>(n - i < kLanes ? n - i : kLanes);
        for (int k = 0; k < count; ++k) gathered[k] = source[(i + k) * stride];
        for (int k = count; k < kLanes; ++k) gathered[k] = T{};
        store_some(at(out, i), widen(gathered), count);
    }
}

template <class T, class V, auto narrow_to>
void store_loop(void* to, const void* values, int64_t n) {
    T* target = static_cast<T*>(to);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) narrow_to(target + i, load<V>(at<int32_t>(values, i)));
    if (i == n) return;
    alignas(64) T rest[kLanes];
    narrow_to(rest, load_some<V>(at<int32_t>(values, i), static_cast<int>(n - i)));
    std::memcpy(target + i, rest, static_cast<size_t>(n - i) * sizeof(T));
}

void store_words(void* to, const void* values, int64_t n) {
    std::memcpy(to, values, static_cast<size_t>(n) * 4);
}

LoadFn loader(DType dtype) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return load_loop<int32_t, widen_word>;
        case DType::f16: return load_loop<uint16_t, widen_half>;
        case DType::bf16: return load_loop<uint16_t, widen_bfloat>;
        case DType::i16: return load_loop<int16_t, Lanes<int16_t>::widen>;
        case DType::i8: return load_loop<int8_t, Lanes<int8_t>::widen>;
        case DType::u8: return load_loop<uint8_t, Lanes<uint8_t>::widen>;
        case DType::u16: return load_loop<uint16_t, Lanes<uint16_t>::widen>;
        case DType::b8: return load_loop<uint8_t, widen_bool>;
        case DType::c64: break;
    }
    return nullptr;
}

StoreFn storer(DType dtype) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return store_words;
        case DType::f16: return store_loop<uint16_t, F32, store_half>;
        case DType::bf16: return store_loop<uint16_t, I32, store_bfloat>;
        case DType::i16: return store_loop<int16_t, I32, Lanes<int16_t>::narrow>;
        case DType::i8: return store_loop<int8_t, I32, Lanes<int8_t>::narrow>;
        case DType::u8: return store_loop<uint8_t, I32, Lanes<uint8_t>::narrow>;
        case DType::u16: return store_loop<uint16_t, I32, Lanes<uint16_t>::narrow>;
        case DType::b8: return store_loop<uint8_t, I32, store_bool>;
        case DType::c64: break;
    }
    return nullptr;
}

}  // namespace

VmKernels vm_kernels() { return {.step = step, .narrow = narrow, .load = loader, .store = storer}; }

}  // namespace megjit::cpu::MEGJIT_LEVEL
