// Normalization and softmax against formulas in double; gradients against finite differences of
// these.
#include <functional>

#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

// d(loss)/d(values) by central differences, a few elements only: {index, derivative}.
std::vector<std::pair<int64_t, double>> differences(
    Values values, const std::function<double(const Values&)>& loss) {
    std::vector<std::pair<int64_t, double>> result;
    std::mt19937 generator(9);
    for (int trial = 0; trial < 8; ++trial) {
        const auto i = static_cast<int64_t>(generator() % values.data.size());
        const double before = values[i], h = 1e-5;
        values[i] = before + h;
        const double above = loss(values);
        values[i] = before - h;
        const double below = loss(values);
        values[i] = before;
        result.emplace_back(i, (above - below) / (2 * h));
    }
    return result;
}

// Group of an element and its place among scale and bias.
struct Grouping {
    int64_t groups = 0, affine = 0;
    std::function<int64_t(int64_t)> group = {}, place = {};
};

Grouping by_channel(const Shape& x) {
    int64_t spatial = 1;
    for (int axis = 2; axis < x.rank(); ++axis) spatial *= x[axis];
    const int64_t c = x[1];
    return {c, c, [=](int64_t i) { return i / spatial % c; },
            [=](int64_t i) { return i / spatial % c; }};
}

Grouping by_row(const Shape& x, int64_t axes) {
    int64_t inner = 1;
    for (int axis = x.rank() - static_cast<int>(axes); axis < x.rank(); ++axis) inner *= x[axis];
    return {x.numel() / inner, inner, [=](int64_t i) { return i / inner; },
            [=](int64_t i) { return i % inner; }};
}

struct Normalized {
    std::vector<double> y = {}, mean = {}, var = {};
};

Normalized naive_norm(const Grouping& g, const Values& x, const Values* scale, const Values* bias,
                      double eps) {
    const auto n = static_cast<size_t>(g.groups);
    Normalized r{std::vector<double>(x.data.size()), std::vector<double>(n),
                 std::vector<double>(n)};
    std::vector<double> count(n);
    for (int64_t i = 0; i < x.type.numel(); ++i)
        r.mean[static_cast<size_t>(g.group(i))] += x[i], ++count[static_cast<size_t>(g.group(i))];
    for (size_t k = 0; k < n; ++k) r.mean[k] /= count[k];
    for (int64_t i = 0; i < x.type.numel(); ++i) {
        const auto k = static_cast<size_t>(g.group(i));
        r.var[k] += (x[i] - r.mean[k]) * (x[i] - r.mean[k]) / count[k];
    }
    for (int64_t i = 0; i < x.type.numel(); ++i) {
        const auto k = static_cast<size_t>(g.group(i));
        const double xh = (x[i] - r.mean[k]) / std::sqrt(r.var[k] + eps);
        r.y[static_cast<size_t>(i)] = scale ? xh * (*scale)[g.place(i)] + (*bias)[g.place(i)] : xh;
    }
    return r;
}

double weighted(const std::vector<double>& y, const Values& dy) {
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy.data[i];
    return sum;
}

void expect_derivatives(const Values& got, const std::vector<std::pair<int64_t, double>>& expected,
                        const std::string& what) {
    for (const auto& [i, derivative] : expected)
        EXPECT_NEAR(got[i], derivative, 2e-4 * (1 + std::abs(derivative))) << what << " at " << i;
}

constexpr double kEps = 1e-3;

class BatchNormTest : public ::testing::TestWithParam<std::tuple<Shape, Layout>> {};

