// Random ops: known answers of the generator, independence of threads, and moments of the
// distributions.
#include "runtime/ops/philox.h"

#include <algorithm>
#include <functional>
#include <set>

#include "tests/backends/tensor_testing.h"

namespace megjit::testing { namespace {

using runtime::Philox;

Values key(int seed, int counter = 0) {
    return {{DType::i32, {4}}, {static_cast<double>(seed), 1, static_cast<double>(counter), 0}};
}

// The three known answers for philox4x32-10 that come with the paper's library.
TEST(Philox, GivesTheKnownAnswers) {
    EXPECT_EQ(Philox::rounds({{0, 0, 0, 0}}, {0, 0}),
              (Philox::Block{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
    EXPECT_EQ(Philox::rounds({{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}),
              (Philox::Block{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
    EXPECT_EQ(Philox::rounds({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                             {0xa4093822, 0x299f31d0}),
              (Philox::Block{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

TEST(Random, UniformIsTheTop24BitsOfEachWord) {
    const Values y = run_twice("random_uniform", {key(7, 3)}, {Ints{30001}})[0];
    const int32_t k[] = {7, 1, 3, 0};
    const Philox g = Philox::from_key(k);
    for (int64_t i = 0; i < 30001; ++i)
        ASSERT_EQ(y[i], static_cast<double>(
                            g.block(static_cast<uint64_t>(i / 4))[static_cast<int>(i % 4)] >> 8) *
                            0x1p-24)
            << i;
}

struct Moments {
    double mean = 0, variance = 0;
};
Moments moments_of(const Values& y) {
    Moments m;
    for (const double v : y.data) m.mean += v;
    m.mean /= static_cast<double>(y.data.size());
    for (const double v : y.data) m.variance += (v - m.mean) * (v - m.mean);
    m.variance /= static_cast<double>(y.data.size());
    return m;
}

// The largest distance between the empirical distribution and `cdf`, times sqrt(n): above 2.2 once
// in 10,000 seeds.
double kolmogorov(Values y, const std::function<double(double)>& cdf) {
    std::sort(y.data.begin(), y.data.end());
    const auto n = static_cast<double>(y.data.size());
    double distance = 0;
    for (size_t i = 0; i < y.data.size(); ++i) {
        const double p = cdf(y.data[i]);
        distance = std::max(
            {distance, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
    }
    return distance * std::sqrt(n);
}

TEST(Random, UniformAndNormalHaveTheirDistributions) {
    const Values u = run_twice("random_uniform", {key(1)}, {Ints{200000}})[0],
                 z = run_twice("random_normal", {key(2)}, {Ints{200003}})[0];
    EXPECT_LT(kolmogorov(u, [](double v) { return v; }), 2.2);
    EXPECT_LT(kolmogorov(z, [](double v) { return 0.5 * std::erfc(-v / std::sqrt(2.0)); }), 2.2);
    const Moments m = moments_of(z);
    EXPECT_NEAR(m.mean, 0, 0.01);
    EXPECT_NEAR(m.variance, 1, 0.015);
    double product = 0;  // neighbours come from one radius and one angle, and yet are independent
    for (int64_t i = 0; i < 200000; i += 2) product += z[i] * z[i + 1];
    EXPECT_NEAR(product / 100000, 0, 0.015);
}

Values constant(double value, int64_t n) {
    return {{DType::f32, {n}}, std::vector<double>(static_cast<size_t>(n), value)};
}

TEST(Random, GammaBetaAndPoissonHaveTheirMoments) {
    constexpr int64_t n = 40000;
    for (const double shape : {0.3, 1.0, 4.5}) {
        const Moments m =
            moments_of(run_twice("random_gamma", {key(3), constant(shape, n), constant(2, n)})[0]);
        EXPECT_NEAR(m.mean, 2 * shape, 0.05 * 2 * shape) << shape;
        EXPECT_NEAR(m.variance, 4 * shape, 0.1 * 4 * shape) << shape;
    }
    EXPECT_LT(kolmogorov(run_any("random_gamma", {key(9), constant(1, n), constant(1, n)})[0],
                         [](double v) { return -std::expm1(-v); }),
              2.2);
    const Moments beta =
        moments_of(run_twice("random_beta", {key(4), constant(2, n), constant(3, n)})[0]);
    EXPECT_NEAR(beta.mean, 0.4, 0.005);
    EXPECT_NEAR(beta.variance, 0.04, 0.002);
    for (const double rate : {0.5, 9.0, 12.0, 300.0}) {
        const Moments m = moments_of(run_twice("random_poisson", {key(5), constant(rate, n)})[0]);
        EXPECT_NEAR(m.mean, rate, 5 * std::sqrt(rate / n)) << rate;
        EXPECT_NEAR(m.variance, rate, 0.05 * rate) << rate;
    }
}

TEST(Random, PermutationsHoldEachNumberOnceAndAllOrdersEquallyOften) {
    Values y = run_twice("random_permutation", {key(6)}, {int64_t{5000}})[0];
    EXPECT_NE(y[0], 0);
    std::sort(y.data.begin(), y.data.end());
    for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(y[i], static_cast<double>(i));
    std::array<int, 6> seen{};
    for (int counter = 0; counter < 6000; ++counter) {
        const Values p = run_any("random_permutation", {key(6, counter)}, {int64_t{3}})[0];
        ++seen[static_cast<size_t>(p[0]) * 2 + (p[1] > p[2])];
    }
    for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(Random, MultinomialFollowsTheWeights) {
    const Values weights{{DType::f32, {2, 3}}, {1, 0, 3, 1, 1, 2}};
    const Values y =
        run_twice("random_multinomial", {key(8), weights}, {int64_t{20000}, int64_t{1}})[0];
    std::array<int, 6> seen{};
    for (int64_t i = 0; i < 40000; ++i)
        ++seen[static_cast<size_t>(i / 20000 * 3) + static_cast<size_t>(y[i])];
    const std::array expected = {5000, 0, 15000, 5000, 5000, 10000};
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(seen[i], expected[i], 400);
    EXPECT_EQ(seen[1], 0);
    int first = 0;
    for (int counter = 0; counter < 4000; ++counter) {
        const Values p =
            run_any("random_multinomial", {key(8, counter), Values{{DType::f32, {3}}, {1, 2, 5}}},
                    {int64_t{3}, int64_t{0}})[0];
        EXPECT_EQ(std::set<double>(p.data.begin(), p.data.end()).size(), 3u);
        first += p[0] == 2;
    }
    EXPECT_NEAR(first, 2500, 150);
    EXPECT_THROW(run_any("random_multinomial", {key(8), Values{{DType::f32, {2}}, {0, 1}}},
                         {int64_t{2}, int64_t{0}}),
                 runtime::UserError);
}

TEST(Random, DropoutKeepsTheMeanAndDropsItsShare) {
    const Values y = run_twice("dropout_mask", {key(10)}, {Ints{100, 1000}, 0.3})[0];
    double dropped = 0;
    for (const double v : y.data) {
        ASSERT_TRUE(v == 0 || v == static_cast<double>(static_cast<float>(1 / 0.7))) << v;
        dropped += v == 0;
    }
    EXPECT_NEAR(dropped / 100000, 0.3, 0.01);
}

// --- matrices -------------------------------------------------------------------------------

TEST(Linalg, TheInverseTimesTheMatrixIsTheIdentity) {
    Dice dice(1);
    const Values x = dice.values({DType::f32, {3, 17, 17}}), y = run_twice("matinv", {x})[0];
    for (int64_t b = 0; b < 3; ++b)
        for (int64_t r = 0; r < 17; ++r)
            for (int64_t c = 0; c < 17; ++c) {
                double sum = 0;
                for (int64_t k = 0; k < 17; ++k)
                    sum += x[(b * 17 + r) * 17 + k] * y[(b * 17 + k) * 17 + c];
                ASSERT_NEAR(sum, r == c, 1e-4);
            }
    EXPECT_THROW(run_any("matinv", {Values{{DType::f32, {2, 2}}, {1, 2, 2, 4}}}),
                 runtime::UserError);
}

TEST(Linalg, SvdTakesAMatrixApartIntoOrthogonalParts) {
    Dice dice(2);
    for (const Shape& shape : {Shape{5, 8}, Shape{8, 5}, Shape{2, 6, 6}, Shape{1, 4}, Shape{3, 0}})
        for (const int64_t full : {0, 1}) {
            Values x = dice.values({DType::f32, shape});
            if (shape.rank() == 2 && shape[0] == 5)  // rank 4: the last row repeats the first
                for (int64_t c = 0; c < 8; ++c) x[32 + c] = x[c];
            const auto parts = run_twice("svd", {x}, {full});
            const int rank = shape.rank();
            const int64_t m = shape[rank - 2], n = shape[rank - 1], k = std::min(m, n),
                          uc = full ? m : k, vr = full ? n : k;
            for (int64_t b = 0; b < (rank == 3 ? 2 : 1); ++b) {
                const auto u = [&](int64_t r, int64_t c) { return parts[0][(b * m + r) * uc + c]; };
                const auto v = [&](int64_t r, int64_t c) { return parts[2][(b * vr + r) * n + c]; };
                for (int64_t r = 0; r < m; ++r)
                    for (int64_t c = 0; c < n; ++c) {
                        double sum = 0;
                        for (int64_t i = 0; i < k; ++i)
                            sum += u(r, i) * parts[1][b * k + i] * v(i, c);
                        ASSERT_NEAR(sum, x[(b * m + r) * n + c], 1e-4) << to_string(shape);
                    }
                for (int64_t i = 0; i + 1 < k; ++i)
                    ASSERT_GE(parts[1][b * k + i], parts[1][b * k + i + 1]);
                for (int64_t i = 0; i < uc; ++i)
                    for (int64_t j = 0; j < uc; ++j) {
                        double sum = 0;
                        for (int64_t r = 0; r < m; ++r) sum += u(r, i) * u(r, j);
                        ASSERT_NEAR(sum, i == j, 1e-5) << to_string(shape) << " u, full " << full;
                    }
                for (int64_t i = 0; i < vr; ++i)
                    for (int64_t j = 0; j < vr; ++j) {
                        double sum = 0;
                        for (int64_t c = 0; c < n; ++c) sum += v(i, c) * v(j, c);
                        ASSERT_NEAR(sum, i == j, 1e-5) << to_string(shape) << " vh, full " << full;
                    }
            }
        }
}

}}  // namespace megjit::testing
