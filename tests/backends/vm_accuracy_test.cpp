// Worst error of every transcendental instruction against libm in double, over all exponents, and
// its special values. tests/numerics/ulp_table.cpp prints the table of docs/numerics.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/backends/vm_testing.h"
#include "tests/numerics/references.h"

namespace megjit::cpu::testing { namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using numerics::Function;
using numerics::ulp_error;

class Accuracy : public ::testing::TestWithParam<Function> {};

TEST_P(Accuracy, StaysWithinTwoUlpOverAllExponents) {
    const Function& f = GetParam();
    constexpr uint32_t kCount = 1 << 21;
    std::vector<float> x(kCount);
    for (uint32_t i = 0; i < kCount; ++i)
        x[i] =
            std::bit_cast<float>((i * 2048u + i % 2039u) & (f.positive_only ? 0x7FFFFFFFu : ~0u));
    const std::vector<float> y = run_unary(f.ours, x);
    double worst = 0;
    float at = 0;
    for (uint32_t i = 0; i < kCount; ++i)
        if (const double error = ulp_error(y[i], f.reference(x[i])); error > worst)
            worst = error, at = x[i];
    EXPECT_LE(worst, 2) << f.name << "(" << at << ")";
}

TEST_P(Accuracy, HasTheSpecialValuesOfC) {
    const Function& f = GetParam();
    std::vector<float> x = {0.0f,          1.0f, 2.0f, 0.5f, kInf, kNaN, 1e-45f, 1.17549435e-38f,
                            3.40282347e38f};
    if (!f.positive_only)
        for (size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
    const std::vector<float> y = run_unary(f.ours, x);
    for (size_t i = 0; i < x.size(); ++i)
        EXPECT_LE(ulp_error(y[i], f.reference(x[i])), 2) << f.name << "(" << x[i] << ") = " << y[i];
}

INSTANTIATE_TEST_SUITE_P(Functions, Accuracy, ::testing::ValuesIn(numerics::functions()),
                         [](const auto& test) { return std::string(test.param.name); });

const std::vector<float> kSpecial = {0.0f, -0.0f, 1,      -1,     2,           -2,
                                     3,    -3,    0.5f,   -0.5f,  kInf,        -kInf,
                                     kNaN, 1e30f, -1e30f, 1e-40f, 16777217.0f, 4294967296.0f};

double worst_binary(Expr (*ours)(Expr, Expr), double (*reference)(double, double),
                    const std::vector<float>& x, const std::vector<float>& y) {
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
        x.push_back(i % 2 ? std::bit_cast<float>(static_cast<uint32_t>(random()))
                          : std::ldexp(static_cast<float>(random()) * 0x1p-32f,
                                       static_cast<int>(random() % 12) - 6));
        y.push_back(i % 3
                        ? std::ldexp(static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f,
                                     static_cast<int>(random() % 10))
                        : std::bit_cast<float>(static_cast<uint32_t>(random())));
    }
    return {x, y};
}

TEST(AccuracyOfTwo, PowStaysWithinTwoUlpAndKeepsTheCasesOfC) {
    const auto [x, y] = pairs();
    EXPECT_LE(worst_binary([](Expr a, Expr b) { return pow(a, b); },
                           [](double a, double b) { return std::pow(a, b); }, x, y),
              2);
}

TEST(AccuracyOfTwo, Atan2StaysWithinTwoUlpAndKeepsTheCasesOfC) {
    const auto [x, y] = pairs();
    EXPECT_LE(worst_binary([](Expr a, Expr b) { return atan2(a, b); },
                           [](double a, double b) { return std::atan2(a, b); }, x, y),
              2);
}

}}  // namespace megjit::cpu::testing
