// Comparisons and selections.
#include "tests/card/emulator/ptx/decode.h"
#include "tests/card/emulator/ptx/rounding.h"

namespace megjit::card::ptx {
namespace {

enum : uint8_t { kFlush = 1 };

// These compare two values; unordered ones are true where a or b is NaN.
struct Eq {
    template <class T>
    static bool of(T a, T b) {
        return a == b;
    }
};
struct Ne {
    template <class T>
    static bool of(T a, T b) {
        return a < b || a > b;
    }
};
struct NeInteger {
    template <class T>
    static bool of(T a, T b) {
        return a != b;
    }
};
struct Lt {
    template <class T>
    static bool of(T a, T b) {
        return a < b;
    }
};
struct Le {
    template <class T>
    static bool of(T a, T b) {
        return a <= b;
    }
};
struct Gt {
    template <class T>
    static bool of(T a, T b) {
        return a > b;
    }
};
struct Ge {
    template <class T>
    static bool of(T a, T b) {
        return a >= b;
    }
};
struct Equ {
    template <class T>
    static bool of(T a, T b) {
        return !(a < b || a > b);
    }
};
struct Neu {
    template <class T>
    static bool of(T a, T b) {
        return a != b;
    }
};
struct Ltu {
    template <class T>
    static bool of(T a, T b) {
        return !(a >= b);
    }
};
struct Leu {
    template <class T>
    static bool of(T a, T b) {
        return !(a > b);
    }
};
struct Gtu {
    template <class T>
    static bool of(T a, T b) {
        return !(a <= b);
    }
};
struct Geu {
    template <class T>
    static bool of(T a, T b) {
        return !(a < b);
    }
};
struct Num {
    template <class T>
    static bool of(T a, T b) {
        return a == a && b == b;
    }
};
struct Nan {
    template <class T>
    static bool of(T a, T b) {
        return a != a || b != b;
    }
};

// How a row is read: as its type, or halves as floats.
template <class T>
struct As {
    using Element = T;
    static T read(T x, bool flush) {
        if constexpr (std::is_same_v<T, float>) return flush ? flushed(x) : x;
        else return x;
    }
};
struct AsHalf {
    using Element = uint16_t;
    static float read(uint16_t h, bool) { return from_half(h); }
};
struct AsBfloat {
    using Element = uint16_t;
    static float read(uint16_t h, bool) { return from_bfloat(h); }
};

// kStep: of the elements, 2 for halves in pairs, whose second begins at kFirst.
template <class Reader, class Op, int kStep = 1, int kFirst = 0>
uint32_t compared(const Warp& w, const Inst& in) {
    const auto *a = row<typename Reader::Element>(w, in.a),
               *b = row<typename Reader::Element>(w, in.b);
    if (in.flags & kFlush)
        return vote([=](int i) {
            return Op::of(Reader::read(a[i * kStep + kFirst], true),
                          Reader::read(b[i * kStep + kFirst], true));
        });
    return vote([=](int i) __attribute__((always_inline)) {
        return Op::of(Reader::read(a[i * kStep + kFirst], false),
                      Reader::read(b[i * kStep + kFirst], false));
    });
}

enum class Join : uint8_t { none, conjunction, disjunction, exclusive };

uint32_t joined(const Warp& w, const Inst& in, uint32_t bits) {
    const auto how = static_cast<Join>(in.mode & 3);
    if (how == Join::none) return bits;
    const uint32_t c = predicate(w, in.c) ^ (in.mode & 4 ? kAll : 0);
    return how == Join::conjunction ? bits & c : how == Join::disjunction ? bits | c : bits ^ c;
}

template <class Reader, class Op>
struct SetPredicate {
    static void run(Warp& w, const Inst& in) {
        const uint32_t m = mask_of(w, in);
        if constexpr (std::is_same_v<Reader, AsHalf> || std::is_same_v<Reader, AsBfloat>)
            if (in.count == 2) {  // pairs: a predicate each
                const uint32_t low = joined(w, in, compared<Reader, Op, 2, 0>(w, in));
                const uint32_t high = joined(w, in, compared<Reader, Op, 2, 1>(w, in));
                set_predicate(w, in.d, low, m);
                set_predicate(w, in.e, high, m);
                return;
            }
        const uint32_t bits = compared<Reader, Op>(w, in);
        const uint32_t first = joined(w, in, bits), second = in.e ? joined(w, in, ~bits) : 0;
        set_predicate(w, in.d, first, m);
        if (in.e) set_predicate(w, in.e, second, m);
    }
};

// set: the result is a number, 1.0 or all ones for true.
template <class Reader, class Op>
struct SetNumber {
    static void run(Warp& w, const Inst& in) {
        if constexpr (std::is_same_v<Reader, AsHalf> || std::is_same_v<Reader, AsBfloat>)
            if (in.count == 2) {
                const uint32_t low = joined(w, in, compared<Reader, Op, 2, 0>(w, in));
                const uint32_t high = joined(w, in, compared<Reader, Op, 2, 1>(w, in));
                const auto one = static_cast<uint32_t>(in.imm);
                lanes<uint32_t>(w, in, [=](int i) {
                    return (low >> i & 1 ? one : 0) | (high >> i & 1 ? one << 16 : 0);
                });
                return;
            }
        const uint32_t bits = joined(w, in, compared<Reader, Op>(w, in));
        const uint64_t one = in.imm;
        const auto put = [&]<class D>() {
            lanes<D>(w, in, [=](int i) { return static_cast<D>(bits >> i & 1 ? one : 0); });
        };
        if (in.target == 2) put.template operator()<uint16_t>();
        else put.template operator()<uint32_t>();
    }
};

template <template <class, class> class Handler, class Reader>
Run by_relation(Decoder& d, const std::string& name) {
    constexpr bool is_integer = std::is_integral_v<typename Reader::Element> &&
                                !std::is_same_v<Reader, AsHalf> &&
                                !std::is_same_v<Reader, AsBfloat>;
    if (name == "eq") return &Handler<Reader, Eq>::run;
    if (name == "ne") {
        if constexpr (is_integer) return &Handler<Reader, NeInteger>::run;
        else return &Handler<Reader, Ne>::run;
    }
    if (name == "lt" || name == "lo") return &Handler<Reader, Lt>::run;
    if (name == "le" || name == "ls") return &Handler<Reader, Le>::run;
    if (name == "gt" || name == "hi") return &Handler<Reader, Gt>::run;
    if (name == "ge" || name == "hs") return &Handler<Reader, Ge>::run;
    if constexpr (!is_integer) {
        if (name == "equ") return &Handler<Reader, Equ>::run;
        if (name == "neu") return &Handler<Reader, Neu>::run;
        if (name == "ltu") return &Handler<Reader, Ltu>::run;
        if (name == "leu") return &Handler<Reader, Leu>::run;
        if (name == "gtu") return &Handler<Reader, Gtu>::run;
        if (name == "geu") return &Handler<Reader, Geu>::run;
        if (name == "num") return &Handler<Reader, Num>::run;
        if (name == "nan") return &Handler<Reader, Nan>::run;
    }
    d.refuse("the comparison ." + name);
}

template <template <class, class> class Handler>
Run by_type(Decoder& d, Type type, const std::string& relation) {
    switch (type) {
        case Type::f32: return by_relation<Handler, As<float>>(d, relation);
        case Type::f64: return by_relation<Handler, As<double>>(d, relation);
        case Type::f16:
        case Type::f16x2: return by_relation<Handler, AsHalf>(d, relation);
        case Type::bf16:
        case Type::bf16x2: return by_relation<Handler, AsBfloat>(d, relation);
        default:
            return with_integer(d, type,
                                [&]<class T> { return by_relation<Handler, As<T>>(d, relation); });
    }
}

// The parts that setp and set share. `source` is the type that is compared.
void decode_comparison(Decoder& d, const Statement& s, Inst& in, Type source) {
    if (s.has("ftz") && source == Type::f32) in.flags |= kFlush;
    in.count = source == Type::f16x2 || source == Type::bf16x2 ? 2 : 1;
    in.a = d.source(s.operands.at(1), source);
    in.b = d.source(s.operands.at(2), source);
    in.mode = static_cast<uint8_t>(s.opcode.at(2) == "and" ? Join::conjunction
                                   : s.opcode[2] == "or"   ? Join::disjunction
                                   : s.opcode[2] == "xor"  ? Join::exclusive
                                                           : Join::none);
    if (in.mode) {
        in.c = d.predicate(s.operands.at(3).name);
        if (s.operands[3].negated) in.mode |= 4;
    }
}
void decode_setp(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = by_type<SetPredicate>(d, type, s.opcode.at(1));
    decode_comparison(d, s, in, type);
    const Operand& to = s.operands[0];
    in.d = d.dest_predicate(to);
    if (!to.second.empty()) {
        Operand second = to;
        second.name = to.second;
        in.e = d.dest_predicate(second);
    }
}
void decode_set(Decoder& d, const Statement& s, Inst& in) {
    const Type source = type_named(s.opcode.back()),
               result = type_named(s.opcode.at(s.opcode.size() - 2));
    in.run = by_type<SetNumber>(d, source, s.opcode.at(1));
    decode_comparison(d, s, in, source);
    in.target = bytes_of(result);
    in.imm = result == Type::f32                              ? 0x3f800000
             : result == Type::f16 || result == Type::f16x2   ? 0x3c00
             : result == Type::bf16 || result == Type::bf16x2 ? 0x3f80
             : in.count == 2                                  ? 0xffff
                                                              : ~uint64_t{0};
    in.d = d.dest(s.operands[0], in.target);
}

template <class T>
void select(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b);
    const uint32_t p = predicate(w, in.c) ^ (in.flags ? kAll : 0);
    lanes<T>(w, in,
             [=](int i) __attribute__((always_inline)) { return p & (1u << i) ? a[i] : b[i]; });
}
void select_predicate(Warp& w, const Inst& in) {
    const uint32_t p = predicate(w, in.c) ^ (in.flags ? kAll : 0);
    set_predicate(w, in.d, (predicate(w, in.a) & p) | (predicate(w, in.b) & ~p), mask_of(w, in));
}
void decode_selp(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.c = d.predicate(s.operands.at(3).name);
    in.flags = s.operands[3].negated;
    if (type == Type::pred) {
        in.run = &select_predicate;
        in.d = d.dest_predicate(s.operands[0]);
    } else {
        in.run = with_bits(d, type, []<class T> { return &select<T>; });
        in.d = d.dest(s.operands[0], bytes_of(type));
    }
    in.a = d.source(s.operands[1], type);
    in.b = d.source(s.operands[2], type);
}

template <class T, class C>
void select_by_sign(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b);
    const C* c = row<C>(w, in.c);
    lanes<T>(w, in, [=](int i) { return c[i] >= 0 ? a[i] : b[i]; });  // NaN selects b
}
void decode_slct(Decoder& d, const Statement& s, Inst& in) {
    const Type by = type_named(s.opcode.back()),
               type = type_named(s.opcode.at(s.opcode.size() - 2));
    in.run = with_bits(d, type, [&]<class T>() -> Run {
        return by == Type::f32 ? &select_by_sign<T, float> : &select_by_sign<T, int32_t>;
    });
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), type);
    in.c = d.source(s.operands.at(3), by);
}

}  // namespace

void add_compare_operations(Operations& ops) {
    ops["setp"] = &decode_setp;
    ops["set"] = &decode_set;
    ops["selp"] = &decode_selp;
    ops["slct"] = &decode_slct;
}

}  // namespace megjit::card::ptx
