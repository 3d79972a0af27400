// Arithmetic of integers.
#include "tests/card/emulator/ptx/integer_lanes.h"

namespace megjit::card::ptx {
namespace {

MEGJIT_OP1(Negate, return -a;)
MEGJIT_OP1(Absolute, return a < 0 ? -a : a;)
MEGJIT_OP2(Add, return a + b;)
MEGJIT_OP2(Subtract, return a - b;)
MEGJIT_OP2(AddSaturated, return std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX);)
MEGJIT_OP2(SubtractSaturated, return std::clamp<int64_t>(int64_t{a} - b, INT32_MIN, INT32_MAX);)
MEGJIT_OP2(Multiply, return a * b;)
MEGJIT_OP2(MultiplyHigh, return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b) >> kBits<T>;)
MEGJIT_OP2(MultiplyWide, return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);)
MEGJIT_OP2(Multiply24, return (a << 8 >> 8) * (b << 8 >> 8);)
// Division by zero gives all ones, as cards do; so does the remainder give a.
MEGJIT_OP2(Divide, if (b == 0) return static_cast<T>(-1);
           if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(-a);
           return static_cast<T>(a / b);)
MEGJIT_OP2(Remainder, if (b == 0) return a;
           if (std::is_signed_v<T> && b == static_cast<T>(-1)) return T{0};
           return static_cast<T>(a % b);)
MEGJIT_OP2(Minimum, return a < b ? a : b;)
MEGJIT_OP2(Maximum, return a < b ? b : a;)
MEGJIT_OP2(MinimumRelu, const T m = a < b ? a : b; return m < 0 ? T{0} : m;)
MEGJIT_OP2(MaximumRelu, const T m = a < b ? b : a; return m < 0 ? T{0} : m;)
MEGJIT_OP3(MultiplyAdd, return a * b + c;)
MEGJIT_OP3(MultiplyHighAdd,
           return (static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b) >> kBits<T>)+c;)
MEGJIT_OP3(MultiplyWideAdd, return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b) + c;)
MEGJIT_OP3(Multiply24Add, return (a << 8 >> 8) * (b << 8 >> 8) + c;)
MEGJIT_OP3(Sad, return c + (a < b ? b - a : a - b);)

template <class Op>
void decode_unary(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = with_integer(d, type, []<class T> { return &unary<T, Op>; });
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
}

// ---- packed halves of 16 bits
template <class T, class Op>
void packed(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b);
    lanes<uint32_t>(w, in, [=](int i) {
        const auto low = static_cast<uint16_t>(static_cast<T>(Op::of(a[2 * i], b[2 * i])));
        const auto high = static_cast<uint16_t>(static_cast<T>(Op::of(a[2 * i + 1], b[2 * i + 1])));
        return static_cast<uint32_t>(high) << 16 | low;
    });
}
template <class Op>
bool decode_packed(Decoder& d, const Statement& s, Inst& in) {
    const bool is_signed = s.has("s16x2");
    if (!is_signed && !s.has("u16x2")) return false;
    in.run = is_signed ? &packed<int16_t, Op> : &packed<uint16_t, Op>;
    in.d = d.dest(s.operands.at(0), 4);
    in.a = d.source(s.operands.at(1), 4);
    in.b = d.source(s.operands.at(2), 4);
    return true;
}

// ---- carries: one bit a lane
template <class T, bool Minus>
void with_carry(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b);
    T* d = row<T>(w, in.d);
    const bool uses = in.flags & 1, sets = in.flags & 2;
    each_lane(mask_of(w, in), [&](int i) {
        const T carry = uses ? w.carry >> i & 1 : 0;
        const T x = a[i], y = b[i];
        const T sum = Minus ? x - y - carry : x + y + carry;
        const bool over = Minus ? (y > x || (y == x && carry)) : (sum < x || (sum == x && carry));
        if (sets) w.carry = (w.carry & ~(1u << i)) | static_cast<uint32_t>(over) << i;
        d[i] = sum;
    });
}
template <bool Minus>
void decode_carry(Decoder& d, const Statement& s, Inst& in, bool uses) {
    const Type type = type_of(d, s);
    in.run = bytes_of(type) == 8 ? &with_carry<uint64_t, Minus> : &with_carry<uint32_t, Minus>;
    in.flags = static_cast<uint8_t>(uses | s.has("cc") << 1);
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), type);
}
template <class T, bool High>
void multiply_add_carry(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b), *c = row<T>(w, in.c);
    T* d = row<T>(w, in.d);
    const bool uses = in.flags & 1, sets = in.flags & 2;
    each_lane(mask_of(w, in), [&](int i) {
        using U = std::make_unsigned_t<T>;
        const auto product = static_cast<U>(High ? MultiplyHigh::of(a[i], b[i]) : a[i] * b[i]);
        const auto wide = static_cast<unsigned __int128>(product) + static_cast<U>(c[i]) +
                          (uses ? w.carry >> i & 1 : 0);
        if (sets)
            w.carry = (w.carry & ~(1u << i)) | static_cast<uint32_t>(wide >> kBits<T> & 1) << i;
        d[i] = static_cast<T>(wide);
    });
}
void decode_multiply_add_carry(Decoder& d, const Statement& s, Inst& in, bool uses) {
    const Type type = type_of(d, s);
    in.run = with_integer(d, type, [&]<class T>() -> Run {
        return s.has("hi") ? &multiply_add_carry<T, true> : &multiply_add_carry<T, false>;
    });
    in.flags = static_cast<uint8_t>(uses | s.has("cc") << 1);
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), type);
    in.c = d.source(s.operands.at(3), type);
}

