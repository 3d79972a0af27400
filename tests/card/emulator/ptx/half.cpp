// Arithmetic of float16 and bfloat16, alone and in pairs. Computed in float32, which has enough
// digits for one rounding; fma in float64, rounded to odd.
#include <algorithm>

#include "tests/card/emulator/ptx/decode.h"
#include "tests/card/emulator/ptx/rounding.h"

namespace megjit::card::ptx {
namespace {

enum : uint8_t {
    kFlush = 1,
    kSaturate = 2,
    kNanWins = 4,
    kXorSign = 8,
    kAbsolute = 16,
    kRelu = 32
};

struct Half {
    static float read(uint16_t h) { return from_half(h); }
    static uint16_t write(float x) { return to_half(x); }
    static uint16_t write_odd(double x) { return rounded_to_half(x, Rounding::nearest); }
    static float flush(float x) { return std::fabs(x) < 0x1p-14f ? std::copysign(0.0f, x) : x; }
};
struct Bfloat {
    static float read(uint16_t h) { return from_bfloat(h); }
    static uint16_t write(float x) { return to_bfloat(x); }
    static uint16_t write_odd(double x) { return rounded_to_bfloat(x, Rounding::nearest); }
    static float flush(float x) { return flushed(x); }
};

float lesser(float a, float b, bool greater, uint8_t flags) {
    if (a != a || b != b)
        return flags & kNanWins || (a != a && b != b) ? std::bit_cast<float>(kNan32)
               : a != a                               ? b
                                                      : a;
    if (a == b) return std::signbit(a) == greater ? b : a;
    return (a < b) == greater ? b : a;
}

enum class Op : uint8_t {
    add,
    subtract,
    multiply,
    fused,
    minimum,
    maximum,
    negate,
    absolute,
    exp2,
    tanh
};

// One pass over all elements, 32 or 64.
template <class Type, Op op>
void compute(Warp& w, const Inst& in) {
    const int elements = in.count * kLanes;
    const auto *a = row<uint16_t>(w, in.a), *b = row<uint16_t>(w, in.b),
               *c = row<uint16_t>(w, in.c);
    uint16_t result[2 * kLanes];
    const uint8_t flags = in.flags;
    const auto read = [&](uint16_t h) {
        const float x = Type::read(h);
        return flags & kFlush ? Type::flush(x) : x;
    };
    for (int k = 0; k < elements; ++k) {
        if constexpr (op == Op::negate) result[k] = a[k] ^ 0x8000;
        else if constexpr (op == Op::absolute) result[k] = a[k] & 0x7fff;
        else if constexpr (op == Op::fused) {
            const double x = fused_to_odd(read(a[k]), read(b[k]), read(c[k]));
            result[k] = Type::write_odd(flags & kSaturate            ? saturated(x)
                                        : flags & kRelu && !(x != x) ? std::max(x, 0.0)
                                                                     : x);
        } else {
            float x = read(a[k]);
            if constexpr (op == Op::add) x = x + read(b[k]);
            else if constexpr (op == Op::subtract) x = x - read(b[k]);
            else if constexpr (op == Op::multiply) x = x * read(b[k]);
            else if constexpr (op == Op::exp2) x = std::exp2(x);
            else if constexpr (op == Op::tanh) x = std::tanh(x);
            else {
                const float y = read(b[k]);
                const float p = flags & kAbsolute ? std::fabs(x) : x,
                            q = flags & kAbsolute ? std::fabs(y) : y;
                float r = lesser(p, q, op == Op::maximum, flags);
                if (flags & kXorSign && r == r)
                    r = std::copysign(r, std::signbit(x) != std::signbit(y) ? -1.0f : 1.0f);
                x = r;
            }
            if (flags & kSaturate) x = saturated(x);
            if (flags & kFlush) x = Type::flush(x);
            result[k] = Type::write(x);
        }
    }
    if (in.count == 1) lanes<uint16_t>(w, in, [&](int i) { return result[i]; });
    else
        lanes<uint32_t>(w, in, [&](int i) {
            return static_cast<uint32_t>(result[2 * i + 1]) << 16 | result[2 * i];
        });
}

template <class Type>
Run operation(const std::string& name) {
    if (name == "add") return &compute<Type, Op::add>;
    if (name == "sub") return &compute<Type, Op::subtract>;
    if (name == "mul") return &compute<Type, Op::multiply>;
    if (name == "fma") return &compute<Type, Op::fused>;
    if (name == "min") return &compute<Type, Op::minimum>;
    if (name == "max") return &compute<Type, Op::maximum>;
    if (name == "neg") return &compute<Type, Op::negate>;
    if (name == "abs") return &compute<Type, Op::absolute>;
    if (name == "ex2") return &compute<Type, Op::exp2>;
    if (name == "tanh") return &compute<Type, Op::tanh>;
    return nullptr;
}

}  // namespace

bool half_operation(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(s);
    const bool pair = type == Type::f16x2 || type == Type::bf16x2;
    if (!pair && type != Type::f16 && type != Type::bf16) return false;
    const bool is_half = type == Type::f16 || type == Type::f16x2;
    if (s.has("rz") || s.has("rm") || s.has("rp")) d.refuse("only to nearest");
    in.run = is_half ? operation<Half>(s.opcode[0]) : operation<Bfloat>(s.opcode[0]);
    if (!in.run) d.refuse("not for this type");
    in.count = pair ? 2 : 1;
    in.flags = static_cast<uint8_t>(
        (s.has("ftz") ? kFlush : 0) | (s.has("sat") ? kSaturate : 0) |
        (s.has("NaN") ? kNanWins : 0) | (s.has("xorsign") ? kXorSign : 0) |
        (s.has("abs") && s.opcode[0] != "abs" ? kAbsolute : 0) | (s.has("relu") ? kRelu : 0));
    const uint32_t bytes = pair ? 4 : 2;
    in.d = d.dest(s.operands.at(0), bytes);
    uint32_t* sources[] = {&in.a, &in.b, &in.c};
    for (size_t k = 1; k < s.operands.size(); ++k) *sources[k - 1] = d.source(s.operands[k], bytes);
    return true;
}

}  // namespace megjit::card::ptx