TEST_P(BatchNormTest, AgreesWithTheFormulaAndItsDifferences) {
    const auto& [shape, layout] = GetParam();
    const Grouping g = by_channel(shape);
    Values x = random(shape, 1, layout);
    for (double& value : x.data) value = value * 3 + 10;
    for (int64_t i = 0; i < x.type.numel(); ++i)
        x[i] = static_cast<double>(static_cast<float>(x[i]));
    const Values scale = random(Shape{shape[1]}, 2), bias = random(Shape{shape[1]}, 3);
    const Normalized expected = naive_norm(g, x, &scale, &bias, kEps);
    const auto got = run("batch_norm", {x, scale, bias}, {kEps});
    expect_near(got[0], {x.type, expected.y}, 1e-4, "y");
    expect_near(got[1], {{}, expected.mean}, 1e-6, "mean");
    expect_near(got[2], {{}, expected.var}, 1e-5, "var");

    const Values dy = random({DType::f32, shape, layout}, 4);
    const auto grads = run("batch_norm_grad", {x, got[1], got[2], scale, dy}, {kEps});
    const auto loss = [&](const Values& a, const Values& s, const Values& b) {
        return weighted(naive_norm(g, a, &s, &b, kEps).y, dy);
    };
    expect_derivatives(grads[0],
                       differences(x, [&](const Values& v) { return loss(v, scale, bias); }), "dx");
    expect_derivatives(
        grads[1], differences(scale, [&](const Values& v) { return loss(x, v, bias); }), "dscale");
    expect_derivatives(
        grads[2], differences(bias, [&](const Values& v) { return loss(x, scale, v); }), "dbias");
}

INSTANTIATE_TEST_SUITE_P(
    Norm, BatchNormTest,
    ::testing::Combine(::testing::Values(Shape{4, 3, 5, 5}, Shape{2, 16, 7, 7}, Shape{3, 19, 33},
                                         Shape{8, 37}, Shape{2, 5, 3, 4, 5}, Shape{4, 64, 30, 30},
                                         Shape{1, 3, 9, 9}),
                       ::testing::Values(Layout::row_major, Layout::channels_last)));

TEST(BatchNorm, TakesHalfPrecisionDataWithFloatStatistics) {
    const Values x = random({DType::f16, {4, 3, 6, 6}}, 1), scale = random(Shape{3}, 2),
                 bias = random(Shape{3}, 3);
    const auto got = run("batch_norm", {x, scale, bias}, {kEps});
    EXPECT_EQ(got[0].type.dtype, DType::f16);
    EXPECT_EQ(got[1].type.dtype, DType::f32);
    expect_near(got[0], {x.type, naive_norm(by_channel(x.type.shape), x, &scale, &bias, kEps).y},
                2e-3);
}

TEST(BatchNorm, KeepsItsPrecisionFarFromZero) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
        Values x = random(Shape{8, 16, 28, 28}, 1, layout);
        for (double& value : x.data) value = static_cast<double>(static_cast<float>(value + 1000));
        const Values one{{DType::f32, {16}}, std::vector<double>(16, 1)},
            zero{{DType::f32, {16}}, std::vector<double>(16, 0)};
        expect_near(run("batch_norm", {x, one, zero}, {1e-5})[2],
                    {{}, naive_norm(by_channel(x.type.shape), x, &one, &zero, 0).var}, 1e-4);
    }
}

TEST(BatchNorm, RefusesAnEmptyBatchAndScalesOfAnotherLength) {
    const Values scale = random(Shape{3}, 2);
    EXPECT_NE(message_of([&] {
        run("batch_norm", {random(Shape{0, 3, 2}, 1), scale, scale}, {kEps});
    }).find("nothing to take statistics"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
        run("batch_norm", {random(Shape{2, 4, 2}, 1), scale, scale}, {kEps});
    }).find("scale and bias have shape"),
              std::string::npos);
}

class LayerNormTest : public ::testing::TestWithParam<std::tuple<Shape, int64_t, bool>> {};

