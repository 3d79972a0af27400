// Arithmetic of float32 and float64.
#include <cstdlib>

#include "tests/card/emulator/ptx/decode.h"
#include "tests/card/emulator/ptx/rounding.h"

namespace megjit::card::ptx {

// of the files of operations
void integer_add(Decoder&, const Statement&, Inst&);
void integer_subtract(Decoder&, const Statement&, Inst&);
void integer_multiply(Decoder&, const Statement&, Inst&);
void integer_divide(Decoder&, const Statement&, Inst&);
void integer_negate(Decoder&, const Statement&, Inst&);
void integer_absolute(Decoder&, const Statement&, Inst&);
void integer_minimum(Decoder&, const Statement&, Inst&);
void integer_maximum(Decoder&, const Statement&, Inst&);
bool half_operation(Decoder&, const Statement&, Inst&);  // false when its type is none of them

namespace {

enum : uint8_t { kFlush = 1, kSaturate = 2, kNanWins = 4, kXorSign = 8, kAbsolute = 16 };

struct Add {
    template <class T>
    static T of(T a, T b) {
        return a + b;
    }
};
struct Subtract {
    template <class T>
    static T of(T a, T b) {
        return a - b;
    }
};
struct Multiply {
    template <class T>
    static T of(T a, T b) {
        return a * b;
    }
};
struct Divide {
    template <class T>
    static T of(T a, T b) {
        return a / b;
    }
};
struct Fused {
    template <class T>
    static T of(T a, T b, T c) {
        return std::fma(a, b, c);
    }
};
struct SquareRoot {
    template <class T>
    static T of(T a) {
        return std::sqrt(a);
    }
};
struct Reciprocal {
    template <class T>
    static T of(T a) {
        return T{1} / a;
    }
};
struct ReciprocalRoot {
    static float of(float a) { return static_cast<float>(1 / std::sqrt(static_cast<double>(a))); }
    static double of(double a) { return 1 / std::sqrt(a); }
};
struct Negate {
    template <class T>
    static T of(T a) {
        return -a;
    }
};
struct Absolute {
    template <class T>
    static T of(T a) {
        return std::fabs(a);
    }
};
// Approximations: better than a card's, within the bounds of the manual.
struct Sine {
    static float of(float a) { return std::sin(a); }
};
struct Cosine {
    static float of(float a) { return std::cos(a); }
};
struct Tangent {
    static float of(float a) { return std::tanh(a); }
};
struct Log2 {
    static float of(float a) { return std::log2(a); }
};
struct Exp2 {
    static float of(float a) {
        // 2^a = 2^whole * 2^part, part in [-0.5, 0.5]; the polynomial is e^(part ln 2), its error
        // 2^-25.
        const float x = a < -160.0f ? -160.0f : a > 160.0f ? 160.0f : a;
        const float whole = std::nearbyint(x);
        const float t = (x - whole) * 0.69314718056f;
        float p = 1.0f / 5040;
        p = std::fma(p, t, 1.0f / 720);
        p = std::fma(p, t, 1.0f / 120);
        p = std::fma(p, t, 1.0f / 24);
        p = std::fma(p, t, 1.0f / 6);
        p = std::fma(p, t, 0.5f);
        p = std::fma(p, t, 1.0f);
        p = std::fma(p, t, 1.0f);
        const int32_t n = a == a ? static_cast<int32_t>(whole) : 0;
        const int32_t first = n >> 1, second = n - first;
        const float scaled = p * std::bit_cast<float>((first + 127) << 23) *
                             std::bit_cast<float>((second + 127) << 23);
        return a == a ? scaled : a;
    }
};

template <class Op, class T>
void unary(Warp& w, const Inst& in) {
    const T* a = row<T>(w, in.a);
    lanes<T>(w, in, [=](int i) __attribute__((always_inline)) { return Op::of(a[i]); });
}
template <class Op, class T>
void binary(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b);
    lanes<T>(w, in, [=](int i) __attribute__((always_inline)) { return Op::of(a[i], b[i]); });
}
template <class Op, class T>
void ternary(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b), *c = row<T>(w, in.c);
    lanes<T>(w, in, [=](int i) __attribute__((always_inline)) { return Op::of(a[i], b[i], c[i]); });
}

