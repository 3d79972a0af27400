// atom and red: on places of any space, one lane after the other.
#include <algorithm>
#include <atomic>

#include "tests/card/emulator/ptx/memory.h"
#include "tests/card/emulator/ptx/rounding.h"

namespace megjit::card::ptx {
namespace {

// next(old, b, c) for a place that holds a U; returns what was there.
template <class U, class F>
U exchange_with(std::byte* place, F next) {
    auto* at = reinterpret_cast<U*>(place);
    U old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, next(old), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {}
    return old;
}

template <class U, class T, class F>
void atomic(Warp& w, const Inst& in, F next) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    Places places;
    locate(w, in, m, sizeof(U), sizeof(U), places);
    note_shared(w, in, m, sizeof(U), SharedLog::Kind::atomic, places);
    const U *b = row<U>(w, in.b), *c = row<U>(w, in.c);
    U* to = in.flags & 1 ? row<U>(w, in.d) : nullptr;
    each_lane(m, [&](int i) {
        const U y = b[i], z = c[i];
        const U old = exchange_with<U>(places.at[i], [&](U x) {
            return std::bit_cast<U>(static_cast<T>(
                next(std::bit_cast<T>(x), std::bit_cast<T>(y), std::bit_cast<T>(z))));
        });
        if (to) to[i] = old;
    });
}

#define MEGJIT_ATOMIC(Name, expression) \
    struct Name { \
        template <class U, class T> \
        static void run(Warp& w, const Inst& in) { \
            atomic<U, T>(w, in, \
                         []([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T z) { \
                return expression; \
            }); \
        } \
    };
MEGJIT_ATOMIC(Exchange, y)
MEGJIT_ATOMIC(CompareAndSwap, x == y ? z : x)
MEGJIT_ATOMIC(Add, x + y)
MEGJIT_ATOMIC(Minimum, y < x ? y : x)
MEGJIT_ATOMIC(Maximum, y > x ? y : x)
MEGJIT_ATOMIC(And, x& y)
MEGJIT_ATOMIC(Or, x | y)
MEGJIT_ATOMIC(Xor, x ^ y)
MEGJIT_ATOMIC(Increment, x >= y ? T{0} : x + 1)
MEGJIT_ATOMIC(Decrement, x == 0 || x > y ? y : x - 1)

template <class Op>
Run integers(Decoder& d, Type type) {
    switch (type) {
        case Type::s32: return &Op::template run<uint32_t, int32_t>;
        case Type::u32:
        case Type::b32: return &Op::template run<uint32_t, uint32_t>;
        case Type::s64: return &Op::template run<uint64_t, int64_t>;
        case Type::u64:
        case Type::b64: return &Op::template run<uint64_t, uint64_t>;
        case Type::b16:
        case Type::u16: return &Op::template run<uint16_t, uint16_t>;
        default: d.refuse("not for this type");
    }
}

// ---- halves: how = 0 add, 1 min, 2 max
template <int how>
uint16_t of_halves(uint16_t x, uint16_t y, bool is_bfloat) {
    const float a = is_bfloat ? from_bfloat(x) : from_half(x),
                b = is_bfloat ? from_bfloat(y) : from_half(y);
    const float r = how == 0   ? a + b
                    : a != a   ? b
                    : b != b   ? a
                    : how == 1 ? std::min(a, b)
                               : std::max(a, b);
    return is_bfloat ? to_bfloat(r) : to_half(r);
}
template <int how>
void halves(Warp& w, const Inst& in) {
    atomic<uint16_t, uint16_t>(w, in, [&](uint16_t x, uint16_t y, uint16_t) {
        return of_halves<how>(x, y, in.flags & 2);
    });
}
template <int how>
void pairs(Warp& w, const Inst& in) {
    atomic<uint32_t, uint32_t>(w, in, [&](uint32_t x, uint32_t y, uint32_t) {
        const auto low =
            of_halves<how>(static_cast<uint16_t>(x), static_cast<uint16_t>(y), in.flags & 2);
        const auto high = of_halves<how>(static_cast<uint16_t>(x >> 16),
                                         static_cast<uint16_t>(y >> 16), in.flags & 2);
        return static_cast<uint32_t>(high) << 16 | low;
    });
}

Run operation(Decoder& d, const Statement& s, Type type) {
    const bool pair = type == Type::f16x2 || type == Type::bf16x2;
    if (pair || type == Type::f16 || type == Type::bf16) {
        if (s.has("add")) return pair ? &pairs<0> : &halves<0>;
        if (s.has("min")) return pair ? &pairs<1> : &halves<1>;
        if (s.has("max")) return pair ? &pairs<2> : &halves<2>;
    }
    if (s.has("add")) {
        if (type == Type::f32) return &Add::run<uint32_t, float>;
        if (type == Type::f64) return &Add::run<uint64_t, double>;
        return integers<Add>(d, type);
    }
    if (s.has("exch")) return integers<Exchange>(d, type);
    if (s.has("cas")) return integers<CompareAndSwap>(d, type);
    if (s.has("min")) return integers<Minimum>(d, type);
    if (s.has("max")) return integers<Maximum>(d, type);
    if (s.has("and")) return integers<And>(d, type);
    if (s.has("or")) return integers<Or>(d, type);
    if (s.has("xor")) return integers<Xor>(d, type);
    if (s.has("inc")) return integers<Increment>(d, type);
    if (s.has("dec")) return integers<Decrement>(d, type);
    d.refuse("which operation?");
}

void decode_atomic(Decoder& d, const Statement& s, Inst& in, bool returns) {
    const Type type = type_of(d, s);
    if (s.has("v2") || s.has("v4") || s.has("v8")) d.refuse("atomics of vectors");
    const uint32_t bytes = bytes_of(type);
    in.run = operation(d, s, type);
    const size_t first = returns ? 1 : 0;
    decode_address(d, s, s.operands.at(first), in);
    in.b = d.source(s.operands.at(first + 1), type);
    if (s.operands.size() > first + 2 && s.has("cas")) in.c = d.source(s.operands[first + 2], type);
    if (returns) in.d = d.dest(s.operands[0], bytes);
    in.flags = static_cast<uint8_t>(returns | (type == Type::bf16 || type == Type::bf16x2) << 1);
}

}  // namespace

void add_atomic_operations(Operations& ops) {
    ops["atom"] = [](Decoder& d, const Statement& s, Inst& in) { decode_atomic(d, s, in, true); };
    ops["red"] = [](Decoder& d, const Statement& s, Inst& in) { decode_atomic(d, s, in, false); };
}

}  // namespace megjit::card::ptx
