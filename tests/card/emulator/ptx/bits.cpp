// Logic, shifts, fields of bits, bytes.
#include "tests/card/emulator/ptx/integer_lanes.h"

namespace megjit::card::ptx {
namespace {

template <class D, class Op>
void shift(Warp& w, const Inst& in) {
    const D* a = row<D>(w, in.a);
    const uint32_t* b = row<uint32_t>(w, in.b);
    lanes<D>(w, in, [=](int i) __attribute__((always_inline)) {
        return static_cast<D>(Op::of(a[i], b[i]));
    });
}

#define MEGJIT_SHIFT(Name, ...) \
    struct Name { \
        template <class T> \
        static inline auto of(T a, uint32_t b) { \
            __VA_ARGS__ \
        } \
    };

MEGJIT_OP1(Not, return ~a;)
MEGJIT_OP1(IsZero, return a == 0;)
MEGJIT_OP1(Ones, return std::popcount(static_cast<std::make_unsigned_t<T>>(a));)
MEGJIT_OP1(LeadingZeros, return std::countl_zero(static_cast<std::make_unsigned_t<T>>(a));)
MEGJIT_OP1(Reverse, T r = 0; for (int k = 0; k < kBits<T>; ++k) {
    r = static_cast<T>(r << 1 | (a & 1));
    a >>= 1;
} return r;)
MEGJIT_OP2(And, return a & b;)
MEGJIT_OP2(Or, return a | b;)
MEGJIT_OP2(Xor, return a ^ b;)
MEGJIT_SHIFT(Left, return b >= kBits<T> ? T{0} : static_cast<T>(a << b);)
MEGJIT_SHIFT(Right,
             return static_cast<T>(a >>
                                   (b >= kBits<T> ? (std::is_signed_v<T> ? kBits<T> - 1 : 0) : b)) *
                    (b < kBits<T> || std::is_signed_v<T>);)

template <class Op>
void decode_bits_unary(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = with_bits(d, type, []<class T> { return &unary<T, Op>; });
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
}
template <class Op>
void decode_count(Decoder& d, const Statement& s, Inst& in) {  // the result is always 32 bits
    const Type type = type_of(d, s);
    in.run = with_bits(d, type, []<class T> { return &unary<uint32_t, Op, T>; });
    in.d = d.dest(s.operands.at(0), 4);
    in.a = d.source(s.operands.at(1), type);
}

// ---- logic
template <class Op>
void predicates(Warp& w, const Inst& in) {
    set_predicate(w, in.d, static_cast<uint32_t>(Op::of(predicate(w, in.a), predicate(w, in.b))),
                  mask_of(w, in));
}
void predicate_not(Warp& w, const Inst& in) {
    set_predicate(w, in.d, ~predicate(w, in.a), mask_of(w, in));
}

template <class Op>
void decode_logic(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    if (type == Type::pred) {
        in.run = &predicates<Op>;
        in.d = d.dest_predicate(s.operands.at(0));
        in.a = d.source(s.operands.at(1), type);
        in.b = d.source(s.operands.at(2), type);
        return;
    }
    decode_binary<Op>(d, s, in);
}
void decode_not(Decoder& d, const Statement& s, Inst& in) {
    if (type_of(d, s) != Type::pred) return decode_bits_unary<Not>(d, s, in);
    in.run = &predicate_not;
    in.d = d.dest_predicate(s.operands.at(0));
    in.a = d.source(s.operands.at(1), Type::pred);
}
template <class Op>
void decode_shift(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = with_integer(d, type, []<class T> { return &shift<T, Op>; });
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), Type::u32);
}