// With flushed subnormals, another rounding, or a saturated result.
template <class Op, int kOperands, class T>
void general(Warp& w, const Inst& in) {
    const auto read = [&](uint32_t offset) {
        return [=, p = row<T>(w, offset), flush = in.flags & kFlush](int i) -> T {
            if constexpr (sizeof(T) == 4) return flush ? flushed(p[i]) : p[i];
            else return p[i];
        };
    };
    const auto a = read(in.a), b = read(in.b), c = read(in.c);
    T result[kLanes];
    {
        const HostRounding scope(static_cast<Rounding>(in.mode));
        for (int i = 0; i < kLanes; ++i) {
            T value;
            if constexpr (kOperands == 1) value = Op::of(a(i));
            else if constexpr (kOperands == 2) value = Op::of(a(i), b(i));
            else value = Op::of(a(i), b(i), c(i));
            result[i] = value;
        }
        asm volatile("" ::"r"(result) : "memory");  // computed before the mode is set back
    }
    lanes<T>(w, in, [&](int i) {
        T value = result[i];
        if (in.flags & kSaturate) value = saturated(value);
        if constexpr (sizeof(T) == 4)
            if (in.flags & kFlush) value = flushed(value);
        return value;
    });
}

Rounding rounding_of(const Statement& s) {
    for (const std::string& modifier : s.opcode) {
        if (modifier == "rz") return Rounding::zero;
        if (modifier == "rm") return Rounding::down;
        if (modifier == "rp") return Rounding::up;
        if (modifier == "rna") return Rounding::away;
    }
    return Rounding::nearest;
}

template <class Op, int kOperands>
Run plain(bool is_double) {
    if constexpr (kOperands == 1) return is_double ? &unary<Op, double> : &unary<Op, float>;
    else if constexpr (kOperands == 2) return is_double ? &binary<Op, double> : &binary<Op, float>;
    else return is_double ? &ternary<Op, double> : &ternary<Op, float>;
}

template <class Op, int kOperands>
void decode_float(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    if (type != Type::f32 && type != Type::f64) d.refuse("not for this type");
    in.flags = static_cast<uint8_t>((s.has("ftz") ? kFlush : 0) | (s.has("sat") ? kSaturate : 0));
    in.mode = static_cast<uint8_t>(rounding_of(s));
    const bool is_double = type == Type::f64;
    if (!in.flags && !in.mode) in.run = plain<Op, kOperands>(is_double);
    else in.run = is_double ? &general<Op, kOperands, double> : &general<Op, kOperands, float>;
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    if (kOperands > 1) in.b = d.source(s.operands.at(2), type);
    if (kOperands > 2) in.c = d.source(s.operands.at(3), type);
}
template <class Op>
void decode_approximation(Decoder& d, const Statement& s, Inst& in) {
    if (type_of(d, s) == Type::f64) {  // rcp.approx.ftz.f64, rsqrt.approx.ftz.f64
        if constexpr (requires { Op::of(1.0f); } && !std::is_same_v<decltype(Op::of(1.0)), float>)
            in.run = &unary<Op, double>;
        else d.refuse("not for this type");
        in.d = d.dest(s.operands.at(0), 8);
        in.a = d.source(s.operands.at(1), Type::f64);
        return;
    }
    if (half_operation(d, s, in)) return;
    in.flags = s.has("ftz") ? kFlush : 0;
    in.run = in.flags ? &general<Op, 1, float> : &unary<Op, float>;
    in.d = d.dest(s.operands.at(0), 4);
    in.a = d.source(s.operands.at(1), Type::f32);
}

