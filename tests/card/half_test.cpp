// float16, bfloat16 and conversions: every value of the narrow types.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>

#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

// By the definition of the formats, not as the card computes them.
double value_of_half(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double x = exponent == 31 ? (mantissa ? NAN : INFINITY)
                     : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                    : std::ldexp(mantissa, -24);
    return h & 0x8000 ? -x : x;
}
double value_of_bfloat(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

// To nearest, ties to even, by looking among the neighbours of all positive values.
uint16_t nearest(double x, double (*value)(uint16_t), uint16_t infinity) {
    if (x != x) return 0x7fff;
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double a = std::fabs(x);
    uint16_t low = 0, high = infinity;
    while (high - low > 1) {
        const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
        (value(middle) <= a ? low : high) = middle;
    }
    const double below = value(low),
                 above = high == infinity ? 2 * value(low) - value(low - 1) : value(high);
    const double from_low = a - below, from_high = above - a;
    const bool up = from_high < from_low || (from_high == from_low && (low & 1));
    return sign | (a >= above || up ? high : low);
}
uint16_t to_half(double x) { return nearest(x, value_of_half, 0x7c00); }
uint16_t to_bfloat(double x) { return nearest(x, value_of_bfloat, 0x7f80); }

class Halves : public CardTest {
protected:
    static std::vector<uint16_t> all() {
        std::vector<uint16_t> v(65536);
        for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<uint16_t>(i);
        return v;
    }
    static std::vector<uint16_t> shuffled(unsigned seed) {
        auto v = all();
        std::shuffle(v.begin(), v.end(), std::mt19937(seed));
        return v;
    }
    static bool is_nan(uint16_t h, const std::string& type) {
        return (h & 0x7fff) > (type[0] == 'f' ? 0x7c00 : 0x7f80);
    }
    void expect_halves(const std::vector<uint16_t>& got, const std::vector<uint16_t>& wanted,
                       const std::string& type, const std::string& what) {
        for (size_t i = 0; i < wanted.size(); ++i)
            if (got[i] != wanted[i] && !(is_nan(got[i], type) && is_nan(wanted[i], type))) {
                ADD_FAILURE() << what << ", element " << i << ": " << std::hex << got[i]
                              << " instead of " << wanted[i];
                return;
            }
    }
};

struct Format {
    const char* name;
    double (*value)(uint16_t);
    uint16_t (*round)(double);
};
class EachHalf : public Halves, public testing::WithParamInterface<Format> {};
INSTANTIATE_TEST_SUITE_P(Types, EachHalf,
                         testing::Values(Format{"f16", value_of_half, to_half},
                                         Format{"bf16", value_of_bfloat, to_bfloat}),
                         [](const auto& p) { return p.param.name; });

TEST_P(EachHalf, EveryValueBecomesFloatAndBack) {
    const auto [name, value, round] = GetParam();
    const auto floats =
        apply<float>(std::string("cvt.f32.") + name + " %d, %x;", "f32", {name}, all());
    for (uint32_t h = 0; h < 65536; ++h) {
        const auto wanted = static_cast<float>(value(static_cast<uint16_t>(h)));
        ASSERT_TRUE(std::bit_cast<uint32_t>(floats[h]) == std::bit_cast<uint32_t>(wanted) ||
                    (floats[h] != floats[h] && wanted != wanted))
            << h;
    }
    expect_halves(
        apply<uint16_t>(std::string("cvt.rn.") + name + ".f32 %d, %x;", name, {"f32"}, floats),
        all(), name, "back");
}
TEST_P(EachHalf, FloatsBetweenAreRoundedToEven) {
    const auto [name, value, round] = GetParam();
    std::vector<float> floats = {INFINITY, -INFINITY, NAN,    65504,  65519.996f, 65520,
                                 1e30f,    3.4e38f,   1e-30f, 1e-45f, -0.0f};
    std::mt19937 random(5);
    for (uint32_t h = 0; h < 65536; h += 7) {
        const auto x = static_cast<float>(value(static_cast<uint16_t>(h))),
                   y = static_cast<float>(value(static_cast<uint16_t>(h + 1)));
        if (std::isfinite(x) && std::isfinite(y))
            floats.push_back(x / 2 + y / 2), floats.push_back(std::nextafter(x / 2 + y / 2, y));
        floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    }
    std::vector<uint16_t> wanted;
    for (const float x : floats) wanted.push_back(round(x));
    expect_halves(
        apply<uint16_t>(std::string("cvt.rn.") + name + ".f32 %d, %x;", name, {"f32"}, floats),
        wanted, name, "cvt.rn");
    const auto packed =
        apply<uint32_t>(std::string("cvt.rn.") + name + "x2.f32 %d, %x, %y;", "u32", {"f32", "f32"},
                        floats, std::vector<float>(floats.size(), 1.0f));
    std::vector<uint16_t> high;
    for (const uint32_t pair : packed) high.push_back(static_cast<uint16_t>(pair >> 16));
    expect_halves(high, wanted, name, "the first operand is the high half");
    EXPECT_EQ(packed[0] & 0xffff, round(1.0));
}
TEST_P(EachHalf, ArithmeticIsRoundedOnce) {
    const auto [name, value, round] = GetParam();
    const auto a = shuffled(1), b = shuffled(2), c = shuffled(3);
    const auto check = [&, value = value, round = round, name = std::string(name)](
                           const std::string& op, auto f) {
        std::vector<uint16_t> wanted;
        for (size_t i = 0; i < a.size(); ++i) wanted.push_back(round(f(value(a[i]), value(b[i]))));
        expect_halves(apply<uint16_t>(op + "." + name + " %d, %x, %y;", name, {name, name}, a, b),
                      wanted, name, op);
    };
    check("add.rn", [](double x, double y) { return x + y; });
    check("sub.rn", [](double x, double y) { return x - y; });
    check("mul.rn", [](double x, double y) { return x * y; });
    check("min", [](double x, double y) {
        return x != x ? y : y != y ? x : x == y ? (std::signbit(x) ? x : y) : std::min(x, y);
    });
    check("max.NaN", [](double x, double y) {
        return x != x || y != y ? NAN : x == y ? (std::signbit(x) ? y : x) : std::max(x, y);
    });
    // a * b + c: a long double on the right side of every tie.
    std::vector<uint16_t> wanted;
    for (size_t i = 0; i < a.size(); ++i) {
        const long double product = static_cast<long double>(value(a[i])) * value(b[i]),
                          term = value(c[i]);
        long double exact = product + term;
        const long double back = exact - product,
                          error = (product - (exact - back)) + (term - back);
        if (std::isfinite(exact) && error != 0 && static_cast<double>(exact) == exact)
            exact = std::nextafter(exact, error > 0 ? INFINITY : -INFINITY);
        auto x = static_cast<double>(exact);
        if (std::isfinite(x) && x != exact) {  // to odd
            auto bits = std::bit_cast<uint64_t>(x);
            if (std::fabs(static_cast<long double>(x)) > std::fabs(exact)) --bits;
            x = std::bit_cast<double>(bits | 1);
        }
        wanted.push_back(round(x));
    }
    expect_halves(apply<uint16_t>(std::string("fma.rn.") + name + " %d, %x, %y, %z;", name,
                                  {name, name, name}, a, b, c),
                  wanted, name, "fma.rn");
}
TEST_P(EachHalf, PairsAreTwo) {
    const auto [name, value, round] = GetParam();
    std::vector<uint32_t> a = {0x3c004000, 0x3f803f80}, b = {0x40003c00, 0x3f804000};
    const auto got = apply<uint32_t>(std::string("add.rn.") + name + "x2 %d, %x, %y;", "u32",
                                     {std::string(name) + "x2", std::string(name) + "x2"}, a, b);
    for (size_t i = 0; i < a.size(); ++i)
        EXPECT_EQ(got[i], static_cast<uint32_t>(round(value(a[i] >> 16) + value(b[i] >> 16)))
                                  << 16 |
                              round(value(a[i] & 0xffff) + value(b[i] & 0xffff)));
}
TEST_P(EachHalf, ComparesAndConvertsToIntegers) {
    const auto [name, value, round] = GetParam();
    const auto a = shuffled(4), b = shuffled(5);
    const auto less =
        apply<uint32_t>(std::string("setp.lt.") + name + " %q, %x, %y; selp.u32 %d, 1, 0, %q;",
                        "u32", {name, name}, a, b);
    const auto whole =
        apply<int32_t>(std::string("cvt.rzi.s32.") + name + " %d, %x;", "s32", {name}, a);
    for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(less[i], value(a[i]) < value(b[i]));
        const double x = value(a[i]);
        ASSERT_EQ(whole[i], x != x ? 0
                                   : static_cast<int32_t>(
                                         std::clamp(std::trunc(x), -2147483648.0, 2147483647.0)));
    }
}