void lop3(Warp& w, const Inst& in) {
    const uint32_t *a = row<uint32_t>(w, in.a), *b = row<uint32_t>(w, in.b),
                   *c = row<uint32_t>(w, in.c);
    const auto table = static_cast<uint32_t>(in.imm);
    uint32_t terms[8];
    for (int k = 0; k < 8; ++k) terms[k] = table >> k & 1 ? kAll : 0;
    lanes<uint32_t>(w, in, [=](int i) {
        const uint32_t x = a[i], y = b[i], z = c[i];
        return (terms[7] & x & y & z) | (terms[6] & x & y & ~z) | (terms[5] & x & ~y & z) |
               (terms[4] & x & ~y & ~z) | (terms[3] & ~x & y & z) | (terms[2] & ~x & y & ~z) |
               (terms[1] & ~x & ~y & z) | (terms[0] & ~x & ~y & ~z);
    });
}
void decode_lop3(Decoder& d, const Statement& s, Inst& in) {
    if (s.has("and") || s.has("or")) d.refuse("with a predicate");
    in.run = &lop3;
    decode_three_words(d, s, in);
    in.imm = s.operands.at(4).bits;
}

// ---- fields of bits
template <class T>
void extract(Warp& w, const Inst& in) {
    const T* a = row<T>(w, in.a);
    const uint32_t *b = row<uint32_t>(w, in.b), *c = row<uint32_t>(w, in.c);
    lanes<T>(w, in, [=](int i) {
        using U = std::make_unsigned_t<T>;
        const uint32_t from = b[i] & 0xff, length = c[i] & 0xff, top = kBits<T> - 1;
        const auto bits = static_cast<U>(a[i]);
        U field = from > top ? 0 : bits >> from;
        if (length == 0) return T{0};
        if (length <= top) field &= (U{1} << length) - 1;
        // The sign is the field's highest bit, or the source's where the field goes beyond it.
        const uint32_t sign_at = std::min(from + length - 1, top);
        if (std::is_signed_v<T> && bits >> sign_at & 1) {
            const uint32_t kept = sign_at >= from ? sign_at - from + 1 : 0;
            if (kept <= top) field |= ~U{0} << kept;
        }
        return static_cast<T>(field);
    });
}
void decode_extract(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = with_integer(d, type, []<class T> { return &extract<T>; });
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), Type::u32);
    in.c = d.source(s.operands.at(3), Type::u32);
}
template <class T>
void insert(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b);
    const uint32_t *c = row<uint32_t>(w, in.c), *e = row<uint32_t>(w, in.e);
    lanes<T>(w, in, [=](int i) {
        const uint32_t from = c[i] & 0xff, length = e[i] & 0xff;
        if (from >= kBits<T> || length == 0) return b[i];
        const T ones = (length >= kBits<T> ? ~T{0} : (T{1} << length) - 1) << from;
        return static_cast<T>((b[i] & ~ones) | (static_cast<T>(a[i] << from) & ones));
    });
}
void decode_insert(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = with_bits(d, type, []<class T> { return &insert<T>; });
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), type);
    in.c = d.source(s.operands.at(3), Type::u32);
    in.e = d.source(s.operands.at(4), Type::u32);
}
template <class T, bool ShiftAmount>
void find_bit(Warp& w, const Inst& in) {
    const T* a = row<T>(w, in.a);
    lanes<uint32_t>(w, in, [=](int i) {
        using U = std::make_unsigned_t<T>;
        const auto bits = static_cast<U>(a[i] < 0 ? ~a[i] : a[i]);
        if (bits == 0) return kAll;
        const auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
        return ShiftAmount ? zeros : kBits<T> - 1 - zeros;
    });
}
void decode_find_bit(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = with_integer(d, type, [&]<class T>() -> Run {
        return s.has("shiftamt") ? &find_bit<T, true> : &find_bit<T, false>;
    });
    in.d = d.dest(s.operands.at(0), 4);
    in.a = d.source(s.operands.at(1), type);
}
void find_nth(Warp& w, const Inst& in) {
    const uint32_t *a = row<uint32_t>(w, in.a), *b = row<uint32_t>(w, in.b);
    const int32_t* c = row<int32_t>(w, in.c);
    lanes<uint32_t>(w, in, [=](int i) -> uint32_t {
        const uint32_t base = b[i] & 31;
        if (c[i] == 0) return a[i] >> base & 1 ? base : kAll;
        const int step = c[i] > 0 ? 1 : -1;
        int left = c[i] > 0 ? c[i] : -c[i];
        for (auto at = static_cast<int>(base); at >= 0 && at < 32; at += step)
            if (a[i] >> at & 1 && --left == 0) return static_cast<uint32_t>(at);
        return kAll;
    });
}
template <bool Signed>
void extend(Warp& w, const Inst& in) {
    const uint32_t *a = row<uint32_t>(w, in.a), *b = row<uint32_t>(w, in.b);
    const bool wraps = in.flags;
    lanes<uint32_t>(w, in, [=](int i) -> uint32_t {
        const uint32_t n = wraps ? b[i] & 31 : std::min(b[i], 32u);
        if (n == 0) return 0;
        if (n == 32) return a[i];
        const uint32_t field = a[i] & ((1u << n) - 1);
        return Signed && field >> (n - 1) ? field | kAll << n : field;
    });
}
void make_mask(Warp& w, const Inst& in) {
    const uint32_t *a = row<uint32_t>(w, in.a), *b = row<uint32_t>(w, in.b);
    const bool wraps = in.flags;
    lanes<uint32_t>(w, in, [=](int i) -> uint32_t {
        const uint32_t from = wraps ? a[i] & 31 : std::min(a[i], 32u);
        const uint32_t n = wraps ? b[i] & 31 : std::min(b[i], 32u);
        if (from == 32 || n == 0) return 0;
        return (n == 32 ? kAll : (1u << n) - 1) << from;
    });
}
void decode_two_words(Decoder& d, const Statement& s, Inst& in, Run run) {
    in.run = run;
    in.flags = s.has("wrap");
    in.d = d.dest(s.operands.at(0), 4);
    in.a = d.source(s.operands.at(1), 4);
    in.b = d.source(s.operands.at(2), 4);
}

