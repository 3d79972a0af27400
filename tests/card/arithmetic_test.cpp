// Instructions of numbers against the host's arithmetic, special values above all.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

constexpr float kInf = INFINITY, kNan = NAN;

class Arithmetic : public CardTest {
protected:
    // Every pair of the values.
    template <class T>
    static std::pair<std::vector<T>, std::vector<T>> pairs(const std::vector<T>& values) {
        std::vector<T> a, b;
        for (const T x : values)
            for (const T y : values) a.push_back(x), b.push_back(y);
        return {a, b};
    }
    template <class T>
    void expect_bits(const std::vector<T>& got, const std::vector<T>& wanted, const char* what) {
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i)
            if (std::memcmp(&got[i], &wanted[i], sizeof(T)) != 0) {
                if constexpr (std::is_floating_point_v<T>)
                    if (got[i] != got[i] && wanted[i] != wanted[i]) continue;
                ADD_FAILURE() << what << ", element " << i << ": " << +got[i] << " instead of "
                              << +wanted[i];
                return;
            }
    }
    // Compares an instruction of one type, on all pairs of these operands.
    template <class T, class F>
    void two(const std::string& op, const std::string& type, const std::vector<T>& values, F f) {
        const auto [a, b] = pairs(values);
        using D = decltype(f(T{}, T{}));
        std::vector<D> wanted(a.size());
        for (size_t i = 0; i < a.size(); ++i) wanted[i] = f(a[i], b[i]);
        expect_bits(apply<D>(op + "." + type + " %d, %x, %y;", type, {type, type}, a, b), wanted,
                    (op + "." + type).c_str());
    }
    template <class T, class F>
    void one(const std::string& op, const std::string& out, const std::string& type,
             const std::vector<T>& values, F f) {
        using D = decltype(f(T{}));
        std::vector<D> wanted(values.size());
        for (size_t i = 0; i < values.size(); ++i) wanted[i] = f(values[i]);
        expect_bits(apply<D>(op + " %d, %x;", out, {type}, values), wanted, op.c_str());
    }
};

template <class T>
std::vector<T> whole_numbers() {
    using L = std::numeric_limits<T>;
    std::vector<T> v = {0,
                        1,
                        2,
                        3,
                        7,
                        31,
                        32,
                        33,
                        100,
                        L::max(),
                        L::min(),
                        static_cast<T>(L::max() - 1),
                        static_cast<T>(L::min() + 1),
                        static_cast<T>(-1),
                        static_cast<T>(-2),
                        static_cast<T>(L::max() / 2 + 1)};
    std::mt19937_64 random(1);
    for (int i = 0; i < 24; ++i) v.push_back(static_cast<T>(random() >> (random() % 64)));
    return v;
}
template <class T>
std::vector<T> real_numbers() {
    using L = std::numeric_limits<T>;
    std::vector<T> v = {0,
                        -T{0},
                        1,
                        -1,
                        T(0.5),
                        T(1.5),
                        T(-2.5),
                        3,
                        L::max(),
                        L::lowest(),
                        L::min(),
                        -L::min(),
                        L::denorm_min(),
                        -L::denorm_min(),
                        L::infinity(),
                        -L::infinity(),
                        L::quiet_NaN(),
                        L::epsilon(),
                        T(1) + L::epsilon(),
                        T(1e10),
                        T(-1e-10)};
    std::mt19937 random(2);
    for (int i = 0; i < 20; ++i)
        v.push_back(std::ldexp(static_cast<T>(random()) / T(4294967296.0) - T(0.5),
                               static_cast<int>(random() % 60) - 30));
    return v;
}

template <class T>
std::string name_of() {
    return std::string(std::is_floating_point_v<T> ? "f"
                       : std::is_signed_v<T>       ? "s"
                                                   : "u") +
           std::to_string(8 * sizeof(T));
}

template <class T>
class Integers : public Arithmetic {};
using IntegerTypes = testing::Types<int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t>;
TYPED_TEST_SUITE(Integers, IntegerTypes);

