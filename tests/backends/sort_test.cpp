// sort, topk and cumsum against std::stable_sort and plain loops.
#include <numeric>

#include "tests/backends/tensor_testing.h"

namespace megjit::testing { namespace {

class Sorting : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Sorting, ::testing::Range(0u, 40u));

bool before(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

TEST_P(Sorting, IsStableAlongAnyAxis) {
    Dice dice(GetParam());
    Shape shape = dice.shape(static_cast<int>(dice.between(1, 3)), 12);
    const int axis = static_cast<int>(dice.below(shape.rank()));
    if (dice.chance(0.2)) shape[axis] = 5000;
    const bool descending = GetParam() % 2;
    Values x = dice.values({kRealTypes[static_cast<size_t>(dice.below(9))], shape}, 3);
    if (x.type.dtype == DType::f32)
        for (double& v : x.data) v = dice.chance(0.05) ? NAN : dice.chance(0.5) ? std::round(v) : v;
    const int64_t n = shape[axis], k = n == 0 ? 0 : dice.between(1, n);
    const auto sorted = run_twice("sort", {x}, {int64_t{axis}, int64_t{descending}});
    const auto top =
        k > 0 ? run_twice("topk", {x}, {k, int64_t{axis}, int64_t{descending}}) : sorted;
    Shape lines = shape;
    lines[axis] = x.type.numel() ? 1 : 0;
    for_each_place(lines, [&](Ints at) {
        const auto place = [&](const Shape& of, int64_t i) {
            at[static_cast<size_t>(axis)] = i;
            return flat(of, at);
        };
        std::vector<int64_t> order(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
            const double u = x[place(shape, a)], v = x[place(shape, b)];
            return descending ? before(v, u) : before(u, v);
        });
        for (int64_t i = 0; i < n; ++i) {
            const int64_t from = order[static_cast<size_t>(i)];
            ASSERT_EQ(sorted[1][place(shape, i)], static_cast<double>(from))
                << "seed " << GetParam();
            const double value = x[place(shape, from)], got = sorted[0][place(shape, i)];
            ASSERT_TRUE(got == value || (std::isnan(got) && std::isnan(value)))
                << "seed " << GetParam();
            if (i >= k) continue;
            ASSERT_EQ(top[1][place(top[1].type.shape, i)], static_cast<double>(from))
                << "topk, seed " << GetParam();
        }
    });
}

TEST_P(Sorting, CumsumAddsUpInAllFourWays) {
    Dice dice(GetParam());
    const Shape shape = dice.shape(static_cast<int>(dice.between(1, 4)), 9);
    const int axis = static_cast<int>(dice.below(shape.rank()));
    const bool exclusive = GetParam() & 1, reverse = GetParam() & 2;
    const Values x =
        dice.values({std::array{DType::f32, DType::i32, DType::b8}[GetParam() % 3], shape});
    const Values y =
        run_twice("cumsum", {x}, {int64_t{axis}, int64_t{exclusive}, int64_t{reverse}})[0];
    Shape lines = shape;
    lines[axis] = x.type.numel() ? 1 : 0;
    for_each_place(lines, [&](Ints at) {
        double sum = 0;
        for (int64_t i = 0; i < shape[axis]; ++i) {
            at[static_cast<size_t>(axis)] = reverse ? shape[axis] - 1 - i : i;
            const int64_t place = flat(shape, at);
            const double with = sum + x[place];
            ASSERT_NEAR(y[place], exclusive ? sum : with, 1e-5 * (1 + std::abs(sum)))
                << "seed " << GetParam();
            sum = with;
        }
    });
}

TEST(Sort, TopkRefusesMoreThanThereAre) {
    const Values x{{DType::f32, {3}}, {1, 2, 3}};
    EXPECT_THROW(run_any("topk", {x}, {int64_t{4}, int64_t{0}, int64_t{0}}), runtime::UserError);
}

}}  // namespace megjit::testing