// ---- bytes
void permute(Warp& w, const Inst& in) {
    const uint32_t *a = row<uint32_t>(w, in.a), *b = row<uint32_t>(w, in.b),
                   *c = row<uint32_t>(w, in.c);
    lanes<uint32_t>(w, in, [=, mode = in.mode](int i) {
        const uint64_t bytes = static_cast<uint64_t>(b[i]) << 32 | a[i];
        const uint32_t k = c[i] & 3;
        uint32_t picks[4];
        for (uint32_t n = 0; n < 4; ++n) switch (mode) {
                case 0: picks[n] = c[i] >> 4 * n & 15; break;
                case 1: picks[n] = (k + n) & 7; break;  // f4e
                case 2: picks[n] = (k - n) & 7; break;  // b4e
                case 3: picks[n] = k; break;  // rc8
                case 4: picks[n] = std::max(k, n); break;  // ecl
                case 5: picks[n] = std::min(k, n); break;  // ecr
                default: picks[n] = (k & 1) * 2 + (n & 1); break;  // rc16
            }
        uint32_t result = 0;
        for (uint32_t n = 0; n < 4; ++n) {
            uint32_t byte = bytes >> 8 * (picks[n] & 7) & 0xff;
            if (picks[n] & 8) byte = byte & 0x80 ? 0xff : 0;
            result |= byte << 8 * n;
        }
        return result;
    });
}
void decode_permute(Decoder& d, const Statement& s, Inst& in) {
    constexpr const char* kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
    in.run = &permute;
    for (uint8_t k = 0; k < 6; ++k)
        if (s.has(kModes[k])) in.mode = k + 1;
    decode_three_words(d, s, in);
}
void funnel(Warp& w, const Inst& in) {
    const uint32_t *a = row<uint32_t>(w, in.a), *b = row<uint32_t>(w, in.b),
                   *c = row<uint32_t>(w, in.c);
    const bool left = in.flags & 1, wraps = in.flags & 2;
    lanes<uint32_t>(w, in, [=](int i) {
        const uint32_t n = wraps ? c[i] & 31 : std::min(c[i], 32u);
        const uint64_t both = static_cast<uint64_t>(b[i]) << 32 | a[i];
        return static_cast<uint32_t>(left ? both << n >> 32 : both >> n);
    });
}
void decode_funnel(Decoder& d, const Statement& s, Inst& in) {
    in.run = &funnel;
    in.flags = static_cast<uint8_t>(s.has("l") | s.has("wrap") << 1);
    decode_three_words(d, s, in);
}
template <class A, class B>
void dot4(Warp& w, const Inst& in) {
    const A* a = row<A>(w, in.a);
    const B* b = row<B>(w, in.b);
    const uint32_t* c = row<uint32_t>(w, in.c);
    lanes<uint32_t>(w, in, [=](int i) {
        uint32_t sum = c[i];
        for (int k = 0; k < 4; ++k) sum += static_cast<uint32_t>(a[4 * i + k] * b[4 * i + k]);
        return sum;
    });
}
template <class A, class B>
void dot2(Warp& w, const Inst& in) {
    const A* a = row<A>(w, in.a);
    const B* b = row<B>(w, in.b);
    const uint32_t* c = row<uint32_t>(w, in.c);
    lanes<uint32_t>(w, in, [=, high = in.flags ? 2 : 0](int i) {
        uint32_t sum = c[i];
        for (int k = 0; k < 2; ++k)
            sum += static_cast<uint32_t>(a[2 * i + k] * b[4 * i + high + k]);
        return sum;
    });
}
void decode_dot(Decoder& d, const Statement& s, Inst& in) {
    const bool four = s.opcode[0] == "dp4a", a = s.opcode.at(s.opcode.size() - 2) == "s32",
               b = s.opcode.back() == "s32";
    if (four)
        in.run = a   ? b ? &dot4<int8_t, int8_t> : &dot4<int8_t, uint8_t>
                   : b ? &dot4<uint8_t, int8_t>
                     : &dot4<uint8_t, uint8_t>;
    else
        in.run = a   ? b ? &dot2<int16_t, int8_t> : &dot2<int16_t, uint8_t>
                   : b ? &dot2<uint16_t, int8_t>
                     : &dot2<uint16_t, uint8_t>;
    in.flags = s.has("hi");
    decode_three_words(d, s, in);
}

}  // namespace