TEST_P(LayerNormTest, AgreesWithTheFormulaAndItsDifferences) {
    const auto& [shape, axes, affine] = GetParam();
    const Grouping g = by_row(shape, axes);
    const Shape inner(shape.extents().subspan(static_cast<size_t>(shape.rank() - axes)));
    const Values x = random(shape, 1), scale = random(inner, 2), bias = random(inner, 3),
                 dy = random(shape, 4);
    const Values *s = affine ? &scale : nullptr, *b = affine ? &bias : nullptr;
    std::vector<Values> inputs{x};
    if (affine) inputs.insert(inputs.end(), {scale, bias});
    const auto got = run("layer_norm", inputs, {axes, kEps, int64_t{affine}});
    Normalized expected = naive_norm(g, x, s, b, kEps);
    for (double& v : expected.var) v = 1 / std::sqrt(v + kEps);
    expect_near(got[0], {x.type, expected.y}, 1e-4, "y");
    expect_near(got[1], {{}, expected.mean}, 1e-6, "mean");
    expect_near(got[2], {{}, expected.var}, 1e-4, "rstd");

    std::vector<Values> backward{x, got[1], got[2], dy};
    if (affine) backward.push_back(scale);
    const auto grads = run("layer_norm_grad", backward, {axes, int64_t{affine}});
    ASSERT_EQ(grads.size(), affine ? 3u : 1u);
    expect_derivatives(
        grads[0],
        differences(x,
                    [&](const Values& v) { return weighted(naive_norm(g, v, s, b, kEps).y, dy); }),
        "dx");
    if (!affine) return;
    expect_derivatives(
        grads[1],
        differences(scale,
                    [&](const Values& v) { return weighted(naive_norm(g, x, &v, b, kEps).y, dy); }),
        "dscale");
    expect_derivatives(
        grads[2],
        differences(bias,
                    [&](const Values& v) { return weighted(naive_norm(g, x, s, &v, kEps).y, dy); }),
        "dbias");
}

INSTANTIATE_TEST_SUITE_P(
    Norm, LayerNormTest,
    ::testing::Combine(::testing::Values(Shape{5, 7, 9}, Shape{64, 3, 100}, Shape{2, 2, 5000}),
                       ::testing::Values(int64_t{1}, int64_t{2}), ::testing::Bool()));

class SoftmaxTest : public ::testing::TestWithParam<std::tuple<Shape, int64_t>> {};

TEST_P(SoftmaxTest, AgreesWithTheFormula) {
    const auto& [shape, axis] = GetParam();
    Values x = random(shape, 1);
    for (double& value : x.data) value = static_cast<double>(static_cast<float>(value * 30));
    const int64_t length = shape[static_cast<int>(axis)];
    int64_t inner = 1;
    for (int i = static_cast<int>(axis) + 1; i < shape.rank(); ++i) inner *= shape[i];
    Values y = x, log = x;
    for (int64_t i = 0; i < shape.numel(); ++i) {
        const int64_t start = i / (length * inner) * length * inner + i % inner;
        double top = -INFINITY, sum = 0;
        for (int64_t k = 0; k < length; ++k) top = std::max(top, x[start + k * inner]);
        for (int64_t k = 0; k < length; ++k) sum += std::exp(x[start + k * inner] - top);
        log[i] = x[i] - top - std::log(sum);
        y[i] = std::exp(log[i]);
    }
    expect_near(run("softmax", {x}, {axis})[0], y, 2e-6);
    expect_near(run("log_softmax", {x}, {axis})[0], log, 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Softmax, SoftmaxTest,
                         ::testing::Combine(::testing::Values(Shape{4, 7, 33}, Shape{3, 16, 70},
                                                              Shape{2, 1000, 1}),
                                            ::testing::Values(int64_t{0}, int64_t{1}, int64_t{2})));

TEST(Softmax, GivesZeroForMinusInfinityAndSpreadsNaN) {
    const Values x{{DType::f32, {2, 3}}, {0, -INFINITY, 0, 1, NAN, 2}};
    const Values y = run("softmax", {x}, {int64_t{1}})[0];
    EXPECT_EQ(y[0], 0.5);
    EXPECT_EQ(y[1], 0);
    for (int64_t i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(y[i]));
}

TEST(Softmax, IsExactToTwoUlpForSmallProbabilities) {
    Values x{{DType::f32, {1, 1001}}, {}};
    for (int i = 0; i <= 1000; ++i)
        x.data.push_back(static_cast<double>(-0.1f * static_cast<float>(i)));
    const Values y = run("softmax", {x}, {int64_t{1}})[0];
    double sum = 0;
    for (double value : x.data) sum += std::exp(value);
    for (int64_t i = 0; i <= 1000; ++i)
        ASSERT_NEAR(y[i], std::exp(x[i]) / sum, 5e-7 * std::exp(x[i]) / sum + 3e-45) << i;
}

}}  // namespace megjit::testing