// ---- products
void decode_multiply(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    const uint32_t bytes = bytes_of(type);
    if (s.has("wide")) {
        in.run = with_integer(d, type, [&]<class T>() -> Run {
            if constexpr (sizeof(T) == 8) d.refuse("no 128-bit product");
            else return &binary<Wide<T>, MultiplyWide, T>;
        });
        in.d = d.dest(s.operands.at(0), 2 * bytes);
    } else {
        in.run = with_integer(d, type, [&]<class T>() -> Run {
            return s.has("hi") ? &binary<T, MultiplyHigh> : &binary<T, Multiply>;
        });
        in.d = d.dest(s.operands.at(0), bytes);
    }
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), type);
}
void decode_multiply_add(Decoder& d, const Statement& s, Inst& in) {
    if (s.has("cc")) return decode_multiply_add_carry(d, s, in, false);
    const Type type = type_of(d, s);
    uint32_t bytes = bytes_of(type);
    if (s.has("wide")) {
        in.run = with_integer(d, type, [&]<class T>() -> Run {
            if constexpr (sizeof(T) == 8) d.refuse("no 128-bit product");
            else return &ternary<Wide<T>, MultiplyWideAdd, T>;
        });
        bytes *= 2;
    } else
        in.run = with_integer(d, type, [&]<class T>() -> Run {
            return s.has("hi") ? &ternary<T, MultiplyHighAdd> : &ternary<T, MultiplyAdd>;
        });
    in.d = d.dest(s.operands.at(0), bytes);
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), type);
    in.c = d.source(s.operands.at(3), bytes);
}
template <class Op>
void decode_ternary32(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = is_signed(type) ? &ternary<int32_t, Op> : &ternary<uint32_t, Op>;
    decode_three_words(d, s, in);
}

}  // namespace

void integer_add(Decoder& d, const Statement& s, Inst& in) {
    if (s.has("cc")) return decode_carry<false>(d, s, in, false);
    if (decode_packed<Add>(d, s, in)) return;
    decode_binary<Add>(d, s, in);
    if (s.has("sat")) in.run = &binary<int32_t, AddSaturated>;
}
void integer_subtract(Decoder& d, const Statement& s, Inst& in) {
    if (s.has("cc")) return decode_carry<true>(d, s, in, false);
    decode_binary<Subtract>(d, s, in);
    if (s.has("sat")) in.run = &binary<int32_t, SubtractSaturated>;
}
void integer_multiply(Decoder& d, const Statement& s, Inst& in) { decode_multiply(d, s, in); }
void integer_divide(Decoder& d, const Statement& s, Inst& in) { decode_binary<Divide>(d, s, in); }
void integer_negate(Decoder& d, const Statement& s, Inst& in) { decode_unary<Negate>(d, s, in); }
void integer_absolute(Decoder& d, const Statement& s, Inst& in) {
    decode_unary<Absolute>(d, s, in);
}
void integer_minimum(Decoder& d, const Statement& s, Inst& in) {
    if (decode_packed<Minimum>(d, s, in)) return;
    s.has("relu") ? decode_binary<MinimumRelu>(d, s, in) : decode_binary<Minimum>(d, s, in);
}
void integer_maximum(Decoder& d, const Statement& s, Inst& in) {
    if (decode_packed<Maximum>(d, s, in)) return;
    s.has("relu") ? decode_binary<MaximumRelu>(d, s, in) : decode_binary<Maximum>(d, s, in);
}

void add_integer_operations(Operations& ops) {
    ops["mad"] = [](Decoder& d, const Statement& s, Inst& in) { decode_multiply_add(d, s, in); };
    ops["rem"] = &decode_binary<Remainder>;
    ops["addc"] = [](Decoder& d, const Statement& s, Inst& in) {
        decode_carry<false>(d, s, in, true);
    };
    ops["subc"] = [](Decoder& d, const Statement& s, Inst& in) {
        decode_carry<true>(d, s, in, true);
    };
    ops["madc"] = [](Decoder& d, const Statement& s, Inst& in) {
        decode_multiply_add_carry(d, s, in, true);
    };
    ops["mul24"] = &decode_binary<Multiply24>;
    ops["mad24"] = &decode_ternary32<Multiply24Add>;
    ops["sad"] = [](Decoder& d, const Statement& s, Inst& in) {
        const Type type = type_of(d, s);
        in.run = with_integer(d, type, []<class T> { return &ternary<T, Sad>; });
        in.d = d.dest(s.operands.at(0), bytes_of(type));
        in.a = d.source(s.operands.at(1), type);
        in.b = d.source(s.operands.at(2), type);
        in.c = d.source(s.operands.at(3), type);
    };
}

}  // namespace megjit::card::ptx