// ---- the lesser and the greater: -0 is less than +0; NaN loses, or wins with .NaN
template <class T, bool kGreater>
void extreme(Warp& w, const Inst& in) {
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b);
    const T* c = in.count == 3 ? row<T>(w, in.c) : nullptr;
    const auto flags = in.flags;
    lanes<T>(w, in, [=](int i) {
        const auto input = [&](T x) -> T {
            if constexpr (sizeof(T) == 4)
                if (flags & kFlush) x = flushed(x);
            return flags & kAbsolute ? std::fabs(x) : x;
        };
        const auto two = [&](T x, T y) -> T {
            if (x != x || y != y) {
                const T nan = std::bit_cast<T>(
                    static_cast<std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>(
                        sizeof(T) == 4 ? kNan32 : 0x7fffffffffffffff));
                return flags & kNanWins || (x != x && y != y) ? nan : x != x ? y : x;
            }
            if (x == y) return std::signbit(x) == kGreater ? y : x;
            return (x < y) == kGreater ? y : x;
        };
        T r = two(input(a[i]), input(b[i]));
        if (c) r = two(r, input(c[i]));
        if (flags & kXorSign && r == r)
            r = std::copysign(r, std::signbit(a[i]) != std::signbit(b[i]) ? T{-1} : T{1});
        return r;
    });
}
template <bool kGreater>
void decode_extreme(Decoder& d, const Statement& s, Inst& in) {
    if (s.has("s16x2") || s.has("u16x2"))
        return kGreater ? integer_maximum(d, s, in) : integer_minimum(d, s, in);
    const Type type = type_of(d, s);
    if (half_operation(d, s, in)) return;
    if (!is_float(type)) return kGreater ? integer_maximum(d, s, in) : integer_minimum(d, s, in);
    in.run = type == Type::f64 ? &extreme<double, kGreater> : &extreme<float, kGreater>;
    in.flags =
        static_cast<uint8_t>((s.has("ftz") ? kFlush : 0) | (s.has("NaN") ? kNanWins : 0) |
                             (s.has("xorsign") ? kXorSign : 0) | (s.has("abs") ? kAbsolute : 0));
    in.d = d.dest(s.operands.at(0), bytes_of(type));
    in.a = d.source(s.operands.at(1), type);
    in.b = d.source(s.operands.at(2), type);
    in.count = static_cast<uint8_t>(s.operands.size() - 1);
    if (in.count == 3) in.c = d.source(s.operands[3], type);
}

template <class T>
void copy_sign(Warp& w, const Inst& in) {  // the sign of a, the rest of b
    const T *a = row<T>(w, in.a), *b = row<T>(w, in.b);
    lanes<T>(w, in, [=](int i) { return std::copysign(b[i], a[i]); });
}

void test_property(Warp& w, const Inst& in) {
    const bool is_double = in.flags;
    const uint32_t bits = vote([&](int i) {
        const double x = is_double ? row<double>(w, in.a)[i] : row<float>(w, in.a)[i];
        const int kind = is_double ? std::fpclassify(x) : std::fpclassify(row<float>(w, in.a)[i]);
        switch (in.mode) {
            case 0: return std::isfinite(x);
            case 1: return std::isinf(x);
            case 2: return !std::isnan(x);
            case 3: return std::isnan(x);
            case 4: return kind == FP_NORMAL;
            default: return kind == FP_SUBNORMAL || kind == FP_ZERO;
        }
    });
    set_predicate(w, in.d, bits, mask_of(w, in));
}
void decode_test_property(Decoder& d, const Statement& s, Inst& in) {
    constexpr const char* kProperties[] = {"finite",     "infinite", "number",
                                           "notanumber", "normal",   "subnormal"};
    in.run = &test_property;
    for (uint8_t k = 0; k < 6; ++k)
        if (s.has(kProperties[k])) in.mode = k;
    const Type type = type_of(d, s);
    in.flags = type == Type::f64;
    in.d = d.dest_predicate(s.operands.at(0));
    in.a = d.source(s.operands.at(1), type);
}

