#include "backends/cpu/kernels/winograd.h"

#include <cmath>
#include <limits>
#include <random>

#include "runtime/eager/dispatch.h"
#include "runtime/host/parallel.h"
#include "runtime/ops/builders.h"
#include "tests/backends/dnn_testing.h"

namespace megjit::cpu { namespace {

using runtime::Attrs;
using runtime::DType;
using runtime::Layout;
using runtime::OpCall;
using runtime::Shape;
using runtime::TensorRef;
using runtime::Type;

struct Problem {
    int64_t n, ic, oc, h, w, pad;
};

Attrs attrs_of(const Problem& p) {
    return {std::vector<int64_t>{1}, std::vector<int64_t>{p.pad}, std::vector<int64_t>{1},
            int64_t{1}};
}

TensorRef random_floats(const Shape& shape, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    TensorRef tensor =
        runtime::empty_tensor(megjit::testing::device(), {.dtype = DType::f32, .shape = shape});
    for (int64_t i = 0; i < shape.numel(); ++i) tensor->as<float>()[i] = normal(random);
    return tensor;
}

TensorRef in(Layout layout, const TensorRef& x) {
    return runtime::build::op("relayout", {x}, {to_string(layout)});
}

class WinogradTest : public ::testing::TestWithParam<Problem> {
protected:
    void SetUp() override {
        megjit::testing::device();
        const Problem p = GetParam();
        x_ = random_floats({p.n, p.ic, p.h, p.w}, 1), w_ = random_floats({p.oc, p.ic, 3, 3}, 2);
        const std::vector<Type> types{in(Layout::channels_last, x_)->type(), w_->type()};
        const OpCall call{runtime::find_op("conv"), attrs_, types};
        packed_ = in(megjit::testing::device().packed_layout(call, infer(call), 1), w_);
        ASSERT_GT(packed_->type().bytes(), 2 * w_->type().bytes()) << "not packed for Winograd";
    }
    // In float64.
    std::vector<double> expected() const {
        const Problem p = GetParam();
        const int64_t oh = p.h + 2 * p.pad - 2, ow = p.w + 2 * p.pad - 2;
        std::vector<double> y;
        for (int64_t n = 0; n < p.n; ++n)
            for (int64_t o = 0; o < p.oc; ++o)
                for (int64_t i = 0; i < oh; ++i)
                    for (int64_t j = 0; j < ow; ++j)
                        y.push_back(element(n, o, i - p.pad, j - p.pad));
        return y;
    }
    double element(int64_t n, int64_t o, int64_t top, int64_t left) const {
        const Problem p = GetParam();
        double sum = 0;
        for (int64_t c = 0; c < p.ic; ++c)
            for (int64_t a = 0; a < 3; ++a)
                for (int64_t b = 0; b < 3; ++b) {
                    const int64_t i = top + a, j = left + b;
                    if (i < 0 || j < 0 || i >= p.h || j >= p.w) continue;
                    sum +=
                        static_cast<double>(x_->as<float>()[((n * p.ic + c) * p.h + i) * p.w + j]) *
                        static_cast<double>(w_->as<float>()[((o * p.ic + c) * 3 + a) * 3 + b]);
                }
        return sum;
    }
    TensorRef run(std::vector<TensorRef> operands = {}, const std::string& epilogue = {}) const {
        Attrs attrs = attrs_;
        std::vector<TensorRef> all{in(Layout::channels_last, x_), packed_};
        all.insert(all.end(), operands.begin(), operands.end());
        if (!epilogue.empty()) attrs.emplace_back(epilogue);
        return runtime::row_major(runtime::compute(
            runtime::find_op(epilogue.empty() ? "conv" : "conv_epilogue"), attrs, all)[0]);
    }
    // Sums of ic * 9 normal numbers: their size grows with the root.
    double bound() const { return 4e-7 * std::sqrt(static_cast<double>(GetParam().ic) * 9) * 6; }

    const Attrs attrs_ = attrs_of(GetParam());
    TensorRef x_, w_, packed_;
};

TEST_P(WinogradTest, IsTheConvolution) {
    const std::vector<double> want = expected();
    const TensorRef got = run();
    ASSERT_EQ(got->type().numel(), static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(static_cast<double>(got->as<float>()[i]), want[i], bound()) << i;
}

TEST_P(WinogradTest, AddsAndRectifies) {
    const std::vector<double> want = expected();
    const TensorRef plain = run(), bias = random_floats({1, GetParam().oc, 1, 1}, 3),
                    addend = random_floats(plain->shape(), 4);
    const TensorRef got = run({bias, addend}, "bias add relu");
    const int64_t spatial = plain->shape()[2] * plain->shape()[3];
    for (int64_t i = 0; i < plain->type().numel(); ++i) {
        const double y = want[static_cast<size_t>(i)] +
                         static_cast<double>(bias->as<float>()[i / spatial % GetParam().oc]) +
                         static_cast<double>(addend->as<float>()[i]);
        ASSERT_NEAR(static_cast<double>(got->as<float>()[i]), std::max(y, 0.0), bound()) << i;
    }
}

TEST_P(WinogradTest, WeightsComeBackBitByBit) {
    const TensorRef back = runtime::row_major(packed_);
    EXPECT_EQ(std::memcmp(back->data(), w_->data(), w_->type().bytes()), 0);
}

TEST_P(WinogradTest, OneThreadGivesTheSameBits) {
    const TensorRef many = run();
    runtime::set_thread_count(1);
    const TensorRef one = run();
    runtime::set_thread_count(0);
    EXPECT_EQ(std::memcmp(many->data(), one->data(), one->type().bytes()), 0);
}

TEST_P(WinogradTest, NansAreNotHidden) {
    x_->as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(run({}, "relu")->as<float>()[0]));
}

TEST_P(WinogradTest, OtherAttributesTakeTheWeightsAsTheyWere) {
    const Attrs strided{std::vector<int64_t>{2}, std::vector<int64_t>{1}, std::vector<int64_t>{1},
                        int64_t{1}};
    const TensorRef x = in(Layout::channels_last, x_);
    const TensorRef got = runtime::row_major(runtime::build::op("conv", {x, packed_}, strided)),
                    want = runtime::row_major(runtime::build::op("conv", {x, w_}, strided));
    EXPECT_EQ(std::memcmp(got->data(), want->data(), want->type().bytes()), 0);
    const TensorRef dense = runtime::build::op("conv", {x_, packed_}, attrs_),
                    plain = runtime::build::op("conv", {x_, w_}, attrs_);
    EXPECT_EQ(std::memcmp(dense->data(), plain->data(), plain->type().bytes()), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, WinogradTest,
    ::testing::Values(Problem{1, 16, 64, 8, 8, 1}, Problem{2, 32, 64, 9, 7, 1},
                      Problem{1, 16, 128, 11, 10, 0}, Problem{1, 48, 64, 13, 9, 2},
                      Problem{1, 256, 128, 9, 11, 1}, Problem{5, 192, 192, 8, 7, 1}),
    [](const auto& info) {
        return runtime::cat("c", info.param.ic, "_o", info.param.oc, "_h", info.param.h, "_w",
                            info.param.w, "_p", info.param.pad);
    });

}}  // namespace megjit::cpu