void add_bit_operations(Operations& ops) {
    ops["and"] = &decode_logic<And>;
    ops["or"] = &decode_logic<Or>;
    ops["xor"] = &decode_logic<Xor>;
    ops["not"] = &decode_not;
    ops["cnot"] = &decode_bits_unary<IsZero>;
    ops["shl"] = &decode_shift<Left>;
    ops["shr"] = &decode_shift<Right>;
    ops["popc"] = &decode_count<Ones>;
    ops["clz"] = &decode_count<LeadingZeros>;
    ops["brev"] = &decode_bits_unary<Reverse>;
    ops["lop3"] = &decode_lop3;
    ops["bfe"] = &decode_extract;
    ops["bfi"] = &decode_insert;
    ops["bfind"] = &decode_find_bit;
    ops["fns"] = [](Decoder& d, const Statement& s, Inst& in) {
        decode_two_words(d, s, in, &find_nth);
        in.c = d.source(s.operands.at(3), 4);
    };
    ops["szext"] = [](Decoder& d, const Statement& s, Inst& in) {
        decode_two_words(d, s, in, s.has("s32") ? &extend<true> : &extend<false>);
    };
    ops["bmsk"] = [](Decoder& d, const Statement& s, Inst& in) {
        decode_two_words(d, s, in, &make_mask);
    };
    ops["prmt"] = &decode_permute;
    ops["shf"] = &decode_funnel;
    ops["dp4a"] = &decode_dot;
    ops["dp2a"] = &decode_dot;
}

}  // namespace megjit::card::ptx
