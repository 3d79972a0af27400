// Reductions against sums in double, over random shapes and axes.
#include <limits>

#include "codegen/kernel_ir.h"
#include "tests/backends/tensor_testing.h"

namespace megjit::testing { namespace {

class Reductions : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Reductions, ::testing::Range(0u, 80u));

double start_of(const std::string& op) {
    if (op == "reduce_max") return -INFINITY;
    if (op == "reduce_min") return INFINITY;
    return op == "reduce_prod" ? 1 : 0;
}
double join(const std::string& op, double a, double b) {
    if (op == "reduce_max") return std::max(a, b);
    if (op == "reduce_min") return std::min(a, b);
    return op == "reduce_prod" ? a * b : a + b;
}

TEST_P(Reductions, AgreeWithAPlainLoop) {
    Dice dice(GetParam());
    const std::string op = std::array{"reduce_sum", "reduce_mean", "reduce_prod", "reduce_max",
                                      "reduce_min"}[GetParam() % 5];
    const int rank = static_cast<int>(dice.below(7));
    Shape shape = dice.shape(rank, rank < 3 ? 90 : 7), narrow = shape;
    if (op == "reduce_max" || op == "reduce_min")
        for (int i = 0; i < rank; ++i) shape[i] = narrow[i] = std::max<int64_t>(1, shape[i]);
    const DType dtype = kRealTypes[static_cast<size_t>(dice.below(9))];
    const Values x = dice.values({dtype, shape}, op == "reduce_prod" ? 1 : 3);
    Ints axes;
    for (int i = 0; i < rank; ++i)
        if (dice.chance(0.5)) axes.push_back(i), narrow[i] = 1;
    Values y = run_twice(op, {x}, {axes, int64_t{1}})[0];
    ASSERT_EQ(y.type.shape, narrow);
    std::vector<double> expected(y.data.size(), start_of(op)), size(y.data.size(), 0.0);
    for_each_place(shape, [&](const Ints& at) {
        Ints to = at;
        for (const int64_t axis : axes) to[static_cast<size_t>(axis)] = 0;
        const auto place = static_cast<size_t>(flat(narrow, to));
        expected[place] = join(op, expected[place], x[flat(shape, at)]);
        size[place] += std::abs(x[flat(shape, at)]);
    });
    const double count = static_cast<double>(x.type.numel()) /
                         static_cast<double>(std::max<int64_t>(1, y.type.numel()));
    for (size_t i = 0; i < expected.size(); ++i) {
        const std::string what = cat(op, " of ", to_string(x.type), ", seed ", GetParam());
        if (op == "reduce_mean") expected[i] /= count;
        if (std::isnan(expected[i])) {
            EXPECT_TRUE(std::isnan(y.data[i])) << what;
            continue;
        }
        if (!is_floating(y.type.dtype)) {  // wraps, as its dtype does
            if (std::abs(expected[i]) > 2e9) continue;
            uint64_t cell = 0;
            const double value = expected[i];
            if (y.type.dtype == DType::i32 || y.type.dtype == DType::b8)
                store_any(&cell, y.type.dtype, 0, value);
            else
                std::memcpy(&cell, std::array{static_cast<int64_t>(value)}.data(),
                            size_of(y.type.dtype));
            ASSERT_EQ(y.data[i], load_any(&cell, y.type.dtype, 0)) << what;
            continue;
        }
        const double rounding = y.type.dtype == DType::f16    ? 1e-3
                                : y.type.dtype == DType::bf16 ? 8e-3
                                                              : 1e-6;
        const double scale = op == "reduce_prod"   ? std::abs(expected[i])
                             : op == "reduce_mean" ? size[i] / count
                                                   : size[i];
        if (y.type.dtype == DType::f16 && std::abs(expected[i]) > 6e4) continue;
        ASSERT_NEAR(y.data[i], expected[i], rounding * (scale + 1e-6)) << what;
    }
}

// What a kernel makes of a dense float32 tensor that it reduces by `kind`.
std::vector<float> by_kernel(codegen::Reduce kind, const Values& x, const Ints& axes) {
    const Shape& shape = x.type.shape;
    const auto is_reduced = [&](int axis) {
        return std::find(axes.begin(), axes.end(), axis) != axes.end();
    };
    codegen::KernelSpec spec;
    spec.inputs = {{}};
    spec.outputs = {{}};
    int64_t results = 1;
    for (const bool reduced : {false, true})
        for (int axis = 0; axis < shape.rank(); ++axis) {
            if (is_reduced(axis) != reduced) continue;
            int64_t stride = 1, to = 1;
            for (int i = axis + 1; i < shape.rank(); ++i) {
                stride *= shape[i];
                if (!is_reduced(i)) to *= shape[i];
            }
            spec.extents.push_back(shape[axis]);
            spec.inputs[0].strides.push_back(stride);
            spec.outputs[0].strides.push_back(reduced ? 0 : to);
            if (reduced) ++spec.reduced;
            else results *= shape[axis];
        }
    const int element = spec.program.input(0, runtime::ScalarType::f32);
    spec.reductions = {{kind, element}};
    spec.results = {spec.program.input(1, runtime::ScalarType::f32)};
    const codegen::BoundKernel bound = codegen::bind(std::move(spec));
    std::vector<float> from(x.data.begin(), x.data.end()), to(static_cast<size_t>(results));
    void *inputs[] = {from.data()}, *outputs[] = {to.data()};
    codegen::interpret(bound.kernel, bound.launch, inputs, outputs);
    return to;
}

TEST_P(Reductions, SumsHaveTheBitsOfKernels) {
    Dice dice(GetParam());
    const bool mean = GetParam() % 3 == 0;
    const int rank = static_cast<int>(dice.between(1, 4));
    Shape shape = dice.shape(rank, rank < 3 ? 300 : 17);
    for (int i = 0; i < rank; ++i) shape[i] = std::max<int64_t>(1, shape[i]);
    Ints axes;
    for (int i = 0; i < rank; ++i)
        if (dice.chance(0.5)) axes.push_back(i);
    if (axes.empty()) axes.push_back(rank - 1);
    Values x = dice.values({DType::f32, shape}, 1e6);
    for (double& v : x.data) v = static_cast<double>(static_cast<float>(v));
    const Values y = run_twice(mean ? "reduce_mean" : "reduce_sum", {x}, {axes, int64_t{1}})[0];
    const std::vector<float> want =
        by_kernel(mean ? codegen::Reduce::mean : codegen::Reduce::sum, x, axes);
    ASSERT_EQ(y.data.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(y.data[i], static_cast<double>(want[i]))
            << "element " << i << " of " << to_string(x.type) << ", seed " << GetParam();
}

TEST_P(Reductions, ArgmaxAndArgminTakeTheFirst) {
    Dice dice(GetParam());
    const bool max = GetParam() % 2;
    Shape shape = dice.shape(static_cast<int>(dice.between(1, 4)), 30);
    for (int i = 0; i < shape.rank(); ++i) shape[i] = std::max<int64_t>(1, shape[i]);
    const int axis = static_cast<int>(dice.below(shape.rank()));
    Values x = dice.values({kRealTypes[static_cast<size_t>(dice.below(9))], shape}, 2);
    if (is_floating(x.type.dtype) && dice.chance(0.3)) x[dice.below(x.type.numel())] = NAN;
    const Values y = run_twice(max ? "argmax" : "argmin", {x}, {int64_t{axis}, int64_t{1}})[0];
    for_each_place(y.type.shape, [&](Ints at) {
        const int64_t place = flat(y.type.shape, at);
        int64_t best = 0;
        const auto value = [&](int64_t i) {
            at[static_cast<size_t>(axis)] = i;
            return x[flat(shape, at)];
        };
        for (int64_t i = 1; i < shape[axis]; ++i) {
            const double a = value(best), b = value(i);
            if (!std::isnan(a) && (std::isnan(b) || (max ? b > a : b < a))) best = i;
        }
        ASSERT_EQ(y[place], static_cast<double>(best)) << "seed " << GetParam();
    });
}

Values drawn_row(int64_t n, unsigned seed) {
    Values x{{DType::f32, {n}}, std::vector<double>(static_cast<size_t>(n))};
    std::mt19937 generator(seed);
    for (double& v : x.data)
        v = static_cast<double>(static_cast<float>(generator() % 1000003) * 1e-3f);
    return x;
}

TEST(Reduce, TheSumOfManyPositiveFloatsIsRightTo1e7) {
    const Values x = drawn_row(5'000'001, 3);
    double exact = 0;
    for (const double v : x.data) exact += v;
    EXPECT_NEAR(run_twice("reduce_sum", {x}, {Ints{0}, int64_t{0}})[0][0] / exact, 1, 1.2e-7);
}

TEST(Reduce, LongAxesOfEitherKindGiveTheSameBitsOnOneAndTwoThreads) {
    Dice dice(5);
    for (const Shape& shape : {Shape{3, 100003}, Shape{100003, 3}, Shape{40, 70, 90},
                               Shape{400000, 1}, Shape{2, 70000, 2}}) {
        const Values x = dice.values({DType::f32, shape});
        for (int axis = 0; axis < shape.rank(); ++axis) {
            run_twice("reduce_sum", {x}, {Ints{axis}, int64_t{0}});
            run_twice("argmax", {x}, {int64_t{axis}, int64_t{0}});
        }
        Ints all;
        for (int axis = 0; axis < shape.rank(); ++axis) all.push_back(axis);
        double exact = 0, size = 0;
        for (const double v : x.data) exact += v, size += std::abs(v);
        EXPECT_NEAR(run_twice("reduce_sum", {x}, {all, int64_t{0}})[0][0], exact, 1e-7 * size)
            << to_string(shape);
        run_twice("reduce_min", {x}, {all, int64_t{0}});
    }
}

TEST(Reduce, NanWinsInMaxAndMin) {
    for (const int64_t place : {0, 7, 40, 99}) {
        Values x = drawn_row(100, 1);
        x[place] = NAN;
        EXPECT_TRUE(std::isnan(run_any("reduce_max", {x}, {Ints{0}, int64_t{0}})[0][0])) << place;
        EXPECT_TRUE(std::isnan(run_any("reduce_min", {x}, {Ints{0}, int64_t{0}})[0][0])) << place;
        EXPECT_EQ(run_any("argmax", {x}, {int64_t{0}, int64_t{0}})[0][0],
                  static_cast<double>(place));
    }
}

TEST(Reduce, LongArgmaxFindsTheFirstOfEqualElements) {
    Values x{{DType::f32, {300000}}, std::vector<double>(300000, 1.0)};
    for (const int64_t place : {250000, 131072, 131071}) {
        x[place] = 2;
        EXPECT_EQ(run_twice("argmax", {x}, {int64_t{0}, int64_t{0}})[0][0],
                  static_cast<double>(place));
    }
}

TEST(Reduce, SumsOverNothingAreZeroAndProductsOne) {
    const Values x{{DType::f32, {3, 0}}, {}};
    expect_same(run_any("reduce_sum", {x}, {Ints{1}, int64_t{0}})[0], {0, 0, 0}, "sum");
    expect_same(run_any("reduce_prod", {x}, {Ints{1}, int64_t{0}})[0], {1, 1, 1}, "prod");
    EXPECT_EQ(run_any("reduce_max", {x}, {Ints{0}, int64_t{0}})[0].type.numel(), 0);
    EXPECT_THROW(run_any("reduce_max", {x}, {Ints{1}, int64_t{0}}), runtime::UserError);
}

}}  // namespace megjit::testing
