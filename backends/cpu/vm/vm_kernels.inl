// backends/cpu/vm/vm_kernels.inl -- the bodies of the loops in vm_kernels.h. It is compiled for
// several instruction sets: nothing here may be an inline function that other files share.
#include <cmath>
#include <cstring>

#include "backends/cpu/lanes.h"
#include "backends/cpu/vm/vm_kernels.h"
#include "runtime/core/scalar_double.h"
#include "runtime/core/scalar_math.h"

namespace megjit::cpu::MEGJIT_LEVEL {
namespace {

namespace math = megjit::runtime::math;

template <class T>
const T* at(const void* base, int64_t i) {
    return static_cast<const T*>(base) + i;
}
inline void* at(void* base, int64_t i) { return static_cast<int32_t*>(base) + i; }

// Computes out[i] = f(a[i], b[i], c[i]) over as many operands as Args. A long body is written once,
// with the partial vector inside the loop; a short one gets a loop without branches.
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

// Takes one element at a time, for functions that have no vector form.
template <class T, auto f>
void scalar_loop(void* out, const void* a, const void* b, const void*, int64_t n) {
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[i] = f(at<T>(a, 0)[i], at<T>(b, 0)[i]);
}

template <class Int>
Int floor_mod(Int a, Int b) {
    if (b == 0 || b == -1) return 0;
    const Int rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
template <class Int>
Int floor_div(Int a, Int b) {
    using Natural = std::make_unsigned_t<Int>;
    if (b == 0) return 0;
    if (b == -1) return static_cast<Int>(Natural{0} - static_cast<Natural>(a));
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
        case ScalarOp::cast: return loop<false, [](F32 a) { return to_int(a); }, F32>;
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
            MEGJIT_LONG(erfc_of_halves)
            MEGJIT_LONG(gelu_slope_of_halves)
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
        case ScalarOp::div: return scalar_loop<int32_t, floor_div<int32_t>>;
        case ScalarOp::mod: return scalar_loop<int32_t, floor_mod<int32_t>>;
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
        case ScalarOp::cast: return loop<false, [](I32 a) { return to_float(a); }, I32>;
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
        case ScalarOp::cast: return loop<false, [](B1 a) { return I32{a.v & 1}; }, B1>;
        default: return nullptr;
    }
}

// --- values of 64 bits, which compilers make vectors of ---------------------------------------

// out[i] = f(a[i], b[i], c[i]); booleans are 0 and -1.
template <auto f, class... Args>
void each(void* out, const void* a, const void* b, const void* c, int64_t n) {
    using Given = std::invoke_result_t<decltype(f), Args...>;
    using Stored = std::conditional_t<std::is_same_v<Given, bool>, int32_t, Given>;
    const void* const from[] = {a, b, c};
    const auto all = [&]<size_t... k>(std::index_sequence<k...>) {
        for (int64_t i = 0; i < n; ++i) {
            const Given value = f(static_cast<const Args*>(from[k])[i]...);
            if constexpr (std::is_same_v<Given, bool>) static_cast<Stored*>(out)[i] = -value;
            else static_cast<Stored*>(out)[i] = value;
        }
    };
    all(std::index_sequence_for<Args...>());
}

StepFn f64_step(ScalarOp op) {
    using D = double;
    switch (op) {
        case ScalarOp::add: return each<[](D a, D b) { return a + b; }, D, D>;
        case ScalarOp::sub: return each<[](D a, D b) { return a - b; }, D, D>;
        case ScalarOp::mul: return each<[](D a, D b) { return a * b; }, D, D>;
        case ScalarOp::div: return each<[](D a, D b) { return a / b; }, D, D>;
        case ScalarOp::mod: return each<[](D a, D b) { return ::fmod(a, b); }, D, D>;
        case ScalarOp::neg: return each<[](D a) { return -a; }, D>;
        case ScalarOp::abs: return each<[](D a) { return __builtin_fabs(a); }, D>;
        case ScalarOp::max:
            return each<[](D a, D b) { return a != a ? a : b != b || a < b ? b : a; }, D, D>;
        case ScalarOp::min:
            return each<[](D a, D b) { return a != a ? a : b != b || b < a ? b : a; }, D, D>;
        case ScalarOp::fma:
            return each<[](D a, D b, D c) { return __builtin_fma(a, b, c); }, D, D, D>;
        case ScalarOp::sqrt: return each<[](D a) { return __builtin_sqrt(a); }, D>;
        case ScalarOp::floor: return each<[](D a) { return __builtin_floor(a); }, D>;
        case ScalarOp::ceil: return each<[](D a) { return __builtin_ceil(a); }, D>;
        case ScalarOp::trunc: return each<[](D a) { return __builtin_trunc(a); }, D>;
        case ScalarOp::round_even: return each<[](D a) { return __builtin_nearbyint(a); }, D>;
        case ScalarOp::lt: return each<[](D a, D b) { return a < b; }, D, D>;
        case ScalarOp::le: return each<[](D a, D b) { return a <= b; }, D, D>;
        case ScalarOp::eq: return each<[](D a, D b) { return a == b; }, D, D>;
        case ScalarOp::ne: return each<[](D a, D b) { return a != b; }, D, D>;
#define MEGJIT_FUNCTION(name) \
    case ScalarOp::name: \
        return each<[](D a) { return runtime::transcendental_f64(ScalarOp::name, a); }, D>;
            MEGJIT_FUNCTION(exp)
            MEGJIT_FUNCTION(expm1)
            MEGJIT_FUNCTION(log)
            MEGJIT_FUNCTION(log1p)
            MEGJIT_FUNCTION(sin)
            MEGJIT_FUNCTION(cos)
            MEGJIT_FUNCTION(tan)
            MEGJIT_FUNCTION(asin)
            MEGJIT_FUNCTION(acos)
            MEGJIT_FUNCTION(atan)
            MEGJIT_FUNCTION(sinh)
            MEGJIT_FUNCTION(cosh)
            MEGJIT_FUNCTION(tanh)
            MEGJIT_FUNCTION(asinh)
            MEGJIT_FUNCTION(acosh)
            MEGJIT_FUNCTION(atanh)
            MEGJIT_FUNCTION(erf)
            MEGJIT_FUNCTION(erfc)
            MEGJIT_FUNCTION(erfc_of_halves)
            MEGJIT_FUNCTION(gelu_slope_of_halves)
            MEGJIT_FUNCTION(erfinv)
            MEGJIT_FUNCTION(lgamma)
            MEGJIT_FUNCTION(digamma)
#undef MEGJIT_FUNCTION
        case ScalarOp::atan2:
            return each<[](D a, D b) { return runtime::transcendental_f64(ScalarOp::atan2, a, b); },
                        D, D>;
        case ScalarOp::pow:
            return each<[](D a, D b) { return runtime::transcendental_f64(ScalarOp::pow, a, b); },
                        D, D>;
        default: return nullptr;
    }
}

StepFn i64_step(ScalarOp op) {
    using I = int64_t;
    using N = uint64_t;
    switch (op) {
        case ScalarOp::add: return each<[](N a, N b) { return a + b; }, N, N>;
        case ScalarOp::sub: return each<[](N a, N b) { return a - b; }, N, N>;
        case ScalarOp::mul: return each<[](N a, N b) { return a * b; }, N, N>;
        case ScalarOp::div: return scalar_loop<I, floor_div<I>>;
        case ScalarOp::mod: return scalar_loop<I, floor_mod<I>>;
        case ScalarOp::neg: return each<[](N a) { return N{0} - a; }, N>;
        case ScalarOp::abs: return each<[](I a) { return a < 0 ? I(N{0} - N(a)) : a; }, I>;
        case ScalarOp::max: return each<[](I a, I b) { return a < b ? b : a; }, I, I>;
        case ScalarOp::min: return each<[](I a, I b) { return b < a ? b : a; }, I, I>;
        case ScalarOp::bit_and: return each<[](N a, N b) { return a & b; }, N, N>;
        case ScalarOp::bit_or: return each<[](N a, N b) { return a | b; }, N, N>;
        case ScalarOp::bit_xor: return each<[](N a, N b) { return a ^ b; }, N, N>;
        case ScalarOp::bit_not: return each<[](N a) { return ~a; }, N>;
        case ScalarOp::shl: return each<[](N a, N b) { return a << (b & 63); }, N, N>;
        case ScalarOp::shr: return each<[](I a, N b) { return (a >> (b & 63)); }, I, N>;
        case ScalarOp::shr_logical: return each<[](N a, N b) { return (a >> (b & 63)); }, N, N>;
        case ScalarOp::lt: return each<[](I a, I b) { return a < b; }, I, I>;
        case ScalarOp::le: return each<[](I a, I b) { return a <= b; }, I, I>;
        case ScalarOp::eq: return each<[](I a, I b) { return a == b; }, I, I>;
        case ScalarOp::ne: return each<[](I a, I b) { return a != b; }, I, I>;
        default: return nullptr;
    }
}

// NaN and numbers beyond Int give its least value; integers are cut.
template <class Int, class From>
Int integer_of(From a) {
    if constexpr (std::is_integral_v<From>) return static_cast<Int>(a);
    else {
        constexpr From kLimit = static_cast<From>(uint64_t{1} << (8 * sizeof(Int) - 1));
        const From whole = static_cast<From>(__builtin_trunc(static_cast<double>(a)));
        const bool fits = whole >= -kLimit && whole < kLimit;
        return fits ? static_cast<Int>(whole)
                    : static_cast<Int>(uint64_t{1} << (8 * sizeof(Int) - 1));
    }
}

// Converts from or to 64 bits.
template <class From>
StepFn cast_from(ScalarType gives) {
    switch (gives) {
        case ScalarType::f32: return each<[](From a) { return static_cast<float>(a); }, From>;
        case ScalarType::f64: return each<[](From a) { return static_cast<double>(a); }, From>;
        case ScalarType::i32: return each<integer_of<int32_t, From>, From>;
        case ScalarType::i64: return each<integer_of<int64_t, From>, From>;
        case ScalarType::b1: break;
    }
    return nullptr;
}
StepFn wide_cast(ScalarType taken, ScalarType gives) {
    switch (taken) {
        case ScalarType::f32: return cast_from<float>(gives);
        case ScalarType::f64: return cast_from<double>(gives);
        case ScalarType::i32: return cast_from<int32_t>(gives);
        case ScalarType::i64: return cast_from<int64_t>(gives);
        case ScalarType::b1: return each<[](int32_t a) -> int64_t { return a & 1; }, int32_t>;
    }
    return nullptr;
}

StepFn step(ScalarOp op, ScalarType taken, ScalarType gives) {
    const auto is_64 = [](ScalarType type) {
        return type == ScalarType::f64 || type == ScalarType::i64;
    };
    const bool is_wide = is_64(gives);
    if (op == ScalarOp::select) {
        if (is_wide)
            return each<[](int32_t c, uint64_t a, uint64_t b) { return c ? a : b; }, int32_t,
                        uint64_t, uint64_t>;
        return loop<false, [](B1 c, I32 a, I32 b) { return select(c, a, b); }, B1, I32, I32>;
    }
    if (op == ScalarOp::cast && (is_wide || is_64(taken))) return wide_cast(taken, gives);
    switch (taken) {
        case ScalarType::f32: return f32_step(op);
        case ScalarType::i32: return i32_step(op);
        case ScalarType::f64: return f64_step(op);
        case ScalarType::i64: return i64_step(op);
        case ScalarType::b1: return b1_step(op);
    }
    return nullptr;
}

// float16 is rounded by the hardware, as in runtime/host/half.h; bfloat16 by hand.
F32 widen_half(const void* from) { return {floats_of(load<Halves>(from))}; }
void store_half(void* to, F32 x) { store(to, halves_of(x.v)); }
F32 narrow_half(F32 x) { return {floats_of(halves_of(x.v))}; }
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
        case DType::f64:
        case DType::i64:
        case DType::b8:
        case DType::c64: break;
    }
    return nullptr;
}

// Converts T elements to 32-bit lanes, and back.
template <class T>
struct Lanes {
    typedef T Small __attribute__((vector_size(sizeof(T) * kLanes)));
    static I32 widen(const void* from) {
        return {__builtin_convertvector(load<Small>(from), Ints)};
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

// Moves elements that are computed in the form in which they are stored.
template <int bytes>
void store_words(void* to, const void* values, int64_t n) {
    std::memcpy(to, values, static_cast<size_t>(n) * bytes);
}
void load_wide(void* out, const void* from, int64_t stride, int64_t n) {
    const auto* source = static_cast<const uint64_t*>(from);
    for (int64_t i = 0; i < n; ++i) static_cast<uint64_t*>(out)[i] = source[i * stride];
}

LoadFn loader(DType dtype) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return load_loop<int32_t, widen_word>;
        case DType::f64:
        case DType::i64: return load_wide;
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
        case DType::i32: return store_words<4>;
        case DType::f64:
        case DType::i64: return store_words<8>;
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
