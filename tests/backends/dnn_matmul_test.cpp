// Matrix products against plain loops in double, in every transposition and batch form.
#include "runtime/eager/prepared_ops.h"
#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

Values naive_matmul(const Values& a, const Values& b, bool ta, bool tb, const Shape& y) {
    Values result{{a.type.dtype, y}, std::vector<double>(static_cast<size_t>(y.numel()))};
    const int rank = y.rank();
    const int64_t m = y[rank - 2], n = y[rank - 1], k = a.type.shape[a.type.rank() - (ta ? 2 : 1)];
    // Offset of batch element `index` of y in an operand that may be broadcast.
    const auto batch_of = [&](const Type& type, int64_t index) {
        int64_t offset = 0, step = 1;
        for (int axis = rank - 3; axis >= 0; index /= y[axis--]) {
            const int mine = axis - (rank - type.rank());
            if (mine < 0) continue;
            if (type.shape[mine] > 1) offset += index % y[axis] * step;
            step *= type.shape[mine];
        }
        return offset;
    };
    for (int64_t i = 0; i < y.numel(); ++i) {
        const int64_t batch = i / (m * n), row = i / n % m, column = i % n;
        const int64_t pa = batch_of(a.type, batch) * m * k, pb = batch_of(b.type, batch) * k * n;
        double sum = 0;
        for (int64_t q = 0; q < k; ++q)
            sum += a[pa + (ta ? q * m + row : row * k + q)] *
                   b[pb + (tb ? column * k + q : q * n + column)];
        result[i] = sum;
    }
    return result;
}

struct MatmulCase {
    std::string name = {};
    Ints a_batch = {}, b_batch = {};
    int64_t m = 1, k = 1, n = 1;
};

class MatmulTest : public ::testing::TestWithParam<std::tuple<MatmulCase, bool, bool, DType>> {};

TEST_P(MatmulTest, AgreesWithPlainLoops) {
    const auto& [c, ta, tb, dtype] = GetParam();
    Ints a = c.a_batch, b = c.b_batch;
    a.insert(a.end(), {ta ? c.k : c.m, ta ? c.m : c.k});
    b.insert(b.end(), {tb ? c.n : c.k, tb ? c.k : c.n});
    Values x = random({dtype, Shape(a)}, 1), w = random({dtype, Shape(b)}, 2);
    if (dtype == DType::i32) {
        std::mt19937 generator(3);
        for (Values* values : {&x, &w})
            for (double& value : values->data) value = static_cast<double>(generator() % 200) - 100;
    }
    const Values y = run("matmul", {x, w}, {int64_t{ta}, int64_t{tb}})[0];
    const double tolerance = dtype == DType::f32    ? 1e-4
                             : dtype == DType::f16  ? 2e-3
                             : dtype == DType::bf16 ? 2e-2
                                                    : 0;
    expect_near(y, naive_matmul(x, w, ta, tb, y.type.shape), tolerance);
}

const std::vector<MatmulCase> kMatmulCases = {
    {"plain", {}, {}, 7, 5, 9},
    {"square", {}, {}, 64, 64, 64},
    {"row", {}, {}, 1, 33, 17},
    {"column", {}, {}, 17, 33, 1},
    {"inner", {}, {}, 1, 40, 1},
    {"outer", {}, {}, 6, 1, 5},
    {"batched", {3}, {3}, 4, 5, 6},
    {"shared_b", {2, 3}, {}, 4, 5, 6},
    {"runs_of_rows", {2}, {}, 50, 21, 19},
    {"shared_a", {}, {2, 3}, 4, 5, 6},
    {"crossed", {2, 1}, {1, 3}, 4, 5, 6},
    {"mixed", {2, 1, 4}, {3, 1}, 3, 2, 5},
    {"empty_rows", {}, {}, 0, 3, 4},
    {"empty_inner", {2}, {}, 3, 0, 4},
    {"five", {2, 1, 2}, {2, 2, 1}, 3, 3, 3},
};

INSTANTIATE_TEST_SUITE_P(
    Matmul, MatmulTest,
    ::testing::Combine(::testing::ValuesIn(kMatmulCases), ::testing::Bool(), ::testing::Bool(),
                       ::testing::Values(DType::f32, DType::f16, DType::bf16, DType::i32)),
    [](const auto& info) {
        return std::get<0>(info.param).name + (std::get<1>(info.param) ? "_ta" : "") +
               (std::get<2>(info.param) ? "_tb" : "") + "_" +
               std::string(runtime::info(std::get<3>(info.param)).tag);
    });

// Code for each number of rows took 0.1 ms and 200 kB of a new size.
TEST(Matmul, OtherNumbersOfRowsShareTheirRuns) {
    const auto prepare = [](int64_t rows) {
        const std::vector<Type> types = {{DType::f32, {rows, 23}}, {DType::f32, {23, 29}}};
        const Type y{DType::f32, {rows, 29}};
        device().prepare({runtime::find_op("matmul"), {int64_t{0}, int64_t{0}}, types}, {&y, 1});
    };
    auto& ops = runtime::PreparedOps::instance();
    const uint64_t before = ops.made();
    for (int64_t rows = 1; rows <= 500; ++rows) prepare(rows);
    EXPECT_LE(ops.made() - before, 40);
}

TEST(Matmul, WrapsSmallIntegersButGivesInt32OfInt8) {
    const auto product = [](DType dtype) {
        const Values a{{dtype, {1, 2}}, {100, 100}}, b{{dtype, {2, 1}}, {2, 1}};
        return run("matmul", {a, b}, {int64_t{0}, int64_t{0}})[0][0];
    };
    EXPECT_EQ(product(DType::u8), 300 - 256);
    EXPECT_EQ(product(DType::i8), 300);
}

TEST(Matmul, RefusesInnerExtentsThatDiffer) {
    const std::string message = message_of([] {
        run("matmul", {random(Shape{8, 64}, 1), random(Shape{32, 10}, 2)},
            {int64_t{0}, int64_t{0}});
    });
    EXPECT_NE(message.find("matmul: cannot take f32[8, 64] and f32[32, 10]"), std::string::npos)
        << message;
    EXPECT_NE(message.find("a has 64 columns but b has 32 rows"), std::string::npos) << message;
}

}}  // namespace megjit::testing