// ---- conversions of the wide types

class Conversions : public Halves {};

TEST_F(Conversions, FloatsToIntegersSaturate) {
    const std::vector<double> v = {
        0,     -0.0,  0.5, 1.5,  2.5,   -0.5,         -1.5,     1e10,      -1e10, 1e20,
        -1e20, 255.7, 256, -129, 65536, 4294967295.0, INFINITY, -INFINITY, NAN,   2147483647.5};
    const auto check = [&]<class D>(const std::string& type, D nan) {
        for (const auto& [mode, f] :
             {std::pair<const char*, double (*)(double)>{"rni", std::nearbyint},
              {"rzi", std::trunc},
              {"rmi", std::floor},
              {"rpi", std::ceil}}) {
            const auto got = apply<D>(std::string("cvt.") + mode + "." + type + ".f64 %d, %x;",
                                      type, {"f64"}, v);
            for (size_t i = 0; i < v.size(); ++i) {
                const double x = f(v[i]);
                const D wanted = v[i] != v[i] ? nan
                                 : x <= static_cast<double>(std::numeric_limits<D>::min())
                                     ? std::numeric_limits<D>::min()
                                 : x >= static_cast<double>(std::numeric_limits<D>::max())
                                     ? std::numeric_limits<D>::max()
                                     : static_cast<D>(x);
                ASSERT_EQ(got[i], wanted) << mode << " " << type << " " << v[i];
            }
        }
    };
    check.operator()<int32_t>("s32", INT32_MIN);
    check.operator()<uint32_t>("u32", 0x80000000u);
    check.operator()<int64_t>("s64", INT64_MIN);
    check.operator()<uint64_t>("u64", uint64_t{1} << 63);
    check.operator()<int16_t>("s16", INT16_MIN);
    const std::vector<float> nan = {NAN, 3e9f, -3e9f, 2147483520.0f, -2147483648.0f};
    EXPECT_EQ(apply<int32_t>("cvt.rzi.s32.f32 %d, %x;", "s32", {"f32"}, nan),
              (std::vector<int32_t>{0, INT32_MAX, INT32_MIN, 2147483520, INT32_MIN}));
}
TEST_F(Conversions, IntegersToFloatsAreRoundedAsAsked) {
    const std::vector<int64_t> v = {
        0,       1, -1, 16777217, -16777217, 16777219, INT64_MAX, INT64_MIN, (int64_t{1} << 53) + 1,
        33554435};
    const auto near = apply<float>("cvt.rn.f32.s64 %d, %x;", "f32", {"s64"}, v);
    const auto down = apply<float>("cvt.rm.f32.s64 %d, %x;", "f32", {"s64"}, v);
    const auto zero = apply<double>("cvt.rz.f64.s64 %d, %x;", "f64", {"s64"}, v);
    for (size_t i = 0; i < v.size(); ++i) {
        EXPECT_EQ(near[i], static_cast<float>(v[i]));
        EXPECT_LE(static_cast<long double>(down[i]), static_cast<long double>(v[i]));
        EXPECT_GT(static_cast<long double>(std::nextafter(down[i], INFINITY)),
                  static_cast<long double>(v[i]));
        EXPECT_LE(std::fabs(static_cast<long double>(zero[i])),
                  std::fabs(static_cast<long double>(v[i])));
    }
}
TEST_F(Conversions, IntegersAreCutExtendedOrSaturated) {
    const std::vector<int32_t> v = {0,    1,   -1,  127,   128,       -128,
                                    -129, 255, 256, 65535, INT32_MAX, INT32_MIN};
    const auto check = [&]<class D>(const std::string& op, auto f) {
        const std::string type =
            op.substr(op.find_last_of('.', op.size() - 5) + 1,
                      op.find_last_of('.') - op.find_last_of('.', op.size() - 5) - 1);
        const auto got = apply<D>(op + " %d, %x;", type, {"s32"}, v);
        for (size_t i = 0; i < v.size(); ++i)
            ASSERT_EQ(got[i], static_cast<D>(f(v[i]))) << op << " " << v[i];
    };
    check.operator()<int8_t>("cvt.s8.s32", [](int32_t x) { return static_cast<int8_t>(x); });
    check.operator()<uint8_t>("cvt.sat.u8.s32", [](int32_t x) { return std::clamp(x, 0, 255); });
    check.operator()<int16_t>("cvt.sat.s16.s32",
                              [](int32_t x) { return std::clamp(x, -32768, 32767); });
    check.operator()<int64_t>("cvt.s64.s32", [](int32_t x) { return int64_t{x}; });
    check.operator()<uint64_t>("cvt.u64.u32",
                               [](int32_t x) { return uint64_t{static_cast<uint32_t>(x)}; });
}
TEST_F(Conversions, FloatsAreRoundedToWholeOnes) {
    const std::vector<float> v = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -0.2f, 1e20f, NAN, INFINITY};
    const auto check = [&](const char* mode, float (*f)(float)) {
        const auto got =
            apply<float>(std::string("cvt.") + mode + ".f32.f32 %d, %x;", "f32", {"f32"}, v);
        for (size_t i = 0; i < v.size(); ++i)
            EXPECT_TRUE(std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(f(v[i])) ||
                        v[i] != v[i])
                << mode << " " << v[i];
    };
    check("rni", std::nearbyint);
    check("rzi", std::trunc);
    check("rmi", std::floor);
    check("rpi", std::ceil);
}
TEST_F(Conversions, DoublesToFloatsInEachMode) {
    std::vector<double> v = {0.1,
                             -0.1,
                             1e300,
                             -1e300,
                             1e-50,
                             -1e-50,
                             1 + 0x1p-24,
                             1 + 0x3p-24,
                             INFINITY,
                             FLT_MAX * 1.0000001,
                             FLT_TRUE_MIN * 0.5,
                             FLT_TRUE_MIN * 0.75};
    for (const auto& [mode, to] : {std::pair{"rz", 0.0f}, {"rp", INFINITY}, {"rm", -INFINITY}}) {
        const auto got =
            apply<float>(std::string("cvt.") + mode + ".f32.f64 %d, %x;", "f32", {"f64"}, v);
        for (size_t i = 0; i < v.size(); ++i) {
            const auto near = static_cast<float>(v[i]);
            const bool beyond = to == 0  ? std::fabs(double{near}) > std::fabs(v[i])
                                : to > 0 ? near < v[i]
                                         : near > v[i];
            EXPECT_EQ(got[i], beyond ? std::nextafter(near, to) : near) << mode << " " << v[i];
        }
    }
}
// The lesser, wider forms of operands: a register may be wider than the type that is stored or
// converted.
TEST_F(Conversions, RegistersMayBeWiderThanTypes) {
    const std::vector<uint64_t> v = {0x1122334455667788, 0xffffffffffffff80};
    EXPECT_EQ(apply<uint32_t>("cvt.u32.u8 %d, %x;", "u32", {"u64"}, v),
              (std::vector<uint32_t>{0x88, 0x80}));
    EXPECT_EQ(apply<int32_t>("cvt.s32.s8 %d, %x;", "s32", {"u64"}, v),
              (std::vector<int32_t>{-0x78, -0x80}));
    EXPECT_EQ(apply<uint64_t>("{ .reg .b32 %w; cvt.u8.u64 %w, %x; cvt.u64.u32 %d, %w; }", "u64",
                              {"u64"}, v),
              (std::vector<uint64_t>{0x88, 0x80}));
}

}}  // namespace megjit::card_tests