TYPED_TEST(Integers, SumsProductsAndQuotients) {
    using T = TypeParam;
    using U = std::make_unsigned_t<T>;
    const auto v = whole_numbers<T>();
    const std::string t = name_of<T>();
    this->two("add", t, v,
              [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
    this->two("sub", t, v,
              [](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
    this->two("mul.lo", t, v, [](T a, T b) {
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    });
    this->two("mul.hi", t, v, [](T a, T b) {
        using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
        return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
    });
    this->two("min", t, v, [](T a, T b) { return std::min(a, b); });
    this->two("max", t, v, [](T a, T b) { return std::max(a, b); });
    auto nonzero = v;
    std::erase(nonzero, T{0});
    if (std::is_signed_v<T>) std::erase(nonzero, static_cast<T>(-1));  // min / -1 overflows
    this->two("div", t, nonzero, [](T a, T b) { return static_cast<T>(a / b); });
    this->two("rem", t, nonzero, [](T a, T b) { return static_cast<T>(a % b); });
}
TYPED_TEST(Integers, Shifts) {
    using T = TypeParam;
    std::vector<T> v = whole_numbers<T>();
    std::vector<T> a;
    std::vector<uint32_t> b;
    for (const T x : v)
        for (const uint32_t n : {0u, 1u, 5u, 15u, 16u, 17u, 31u, 32u, 63u, 64u, 1000u})
            a.push_back(x), b.push_back(n);
    const std::string t = name_of<T>(), bits = "b" + t.substr(1);
    std::vector<T> left, right;
    for (size_t i = 0; i < a.size(); ++i) {
        const uint32_t width = 8 * sizeof(T);
        left.push_back(b[i] >= width
                           ? T{0}
                           : static_cast<T>(static_cast<std::make_unsigned_t<T>>(a[i]) << b[i]));
        right.push_back(b[i] >= width ? static_cast<T>(a[i] < 0 ? -1 : 0)
                                      : static_cast<T>(a[i] >> b[i]));
    }
    this->expect_bits(this->template apply<T>("shl." + bits + " %d, %x, %y;", t, {t, "u32"}, a, b),
                      left, "shl");
    this->expect_bits(this->template apply<T>("shr." + t + " %d, %x, %y;", t, {t, "u32"}, a, b),
                      right, "shr");
}

TEST_F(Arithmetic, WideProducts) {
    const auto [a, b] = pairs(whole_numbers<int32_t>());
    std::vector<int64_t> c, wanted;
    for (size_t i = 0; i < a.size(); ++i) {
        c.push_back(static_cast<int64_t>(i) * -12345678901);
        wanted.push_back(static_cast<int64_t>(static_cast<uint64_t>(int64_t{a[i]} * b[i]) +
                                              static_cast<uint64_t>(c[i])));
    }
    expect_bits(
        apply<int64_t>("mad.wide.s32 %d, %x, %y, %z;", "s64", {"s32", "s32", "s64"}, a, b, c),
        wanted, "mad.wide");
}
TEST_F(Arithmetic, SaturatedSums) {
    two<int32_t>("add.sat", "s32", whole_numbers<int32_t>(), [](int32_t a, int32_t b) {
        return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX));
    });
}
TEST_F(Arithmetic, CarriesGoFromWordToWord) {
    // A sum of 64 bits by halves.
    const auto [a, b] = pairs(whole_numbers<uint64_t>());
    std::vector<uint64_t> wanted, difference;
    for (size_t i = 0; i < a.size(); ++i)
        wanted.push_back(a[i] + b[i]), difference.push_back(a[i] - b[i]);
    const std::string split =
        "{.reg .b32 %l<3>, %h<3>; mov.b64 {%l0, %h0}, %x; mov.b64 {%l1, %h1}, %y;";
    expect_bits(
        apply<uint64_t>(
            split + "add.cc.u32 %l2, %l0, %l1; addc.u32 %h2, %h0, %h1; mov.b64 %d, {%l2, %h2};}",
            "u64", {"u64", "u64"}, a, b),
        wanted, "addc");
    expect_bits(
        apply<uint64_t>(
            split + "sub.cc.u32 %l2, %l0, %l1; subc.u32 %h2, %h0, %h1; mov.b64 %d, {%l2, %h2};}",
            "u64", {"u64", "u64"}, a, b),
        difference, "subc");
}
TEST_F(Arithmetic, BitsAreCountedFoundAndReversed) {
    const auto v = whole_numbers<uint32_t>();
    const auto w = whole_numbers<uint64_t>();
    one("popc.b32", "u32", "u32", v,
        [](uint32_t x) { return static_cast<uint32_t>(std::popcount(x)); });
    one("popc.b64", "u32", "u64", w,
        [](uint64_t x) { return static_cast<uint32_t>(std::popcount(x)); });
    one("clz.b32", "u32", "u32", v,
        [](uint32_t x) { return static_cast<uint32_t>(std::countl_zero(x)); });
    one("clz.b64", "u32", "u64", w,
        [](uint64_t x) { return static_cast<uint32_t>(std::countl_zero(x)); });
    one("bfind.u32", "u32", "u32", v,
        [](uint32_t x) { return x ? 31 - static_cast<uint32_t>(std::countl_zero(x)) : ~0u; });
    one("bfind.s32", "u32", "s32", whole_numbers<int32_t>(), [](int32_t x) {
        const auto y = static_cast<uint32_t>(x < 0 ? ~x : x);
        return y ? 31 - static_cast<uint32_t>(std::countl_zero(y)) : ~0u;
    });
    one("brev.b32", "u32", "u32", v, [](uint32_t x) {
        uint32_t r = 0;
        for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
        return r;
    });
    one("not.b32", "u32", "u32", v, [](uint32_t x) { return ~x; });
    one("cnot.b32", "u32", "u32", v, [](uint32_t x) { return x == 0 ? 1u : 0u; });
    one("abs.s32", "s32", "s32", whole_numbers<int32_t>(),
        [](int32_t x) { return x < 0 ? static_cast<int32_t>(-static_cast<uint32_t>(x)) : x; });
}
// The text of the manual, bit by bit.
TEST_F(Arithmetic, FieldsOfBits) {
    std::vector<int32_t> a;
    std::vector<uint32_t> pos, len;
    for (const int32_t x : {0x12345678, static_cast<int32_t>(0xf0e1d2c3), -1, 0})
        for (uint32_t p : {0u, 1u, 7u, 20u, 31u, 32u, 40u})
            for (uint32_t n : {0u, 1u, 5u, 12u, 31u, 32u, 200u})
                a.push_back(x), pos.push_back(p), len.push_back(n);
    std::vector<int32_t> extracted;
    std::vector<uint32_t> inserted;
    for (size_t i = 0; i < a.size(); ++i) {
        const auto bit = [&](uint32_t k) { return static_cast<uint32_t>(a[i]) >> k & 1; };
        uint32_t d = 0, f = 0x0f0f0f0f;
        for (uint32_t k = 0; k < 32; ++k) {
            const uint32_t sign = len[i] == 0 ? 0 : bit(std::min(pos[i] + len[i] - 1, 31u));
            d |= (k < len[i] && pos[i] + k <= 31 ? bit(pos[i] + k) : sign) << k;
        }
        for (uint32_t k = 0; k < len[i] && pos[i] + k <= 31; ++k)
            f = (f & ~(1u << (pos[i] + k))) | bit(k) << (pos[i] + k);
        extracted.push_back(static_cast<int32_t>(d));
        inserted.push_back(f);
    }
    expect_bits(
        apply<int32_t>("bfe.s32 %d, %x, %y, %z;", "s32", {"s32", "u32", "u32"}, a, pos, len),
        extracted, "bfe.s32");
    expect_bits(apply<uint32_t>("bfi.b32 %d, %x, 0x0f0f0f0f, %y, %z;", "u32", {"s32", "u32", "u32"},
                                a, pos, len),
                inserted, "bfi");
}
TEST_F(Arithmetic, LogicOfThreeAndPermutedBytes) {
    const std::vector<uint32_t> a = {0xf0f0f0f0}, b = {0xcccccccc}, c = {0xaaaaaaaa};
    for (const uint32_t table : {0x00u, 0x80u, 0x96u, 0xe8u, 0xfeu, 0x1bu}) {
        const auto got = apply<uint32_t>("lop3.b32 %d, %x, %y, %z, " + std::to_string(table) + ";",
                                         "u32", {"u32", "u32", "u32"}, a, b, c);
        EXPECT_EQ(got[0], table * 0x01010101u) << table;  // the operands count through the table
    }
    const std::vector<uint32_t> low = {0x83828180}, high = {0x07060504};
    const auto permuted = [&](const std::string& how) {
        return apply<uint32_t>("prmt.b32" + how + ";", "u32", {"u32", "u32"}, low, high)[0];
    };
    EXPECT_EQ(permuted(" %d, %x, %y, 0x7531"), 0x07058381u);
    EXPECT_EQ(permuted(" %d, %x, %y, 0xfba8"), 0x00ffffffu);  // signs
    EXPECT_EQ(permuted(".f4e %d, %x, %y, 2"), 0x05048382u);
    EXPECT_EQ(permuted(".rc8 %d, %x, %y, 1"), 0x81818181u);
}
TEST_F(Arithmetic, FunnelShifts) {
    const std::vector<uint32_t> a = {0x12345678, 0x12345678, 0x12345678, 0x12345678},
                                b = {0x9abcdef0, 0x9abcdef0, 0x9abcdef0, 0x9abcdef0},
                                n = {0, 4, 32, 36};
    EXPECT_EQ(
        apply<uint32_t>("shf.l.wrap.b32 %d, %x, %y, %z;", "u32", {"u32", "u32", "u32"}, a, b, n),
        (std::vector<uint32_t>{0x9abcdef0, 0xabcdef01, 0x9abcdef0, 0xabcdef01}));
    EXPECT_EQ(
        apply<uint32_t>("shf.r.clamp.b32 %d, %x, %y, %z;", "u32", {"u32", "u32", "u32"}, a, b, n),
        (std::vector<uint32_t>{0x12345678, 0x01234567, 0x9abcdef0, 0x9abcdef0}));
}
TEST_F(Arithmetic, DotProductsOfBytes) {
    const std::vector<uint32_t> a = {0xff7f8001}, b = {0x02030405}, c = {1000};
    EXPECT_EQ(
        apply<int32_t>("dp4a.s32.s32 %d, %x, %y, %z;", "s32", {"u32", "u32", "u32"}, a, b, c)[0],
        1000 + 5 - 128 * 4 + 127 * 3 - 2);
    EXPECT_EQ(
        apply<int32_t>("dp4a.u32.u32 %d, %x, %y, %z;", "s32", {"u32", "u32", "u32"}, a, b, c)[0],
        1000 + 5 + 128 * 4 + 127 * 3 + 255 * 2);
}

// ---- floating point

template <class T>
class Reals : public Arithmetic {};
using RealTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Reals, RealTypes);

TYPED_TEST(Reals, SumsProductsAndQuotientsAreRoundedOnce) {
    using T = TypeParam;
    const auto v = real_numbers<T>();
    const std::string t = name_of<T>();
    this->two("add.rn", t, v, [](T a, T b) { return a + b; });
    this->two("sub.rn", t, v, [](T a, T b) { return a - b; });
    this->two("mul.rn", t, v, [](T a, T b) { return a * b; });
    this->two("div.rn", t, v, [](T a, T b) { return a / b; });
    this->one("sqrt.rn." + t, t, t, v, [](T a) { return std::sqrt(a); });
    this->one("rcp.rn." + t, t, t, v, [](T a) { return 1 / a; });
    this->one("neg." + t, t, t, v, [](T a) { return -a; });
    this->one("abs." + t, t, t, v, [](T a) { return std::fabs(a); });
    const auto [a, b] = this->pairs(v);
    std::vector<T> c(a.size(), T(1.25)), wanted;
    for (size_t i = 0; i < a.size(); ++i) wanted.push_back(std::fma(a[i], b[i], c[i]));
    this->expect_bits(
        this->template apply<T>("fma.rn." + t + " %d, %x, %y, %z;", t, {t, t, t}, a, b, c), wanted,
        "fma");
}
TYPED_TEST(Reals, TheLesserAndTheGreater) {
    using T = TypeParam;
    const auto v = real_numbers<T>();
    const auto lesser = [](T a, T b) {
        if (a != a) return b;
        if (b != b) return a;
        return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
    };
    this->two("min", name_of<T>(), v, lesser);
    this->two("max", name_of<T>(), v, [&](T a, T b) { return -lesser(-a, -b); });
}
TEST_F(Arithmetic, OfTwoNumbersNaNWinsWhereItIsAskedFor) {
    two<float>("min.NaN", "f32", real_numbers<float>(), [](float a, float b) {
        return a != a || b != b ? kNan : a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
    });
}
// Sums and products of float32 are exact in float64 but for far exponents; those are left out.
TEST_F(Arithmetic, DirectedRounding) {
    std::vector<float> v;
    std::mt19937 random(3);
    for (int i = 0; i < 40; ++i)
        v.push_back(std::ldexp(static_cast<float>(random() & 0xffffff) - 8388608.0f,
                               static_cast<int>(random() % 8) - 20));
    const auto towards = [](double exact, float to) {
        const auto near = static_cast<float>(exact);
        const bool beyond = to == 0  ? std::fabs(near) > std::fabs(exact)
                            : to > 0 ? near < exact
                                     : near > exact;
        return beyond ? std::nextafter(near, to) : near;
    };
    for (const auto& [mode, to] : {std::pair{"rz", 0.0f}, {"rp", kInf}, {"rm", -kInf}}) {
        two<float>(std::string("add.") + mode, "f32", v,
                   [&, to = to](float a, float b) { return towards(double{a} + b, to); });
        two<float>(std::string("mul.") + mode, "f32", v,
                   [&, to = to](float a, float b) { return towards(double{a} * b, to); });
    }
}
TEST_F(Arithmetic, FlushedAndSaturatedResults) {
    const auto flushed = [](float x) {
        return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x;
    };
    two<float>("add.ftz", "f32", real_numbers<float>(),
               [&](float a, float b) { return flushed(flushed(a) + flushed(b)); });
    two<float>("mul.ftz", "f32", real_numbers<float>(),
               [&](float a, float b) { return flushed(flushed(a) * flushed(b)); });
    two<float>("add.sat", "f32", real_numbers<float>(), [](float a, float b) {
        const float s = a + b;
        return s > 0 ? std::min(s, 1.0f) : 0.0f;
    });
}
TEST_F(Arithmetic, ApproximationsKeepTheManualsBounds) {
    std::vector<float> v;
    std::mt19937 random(4);
    for (int i = 0; i < 4000; ++i)
        v.push_back(std::ldexp(static_cast<float>(random()) / 4294967296.0f,
                               static_cast<int>(random() % 40) - 20));
    const auto check = [&](const std::string& op, double (*f)(double), double relative,
                           double absolute, float scale) {
        std::vector<float> x;
        for (const float value : v) x.push_back(std::fmod(value, scale));
        const auto got = apply<float>(op + ".f32 %d, %x;", "f32", {"f32"}, x);
        for (size_t i = 0; i < x.size(); ++i) {
            const double wanted = f(x[i]);
            ASSERT_LE(std::fabs(got[i] - wanted), std::max(relative * std::fabs(wanted), absolute))
                << op << " " << x[i];
        }
    };
    check("ex2.approx", [](double x) { return std::exp2(x); }, 0x1p-22, 0, 100);
    check("lg2.approx", [](double x) { return std::log2(x); }, 0x1p-22, 0x1p-22, 1e6f);
    check("sin.approx", [](double x) { return std::sin(x); }, 0, 0x1p-20, 6.28f);
    check("cos.approx", [](double x) { return std::cos(x); }, 0, 0x1p-20, 6.28f);
    check("tanh.approx", [](double x) { return std::tanh(x); }, 0x1p-11, 0, 20);
    check("rsqrt.approx", [](double x) { return 1 / std::sqrt(x); }, 0x1p-22, 0, 1e6f);
    check("rcp.approx", [](double x) { return 1 / x; }, 0x1p-23, 0, 1e6f);
}
TEST_F(Arithmetic, ApproximationsOfSpecialValues) {
    const std::vector<float> v = {0.0f,   -0.0f,   kInf,    -kInf,   kNan,
                                  128.0f, -127.5f, -149.0f, -151.0f, 127.0f};
    expect_bits(apply<float>("ex2.approx.f32 %d, %x;", "f32", {"f32"}, v),
                {1, 1, kInf, 0, kNan, kInf, std::exp2(-127.5f), FLT_TRUE_MIN, 0, 0x1p127f}, "ex2");
    expect_bits(apply<float>("lg2.approx.f32 %d, %x;", "f32", {"f32"},
                             std::vector<float>{0.0f, -0.0f, kInf, -1.0f, kNan, 1.0f}),
                {-kInf, -kInf, kInf, kNan, kNan, 0.0f}, "lg2");
    expect_bits(apply<float>("rcp.approx.f32 %d, %x;", "f32", {"f32"},
                             std::vector<float>{0.0f, -0.0f, kInf, -kInf, kNan}),
                {kInf, -kInf, 0.0f, -0.0f, kNan}, "rcp");
    expect_bits(apply<float>("rsqrt.approx.f32 %d, %x;", "f32", {"f32"},
                             std::vector<float>{0.0f, -0.0f, kInf, -1.0f, 4.0f}),
                {kInf, -kInf, 0.0f, kNan, 0.5f}, "rsqrt");
}
TEST_F(Arithmetic, Comparisons) {
    const auto [a, b] = pairs(real_numbers<float>());
    const auto compare = [&](const char* relation, bool (*f)(float, float)) {
        std::vector<uint32_t> wanted;
        for (size_t i = 0; i < a.size(); ++i) wanted.push_back(f(a[i], b[i]));
        expect_bits(apply<uint32_t>(
                        std::string("setp.") + relation + ".f32 %q, %x, %y; selp.u32 %d, 1, 0, %q;",
                        "u32", {"f32", "f32"}, a, b),
                    wanted, relation);
    };
    compare("eq", [](float x, float y) { return x == y; });
    compare("ne", [](float x, float y) { return x < y || x > y; });
    compare("lt", [](float x, float y) { return x < y; });
    compare("ge", [](float x, float y) { return x >= y; });
    compare("equ", [](float x, float y) { return !(x < y || x > y); });
    compare("neu", [](float x, float y) { return x != y; });
    compare("ltu", [](float x, float y) { return !(x >= y); });
    compare("leu", [](float x, float y) { return !(x > y); });
    compare("gtu", [](float x, float y) { return !(x <= y); });
    compare("geu", [](float x, float y) { return !(x < y); });
    compare("num", [](float x, float y) { return x == x && y == y; });
    compare("nan", [](float x, float y) { return x != x || y != y; });
}
TEST_F(Arithmetic, ComparisonsGiveTwoPredicatesAndJoinAThird) {
    const std::vector<int32_t> a = {1, 2, 3, 4}, b = {2, 2, 2, 2};
    const auto got = apply<uint32_t>(R"({ .reg .pred %r, %s; .reg .b32 %u, %v;
        setp.gt.s32 %r, %x, 3; setp.lt.or.s32 %q|%s, %x, %y, %r;
        selp.u32 %u, 1, 0, %q; selp.u32 %v, 2, 0, %s; add.u32 %d, %u, %v; })",
                                     "u32", {"s32", "s32"}, a, b);
    // q = (a < 2) or r; s = not (a < 2) or r
    EXPECT_EQ(got, (std::vector<uint32_t>{1, 2, 2, 3}));
}

}}  // namespace megjit::card_tests
