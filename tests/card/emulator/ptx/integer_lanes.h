// tests/card/emulator/ptx/integer_lanes.h -- how operations on integers go over the lanes of a
// warp.
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include "tests/card/emulator/ptx/decode.h"

namespace megjit::card::ptx {

template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T>
constexpr int kBits = 8 * sizeof(T);

template <class D, class Op, class A = D>
void unary(Warp& w, const Inst& in) {
    const A* a = row<A>(w, in.a);
    lanes<D>(w, in,
             [=](int i) __attribute__((always_inline)) { return static_cast<D>(Op::of(a[i])); });
}
template <class D, class Op, class A = D>
void binary(Warp& w, const Inst& in) {
    const A *a = row<A>(w, in.a), *b = row<A>(w, in.b);
    lanes<D>(w, in, [=](int i) __attribute__((always_inline)) {
        return static_cast<D>(Op::of(a[i], b[i]));
    });
}
template <class D, class Op, class A = D>
void ternary(Warp& w, const Inst& in) {
    const A *a = row<A>(w, in.a), *b = row<A>(w, in.b);
    const D* c = row<D>(w, in.c);
    lanes<D>(w, in, [=](int i) __attribute__((always_inline)) {
        return static_cast<D>(Op::of(a[i], b[i], c[i]));
    });
}
#define MEGJIT_OP1(Name, ...) \
    struct Name { \
        template <class T> \
        static inline auto of(T a) { \
            __VA_ARGS__ \
        } \
    };
#define MEGJIT_OP2(Name, ...) \
    struct Name { \
        template <class T> \
        static inline auto of(T a, T b) { \
            __VA_ARGS__ \
        } \
    };
#define MEGJIT_OP3(Name, ...) \
    struct Name { \
        template <class T, class C> \
        static inline auto of(T a, T b, C c) { \
            __VA_ARGS__ \
        } \
    };

template <class Op>
void decode_binary(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = with_integer(d, type, []<class T> { return &binary<T, Op>; });
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), type);
}

// Three words in, one out.
inline void decode_three_words(Decoder& d, const Statement& s, Inst& in) {
    in.d = d.dest(s.operands.at(0), 4);
    in.a = d.source(s.operands.at(1), 4);
    in.b = d.source(s.operands.at(2), 4);
    in.c = d.source(s.operands.at(3), 4);
}

}  // namespace megjit::card::ptx
