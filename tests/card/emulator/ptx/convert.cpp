// cvt, mov, cvta, isspacep.
#include <algorithm>
#include <limits>

#include "tests/card/emulator/ptx/decode.h"
#include "tests/card/emulator/ptx/rounding.h"

namespace megjit::card::ptx {
namespace {

enum : uint8_t {
    kFlush = 1,
    kSaturate = 2,
    kRelu = 4,
    kInteger = 8
};  // kInteger: .rni and the like

// ---- integers among themselves
template <class D, class S>
void resize(Warp& w, const Inst& in) {
    const S* a = row<S>(w, in.a);
    if (in.flags & kSaturate)
        return lanes<D>(w, in, [=](int i) {
            using L = std::numeric_limits<D>;
            const auto x = static_cast<__int128>(a[i]);
            return static_cast<D>(std::clamp<__int128>(x, L::min(), L::max()));
        });
    lanes<D>(w, in, [=](int i) __attribute__((always_inline)) { return static_cast<D>(a[i]); });
}

// ---- through float64, which holds every narrower float exactly
struct Half {
    using Element = uint16_t;
    static double read(uint16_t x) { return from_half(x); }
    static uint16_t write(double x, Rounding m) { return rounded_to_half(x, m); }
};
struct Bfloat {
    using Element = uint16_t;
    static double read(uint16_t x) { return from_bfloat(x); }
    static uint16_t write(double x, Rounding m) { return rounded_to_bfloat(x, m); }
};
struct Single {
    using Element = float;
    static double read(float x) { return x; }
    static float write(double x, Rounding m) { return rounded_to_float(x, m); }
};
struct Double {
    using Element = double;
    static double read(double x) { return x; }
    static double write(double x, Rounding) { return x; }
};

double to_integer(double x, Rounding mode) {
    switch (mode) {
        case Rounding::zero: return std::trunc(x);
        case Rounding::down: return std::floor(x);
        case Rounding::up: return std::ceil(x);
        default: return std::nearbyint(x);
    }
}

template <class Float, class D>
void float_to_integer(Warp& w, const Inst& in) {
    const auto* a = row<typename Float::Element>(w, in.a);
    const auto mode = static_cast<Rounding>(in.mode);
    // NaN is 0 of narrow types, the highest bit of 64-bit ones or from float64.
    constexpr bool kHighBit = sizeof(D) == 8 || std::is_same_v<Float, Double>;
    lanes<D>(w, in, [=, flush = in.flags & kFlush](int i) -> D {
        double x = Float::read(a[i]);
        if (x != x) {
            using U = std::make_unsigned_t<D>;
            return kHighBit ? static_cast<D>(U{1} << (8 * sizeof(D) - 1)) : D{0};
        }
        if (flush && std::is_same_v<Float, Single>) x = flushed(static_cast<float>(x));
        x = to_integer(x, mode);
        using L = std::numeric_limits<D>;
        if (x <= static_cast<double>(L::min())) return L::min();
        if (x >= static_cast<double>(L::max())) return L::max();
        return static_cast<D>(x);
    });
}
void single_to_int32(Warp& w, const Inst& in) {  // towards zero, the usual one
    const float* a = row<float>(w, in.a);
    lanes<int32_t>(w, in, [=](int i) __attribute__((always_inline)) {
        const float x = a[i];
        const float low = x > -2147483648.0f ? x : -2147483648.0f;  // NaN too
        const int32_t whole = static_cast<int32_t>(low < 2147483520.0f ? low : 2147483520.0f);
        return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : whole;
    });
}

template <class S, class Float>
void integer_to_float(Warp& w, const Inst& in) {
    const S* a = row<S>(w, in.a);
    const auto mode = static_cast<Rounding>(in.mode);
    typename Float::Element result[kLanes];
    for (int i = 0; i < kLanes; ++i) {
        if constexpr (std::is_same_v<Float, Single> || std::is_same_v<Float, Double>) {
            const HostRounding scope(mode);
            volatile S x = a[i];
            volatile typename Float::Element y = static_cast<typename Float::Element>(x);
            result[i] = y;
        } else {
            // Rounded to odd where float64 cannot hold it: the second rounding is exact then.
            auto x = static_cast<double>(a[i]);
            if (const auto back = static_cast<__int128>(x); back != a[i]) {
                auto bits = std::bit_cast<uint64_t>(x);
                if ((back > a[i]) == (x > 0)) --bits;  // towards zero
                x = std::bit_cast<double>(bits | 1);
            }
            result[i] = Float::write(x, mode);
        }
    }
    lanes<typename Float::Element>(w, in, [&](int i) { return result[i]; });
}
template <class S>
void integer_to_single(Warp& w, const Inst& in) {  // to nearest
    const S* a = row<S>(w, in.a);
    lanes<float>(w, in,
                 [=](int i) __attribute__((always_inline)) { return static_cast<float>(a[i]); });
}

template <class From, class To>
void float_to_float(Warp& w, const Inst& in) {
    const auto* a = row<typename From::Element>(w, in.a);
    const auto mode = static_cast<Rounding>(in.mode);
    lanes<typename To::Element>(w, in, [=, flags = in.flags](int i) {
        double x = From::read(a[i]);
        if (flags & kFlush && std::is_same_v<From, Single>) x = flushed(static_cast<float>(x));
        if (flags & kInteger) x = to_integer(x, mode);
        if (flags & kSaturate) x = saturated(x);
        if (flags & kRelu && x == x) x = x > 0 ? x : 0;
        auto y = To::write(x, flags & kInteger ? Rounding::nearest : mode);
        if constexpr (std::is_same_v<To, Single>)
            if (flags & kFlush) y = flushed(y);
        return y;
    });
}
void half_to_single(Warp& w, const Inst& in) {
    const uint16_t* a = row<uint16_t>(w, in.a);
    lanes<float>(w, in, [=](int i) { return from_half(a[i]); });
}
void bfloat_to_single(Warp& w, const Inst& in) {
    const uint16_t* a = row<uint16_t>(w, in.a);
    lanes<float>(w, in, [=](int i) __attribute__((always_inline)) { return from_bfloat(a[i]); });
}
void single_to_half(Warp& w, const Inst& in) {
    const float* a = row<float>(w, in.a);
    lanes<uint16_t>(w, in, [=](int i) { return to_half(a[i]); });
}
void single_to_bfloat(Warp& w, const Inst& in) {
    const float* a = row<float>(w, in.a);
    lanes<uint16_t>(w, in, [=](int i) __attribute__((always_inline)) { return to_bfloat(a[i]); });
}

// d = {high from a, low from b}
template <class To>
void pack_halves(Warp& w, const Inst& in) {
    const float *a = row<float>(w, in.a), *b = row<float>(w, in.b);
    const auto mode = static_cast<Rounding>(in.mode);
    lanes<uint32_t>(w, in, [=, relu = in.flags & kRelu](int i) {
        const auto one = [&](double x) -> uint32_t {
            return To::write(relu && x == x && !(x > 0) ? 0.0 : x, mode);
        };
        return one(a[i]) << 16 | one(b[i]);
    });
}
void to_tf32(Warp& w, const Inst& in) {  // 10 bits of significand, ties away from zero
    const float* a = row<float>(w, in.a);
    lanes<float>(w, in, [=, mode = static_cast<Rounding>(in.mode)](int i) {
        if (a[i] != a[i]) return std::bit_cast<float>(kNan32);
        return static_cast<float>(rounded(a[i], mode, 11, -126, 3.4011621342146535e38));
    });
}

// ---- 8-bit floats in pairs
struct E4m3 {
    static constexpr int kDigits = 4, kMinExponent = -6, kBias = 7;
    static constexpr double kLargest = 448;
    static constexpr uint8_t kNan = 0x7f;
};
struct E5m2 {
    static constexpr int kDigits = 3, kMinExponent = -14, kBias = 15;
    static constexpr double kLargest = 57344;
    static constexpr uint8_t kNan = 0x7f;
};
template <class F8>
uint8_t to_float8(double x) {  // .satfinite, to nearest
    if (x != x) return F8::kNan;
    const uint8_t sign = std::signbit(x) ? 0x80 : 0;
    const double r = std::fabs(std::clamp(x, -F8::kLargest, F8::kLargest));
    const double y =
        std::min(rounded(r, Rounding::nearest, F8::kDigits, F8::kMinExponent, 1e9), F8::kLargest);
    if (y == 0) return sign;
    int exponent = 0;
    std::frexp(y, &exponent);
    const int unit = std::max(exponent - 1, F8::kMinExponent) - (F8::kDigits - 1);
    const int whole = static_cast<int>(std::ldexp(y, -unit));
    const int biased =
        std::max(exponent - 1, F8::kMinExponent) + F8::kBias - (whole < 1 << (F8::kDigits - 1));
    return static_cast<uint8_t>(sign | biased << (F8::kDigits - 1) |
                                (whole & ((1 << (F8::kDigits - 1)) - 1)));
}
template <class F8>
float from_float8(uint8_t v) {
    const int mantissa_bits = F8::kDigits - 1,
              exponent = v >> mantissa_bits & (0x7f >> mantissa_bits),
              mantissa = v & ((1 << mantissa_bits) - 1);
    const bool top = exponent == 0x7f >> mantissa_bits;
    float x;
    if (top && std::is_same_v<F8, E5m2>) x = mantissa ? NAN : INFINITY;
    else if (top && mantissa == (1 << mantissa_bits) - 1) x = NAN;
    else if (exponent == 0)
        x = std::ldexp(static_cast<float>(mantissa), F8::kMinExponent - mantissa_bits);
    else
        x = std::ldexp(static_cast<float>(mantissa | 1 << mantissa_bits),
                       exponent - F8::kBias - mantissa_bits);
    return v & 0x80 ? -x : x;
}
template <class F8>
void pack_float8(Warp& w, const Inst& in) {
    const bool pair = in.count == 1;  // from one register of two halves
    lanes<uint16_t>(w, in, [&](int i) -> uint16_t {
        const double high =
            pair ? from_half(row<uint16_t>(w, in.a)[2 * i + 1]) : row<float>(w, in.a)[i];
        const double low = pair ? from_half(row<uint16_t>(w, in.a)[2 * i]) : row<float>(w, in.b)[i];
        const auto one = [&](double x) {
            return to_float8<F8>(in.flags & kRelu && !(x > 0) && x == x ? 0 : x);
        };
        return static_cast<uint16_t>(one(high) << 8 | one(low));
    });
}
template <class F8>
void unpack_float8(Warp& w, const Inst& in) {
    const uint8_t* a = row<uint8_t>(w, in.a);
    lanes<uint32_t>(w, in, [=](int i) {
        return static_cast<uint32_t>(to_half(from_float8<F8>(a[2 * i + 1]))) << 16 |
               to_half(from_float8<F8>(a[2 * i]));
    });
}

Rounding rounding_of(const Statement& s) {
    for (const std::string& m : s.opcode) {
        if (m == "rz" || m == "rzi") return Rounding::zero;
        if (m == "rm" || m == "rmi") return Rounding::down;
        if (m == "rp" || m == "rpi") return Rounding::up;
        if (m == "rna") return Rounding::away;
    }
    return Rounding::nearest;
}

template <class F>
auto with_float(Decoder& d, Type type, F f) {
    switch (type) {
        case Type::f16: return f.template operator()<Half>();
        case Type::bf16: return f.template operator()<Bfloat>();
        case Type::f32: return f.template operator()<Single>();
        case Type::f64: return f.template operator()<Double>();
        default: d.refuse("not for this type");
    }
}
template <class F>
auto with_any_integer(Decoder& d, Type type, F f) {
    if (type == Type::s8) return f.template operator()<int8_t>();
    if (type == Type::u8 || type == Type::b8) return f.template operator()<uint8_t>();
    return with_integer(d, type, f);
}

Run conversion(Decoder& d, const Inst& in, Type to, Type from) {
    const bool fast = !in.flags;
    const auto mode = static_cast<Rounding>(in.mode);
    if (is_float(from) && is_float(to)) {
        if (fast && from == Type::f16 && to == Type::f32) return &half_to_single;
        if (fast && from == Type::bf16 && to == Type::f32) return &bfloat_to_single;
        if (fast && mode == Rounding::nearest && from == Type::f32 && to == Type::f16)
            return &single_to_half;
        if (fast && mode == Rounding::nearest && from == Type::f32 && to == Type::bf16)
            return &single_to_bfloat;
        return with_float(d, from, [&]<class From> {
            return with_float(d, to, [&]<class To>() -> Run { return &float_to_float<From, To>; });
        });
    }
    if (is_float(from)) {
        if (fast && mode == Rounding::zero && from == Type::f32 && to == Type::s32)
            return &single_to_int32;
        return with_float(d, from, [&]<class From> {
            return with_any_integer(d, to,
                                    [&]<class D>() -> Run { return &float_to_integer<From, D>; });
        });
    }
    if (is_float(to)) {
        if (mode == Rounding::nearest && to == Type::f32 && from == Type::s32)
            return &integer_to_single<int32_t>;
        if (mode == Rounding::nearest && to == Type::f32 && from == Type::u32)
            return &integer_to_single<uint32_t>;
        return with_any_integer(d, from, [&]<class S> {
            return with_float(d, to, [&]<class To>() -> Run { return &integer_to_float<S, To>; });
        });
    }
    return with_any_integer(d, to, [&]<class D> {
        return with_any_integer(d, from, [&]<class S>() -> Run { return &resize<D, S>; });
    });
}

// Registers may be wider than the types of cvt: values are extended to the register.
template <class D, class S>
void widen(Warp& w, const Inst& in) {
    const S* a = row<S>(w, in.a);
    lanes<D>(w, in, [=](int i) { return static_cast<D>(a[i]); });
}
void decode_cvt(Decoder& d, const Statement& s, Inst& plan) {
    Inst in = plan;
    const Type from = type_named(s.opcode.back()),
               to = type_named(s.opcode.at(s.opcode.size() - 2));
    if (from == Type::none || to == Type::none) d.refuse("which types?");
    const bool integer_value = s.has("rni") || s.has("rzi") || s.has("rmi") || s.has("rpi");
    in.mode = static_cast<uint8_t>(rounding_of(s));
    in.flags = static_cast<uint8_t>((s.has("ftz") ? kFlush : 0) | (s.has("sat") ? kSaturate : 0) |
                                    (s.has("relu") ? kRelu : 0));
    if (integer_value && is_float(from) && is_float(to)) in.flags |= kInteger;
    if (to == Type::tf32) in.run = &to_tf32;
    else if (to == Type::f16x2 && from == Type::f32) in.run = &pack_halves<Half>;
    else if (to == Type::bf16x2 && from == Type::f32) in.run = &pack_halves<Bfloat>;
    else if (to == Type::e4m3x2 || to == Type::e5m2x2) {
        in.run = to == Type::e4m3x2 ? &pack_float8<E4m3> : &pack_float8<E5m2>;
        in.count = static_cast<uint8_t>(s.operands.size() - 1);
    } else if (from == Type::e4m3x2) in.run = &unpack_float8<E4m3>;
    else if (from == Type::e5m2x2) in.run = &unpack_float8<E5m2>;
    else in.run = conversion(d, in, to, from);
    in.a = d.narrowed(s.operands.at(1), from);
    if (s.operands.size() > 2) in.b = d.source(s.operands[2], from);
    const uint32_t has = d.element_bytes(s.operands[0]), makes = bytes_of(to);
    if (has <= makes) {
        in.d = d.dest(s.operands[0], makes);
        plan = in;
        return;
    }
    // Into a wider register: by way of a row of the result's width.
    const uint32_t place = d.temporary(makes);
    in.d = place;
    d.emit(s) = in;
    plan.a = place;
    plan.d = d.dest(s.operands[0], has);
    plan.run = with_any_integer(d, is_float(to) ? (makes == 2 ? Type::u16 : Type::u32) : to,
                                [&]<class S>() -> Run {
        return has == 2   ? &widen<uint16_t, S>
               : has == 4 ? &widen<uint32_t, S>
                          : &widen<uint64_t, S>;
    });
}

// ---- mov
template <class T>
void move(Warp& w, const Inst& in) {
    const T* a = row<T>(w, in.a);
    lanes<T>(w, in, [=](int i) __attribute__((always_inline)) { return a[i]; });
}
void move_predicate(Warp& w, const Inst& in) {
    set_predicate(w, in.d, predicate(w, in.a), mask_of(w, in));
}
// {parts} to one, and one to {parts}
template <class Whole, class Part>
void pack(Warp& w, const Inst& in) {
    constexpr int n = sizeof(Whole) / sizeof(Part);
    lanes<Whole>(w, in, [&](int i) {
        Whole whole = 0;
        for (int k = 0; k < n; ++k)
            whole |= static_cast<Whole>(row<Part>(w, in.list[k])[i]) << 8 * sizeof(Part) * k;
        return whole;
    });
}
template <class Whole, class Part>
void unpack(Warp& w, const Inst& in) {
    constexpr int n = sizeof(Whole) / sizeof(Part);
    const Whole* a = row<Whole>(w, in.a);
    Whole values[kLanes];
    std::memcpy(values, a, sizeof values);
    Inst part = in;
    for (int k = 0; k < n; ++k) {
        part.d = in.list[k];
        lanes<Part>(w, part,
                    [&](int i) { return static_cast<Part>(values[i] >> 8 * sizeof(Part) * k); });
    }
}
#define MEGJIT_BY_WIDTHS(handler, whole, parts) \
    (whole == 4 && parts == 2   ? &handler<uint32_t, uint16_t> \
     : whole == 8 && parts == 2 ? &handler<uint64_t, uint32_t> \
     : whole == 8 && parts == 4 ? &handler<uint64_t, uint16_t> \
     : whole == 4 && parts == 4 ? &handler<uint32_t, uint8_t> \
     : whole == 2 && parts == 2 ? &handler<uint16_t, uint8_t> \
                                : nullptr)

void clock(Warp& w, const Inst& in) {
    const uint64_t now = w.block->launch.instructions / 32;
    if (in.count == 8) lanes<uint64_t>(w, in, [=](int) { return now; });
    else lanes<uint32_t>(w, in, [=](int) { return static_cast<uint32_t>(now); });
}

void decode_mov(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    const uint32_t bytes = bytes_of(type);
    const Operand &to = s.operands.at(0), &from = s.operands.at(1);
    if (type == Type::pred) {
        in.run = &move_predicate;
        in.d = d.dest_predicate(to);
        in.a = d.source(from, type);
        return;
    }
    if (from.kind == Operand::Kind::vector || to.kind == Operand::Kind::vector) {
        const bool packs = from.kind == Operand::Kind::vector;
        const Operand& parts = packs ? from : to;
        const auto n = static_cast<uint32_t>(parts.parts.size());
        in.run = packs ? MEGJIT_BY_WIDTHS(pack, bytes, n) : MEGJIT_BY_WIDTHS(unpack, bytes, n);
        if (!in.run) d.refuse("such a vector");
        std::vector<uint32_t> rows;
        for (const Operand& part : parts.parts)
            rows.push_back(packs ? d.source(part, bytes / n) : d.dest(part, bytes / n));
        in.list = d.keep(std::move(rows)).data();
        if (packs) in.d = d.dest(to, bytes);
        else in.a = d.source(from, bytes);
        return;
    }
    in.d = d.dest(to, bytes);
    if (from.name.starts_with("%clock") || from.name == "%globaltimer") {
        in.run = &clock;
        in.count = static_cast<uint8_t>(bytes);
        return;
    }
    in.run = with_bits(d, type, []<class T> { return &move<T>; });
    in.a = d.source(from, type);
}

// ---- generic addresses
template <class T>
void offset_address(Warp& w, const Inst& in) {
    const T* a = row<T>(w, in.a);
    lanes<T>(w, in,
             [=, add = static_cast<T>(in.imm)](int i) { return static_cast<T>(a[i] + add); });
}
Space space_of(const Statement& s) {
    if (s.has("shared") || s.has("shared::cta") || s.has("shared::cluster")) return Space::shared;
    if (s.has("local")) return Space::local;
    if (s.has("param") || s.has("param::entry")) return Space::param;
    if (s.has("const")) return Space::constant;
    return Space::global;
}
uint64_t window_of(Space space) {
    return space == Space::shared  ? kSharedWindow
           : space == Space::local ? kLocalWindow
           : space == Space::param ? kParamWindow
                                   : 0;
}
void decode_cvta(Decoder& d, const Statement& s, Inst& in) {
    const uint32_t bytes = bytes_of(type_of(d, s));
    const uint64_t window = window_of(space_of(s));
    in.imm = s.has("to") ? -window : window;
    in.run = bytes == 8 ? &offset_address<uint64_t> : &offset_address<uint32_t>;
    in.d = d.dest(s.operands.at(0), bytes);
    in.a = d.source(s.operands.at(1), bytes);
}
void is_space(Warp& w, const Inst& in) {
    const uint64_t* a = row<uint64_t>(w, in.a);
    const uint32_t bits =
        vote([&](int i) { return in.imm ? a[i] - in.imm < kWindowBytes : a[i] < kWindow; });
    set_predicate(w, in.d, bits, mask_of(w, in));
}
void decode_isspacep(Decoder& d, const Statement& s, Inst& in) {
    in.run = &is_space;
    in.imm = window_of(space_of(s));
    in.d = d.dest_predicate(s.operands.at(0));
    in.a = d.source(s.operands.at(1), 8);
}

}  // namespace

void add_convert_operations(Operations& ops) {
    ops["cvt"] = &decode_cvt;
    ops["mov"] = &decode_mov;
    ops["cvta"] = &decode_cvta;
    ops["isspacep"] = &decode_isspacep;
}

}  // namespace megjit::card::ptx