// add.f32x2: two floats in 64 bits
template <class Op, int kOperands>
bool decode_pairs(Decoder& d, const Statement& s, Inst& in) {
    if (type_of(s) != Type::f32x2) return false;
    if (s.has("ftz") || rounding_of(s) != Rounding::nearest)
        d.refuse("only to nearest, without .ftz");
    in.run = [](Warp& w, const Inst& in) {
        const float *a = row<float>(w, in.a), *b = row<float>(w, in.b), *c = row<float>(w, in.c);
        float* to = row<float>(w, in.d);
        each_lane(mask_of(w, in), [&](int i) {
            for (int k = 2 * i; k < 2 * i + 2; ++k)
                if constexpr (kOperands == 2) to[k] = Op::of(a[k], b[k]);
                else to[k] = Op::of(a[k], b[k], c[k]);
        });
    };
    in.d = d.dest(s.operands.at(0), 8);
    in.a = d.source(s.operands.at(1), 8);
    in.b = d.source(s.operands.at(2), 8);
    if (kOperands == 3) in.c = d.source(s.operands.at(3), 8);
    return true;
}

template <class Op, Decode integers>
void decode_arithmetic(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(s);
    if (half_operation(d, s, in) || decode_pairs<Op, 2>(d, s, in)) return;
    is_float(type) ? decode_float<Op, 2>(d, s, in) : integers(d, s, in);
}
template <class Op, Decode integers>
void decode_sign(Decoder& d, const Statement& s, Inst& in) {
    if (half_operation(d, s, in)) return;
    is_float(type_of(d, s)) ? decode_float<Op, 1>(d, s, in) : integers(d, s, in);
}

}  // namespace

void add_float_operations(Operations& ops) {
    ops["add"] = &decode_arithmetic<Add, integer_add>;
    ops["sub"] = &decode_arithmetic<Subtract, integer_subtract>;
    ops["mul"] = &decode_arithmetic<Multiply, integer_multiply>;
    ops["div"] =
        &decode_arithmetic<Divide, integer_divide>;  // .approx, .full: rounded correctly too
    ops["neg"] = &decode_sign<Negate, integer_negate>;
    ops["abs"] = &decode_sign<Absolute, integer_absolute>;
    ops["min"] = &decode_extreme<false>;
    ops["max"] = &decode_extreme<true>;
    ops["fma"] = [](Decoder& d, const Statement& s, Inst& in) {
        if (!half_operation(d, s, in) && !decode_pairs<Fused, 3>(d, s, in))
            decode_float<Fused, 3>(d, s, in);
    };
    const Decode integer_multiply_add = ops.at("mad");
    static Decode integers;
    integers = integer_multiply_add;
    ops["mad"] = [](Decoder& d, const Statement& s, Inst& in) {
        is_float(type_of(d, s)) ? decode_float<Fused, 3>(d, s, in) : integers(d, s, in);
    };
    ops["sqrt"] = &decode_float<SquareRoot, 1>;
    ops["rcp"] = [](Decoder& d, const Statement& s, Inst& in) {
        s.has("approx") ? decode_approximation<Reciprocal>(d, s, in)
                        : decode_float<Reciprocal, 1>(d, s, in);
    };
    ops["rsqrt"] = &decode_approximation<ReciprocalRoot>;
    ops["sin"] = &decode_approximation<Sine>;
    ops["cos"] = &decode_approximation<Cosine>;
    ops["tanh"] = &decode_approximation<Tangent>;
    ops["lg2"] = &decode_approximation<Log2>;
    ops["ex2"] = &decode_approximation<Exp2>;
    ops["copysign"] = [](Decoder& d, const Statement& s, Inst& in) {
        const Type type = type_of(d, s);
        in.run = type == Type::f64 ? &copy_sign<double> : &copy_sign<float>;
        in.d = d.dest(s.operands.at(0), bytes_of(type));
        in.a = d.source(s.operands.at(1), type);
        in.b = d.source(s.operands.at(2), type);
    };
    ops["testp"] = &decode_test_property;
}

}  // namespace megjit::card::ptx
