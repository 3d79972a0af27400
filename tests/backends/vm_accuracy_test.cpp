// Worst error of every transcendental instruction against libm in double, over all exponents, and its
// special values. With MEGJIT_ULP_TABLE set the worst case of each function is printed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/backends/vm_testing.h"

namespace megjit::cpu::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Error in units of the last place of the float next to `want`; a wrong special value is 1e9.
double ulp_error(float got, double want) {
    const float nearest = static_cast<float>(want);
    if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e9;
    if (got == nearest) return got == 0 && std::signbit(got) != std::signbit(nearest) ? 1e9 : 0;
    if (std::isinf(want)) return 1e9;
    int exponent = 0;
    std::frexp(want, &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
    return std::fabs((std::isinf(got) ? std::copysign(0x1p128, got) : got) - want) / unit;
}

struct Function {
    const char* name;
    Expr (*ours)(Expr);
    double (*reference)(double);
    bool positive_only = false;
};

double inverse_erf(double x) {
    if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? x * HUGE_VAL : NAN;
    if (std::fabs(x) < 1e-9) return x * 0.88622692545275801;
    const double a = std::fabs(x), w = -std::log((1 - a) * (1 + a)), t = 4.33 - w / 2;
    double y = std::sqrt(std::sqrt(t * t + w / 0.147) - t);
    for (int i = 0; i < 5; ++i) {  // Halley's method
        const double error = (y > 0.5 ? (1 - a) - std::erfc(y) : std::erf(y) - a) / (1.1283791670955126 * std::exp(-y * y));
        y -= error / (1 + y * error);
    }
    return std::copysign(y, x);
}

double psi(double x) {  // x >= 0
    if (x == 0 || std::isinf(x)) return x == 0 ? -HUGE_VAL : x;
    double sum = 0;
    for (; x < 14; x += 1) sum -= 1 / x;
    const double z = 1 / (x * x);
    return sum + std::log(x) - 0.5 / x - z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z / 132))));
}

#define MEGJIT_ROW(f) {#f, [](Expr x) { return f(x); }, [](double x) { return std::f(x); }}
const Function kFunctions[] = {
    MEGJIT_ROW(exp), MEGJIT_ROW(expm1), MEGJIT_ROW(log), MEGJIT_ROW(log1p), MEGJIT_ROW(sin), MEGJIT_ROW(cos),
    MEGJIT_ROW(tan), MEGJIT_ROW(asin), MEGJIT_ROW(acos), MEGJIT_ROW(atan), MEGJIT_ROW(sinh), MEGJIT_ROW(cosh),
    MEGJIT_ROW(tanh), MEGJIT_ROW(asinh), MEGJIT_ROW(acosh), MEGJIT_ROW(atanh), MEGJIT_ROW(erf), MEGJIT_ROW(erfc),
    MEGJIT_ROW(sqrt),
    {"erfinv", [](Expr x) { return erfinv(x); }, inverse_erf},
    {"lgamma", [](Expr x) { return lgamma(x); }, [](double x) { return std::lgamma(x); }, true},
    {"digamma", [](Expr x) { return digamma(x); }, psi, true},
};
#undef MEGJIT_ROW

class Accuracy : public ::testing::TestWithParam<Function> {};

TEST_P(Accuracy, StaysWithinTwoUlpOverAllExponents) {
    const Function& f = GetParam();
    constexpr uint32_t kCount = 1 << 21;
    std::vector<float> x(kCount);
    for (uint32_t i = 0; i < kCount; ++i) x[i] = std::bit_cast<float>((i * 2048u + i % 2039u) & (f.positive_only ? 0x7FFFFFFFu : ~0u));
    const std::vector<float> y = run_unary(f.ours, x);
    double worst = 0;
    float at = 0;
    for (uint32_t i = 0; i < kCount; ++i)
        if (const double error = ulp_error(y[i], f.reference(x[i])); error > worst) worst = error, at = x[i];
    if (std::getenv("MEGJIT_ULP_TABLE")) std::printf("%-8s %.3f ulp at %.9g\n", f.name, worst, at);
    // lgamma and digamma cancel next to their pieces' borders.
    EXPECT_LE(worst, f.positive_only ? 3.0 : 2.0) << f.name << "(" << at << ")";
}

TEST_P(Accuracy, HasTheSpecialValuesOfC) {
    const Function& f = GetParam();
    std::vector<float> x = {0.0f, 1.0f, 2.0f, 0.5f, kInf, kNaN, 1e-45f, 1.17549435e-38f, 3.40282347e38f};
    if (!f.positive_only)
        for (size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
    const std::vector<float> y = run_unary(f.ours, x);
    for (size_t i = 0; i < x.size(); ++i)
        EXPECT_LE(ulp_error(y[i], f.reference(x[i])), 2) << f.name << "(" << x[i] << ") = " << y[i];
}

INSTANTIATE_TEST_SUITE_P(Functions, Accuracy, ::testing::ValuesIn(kFunctions), [](const auto& test) { return std::string(test.param.name); });

const std::vector<float> kSpecial = {0.0f, -0.0f, 1, -1, 2, -2, 3, -3, 0.5f, -0.5f, kInf, -kInf, kNaN, 1e30f, -1e30f, 1e-40f, 16777217.0f, 4294967296.0f};

double worst_binary(Expr (*ours)(Expr, Expr), double (*reference)(double, double), const std::vector<float>& x, const std::vector<float>& y) {
    const std::vector<float> z = run_binary(ours, x, y);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const double error = ulp_error(z[i], reference(x[i], y[i]));
        EXPECT_LE(error, 2) << "f(" << x[i] << ", " << y[i] << ") = " << z[i];
        worst = std::max(worst, error);
    }
    return worst;
}

std::pair<std::vector<float>, std::vector<float>> pairs() {
    std::mt19937 random(7);
    std::vector<float> x, y;
    for (float a : kSpecial)
        for (float b : kSpecial) x.push_back(a), y.push_back(b);
    for (int i = 0; i < 400000; ++i) {
        x.push_back(i % 2 ? std::bit_cast<float>(static_cast<uint32_t>(random())) : std::ldexp(static_cast<float>(random()) * 0x1p-32f, static_cast<int>(random() % 12) - 6));
        y.push_back(i % 3 ? std::ldexp(static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f, static_cast<int>(random() % 10)) : std::bit_cast<float>(static_cast<uint32_t>(random())));
    }
    return {x, y};
}

TEST(AccuracyOfTwo, PowStaysWithinTwoUlpAndKeepsTheCasesOfC) {
    const auto [x, y] = pairs();
    EXPECT_LE(worst_binary([](Expr a, Expr b) { return pow(a, b); }, [](double a, double b) { return std::pow(a, b); }, x, y), 2);
}

TEST(AccuracyOfTwo, Atan2StaysWithinTwoUlpAndKeepsTheCasesOfC) {
    const auto [x, y] = pairs();
    EXPECT_LE(worst_binary([](Expr a, Expr b) { return atan2(a, b); }, [](double a, double b) { return std::atan2(a, b); }, x, y), 2);
}

}  // namespace
}  // namespace megjit::cpu::testing
