#include <gtest/gtest.h>

#include "codegen/kernel_ir.h"

namespace megjit::codegen { namespace {

using namespace runtime;

// The kernel that adds operands of these types over `space`.
BoundKernel bind_sum(const Shape& space, const std::vector<Type>& inputs,
                     Layout layout = Layout::row_major) {
    ScalarProgram program;
    Expr sum(&program, program.input(0, ScalarType::f32));
    for (size_t i = 1; i < inputs.size(); ++i)
        sum = sum + Expr(&program, program.input(static_cast<int>(i), ScalarType::f32));
    return bind(program, {sum.id()}, {DType::f32}, space, inputs, layout);
}

using Numbers = std::vector<int64_t>;

TEST(Bind, SameShapesBecomeOneAxis) {
    const BoundKernel bound = bind_sum({2, 3, 4}, {{.shape = {2, 3, 4}}, {.shape = {2, 3, 4}}});
    EXPECT_EQ(bound.launch.extents, Numbers({24}));
    EXPECT_EQ(bound.launch.strides, Numbers({1, 1, 1}));
    EXPECT_EQ(bound.kernel.inputs[0].inner, Inner::contiguous);
}

TEST(Bind, AScalarIsBroadcast) {
    const BoundKernel bound = bind_sum({2, 3}, {{.shape = {2, 3}}, {.shape = {}}});
    EXPECT_EQ(bound.launch.extents, Numbers({6}));
    EXPECT_EQ(bound.kernel.inputs[1].inner, Inner::broadcast);
}

TEST(Bind, ABiasOfChannelsKeepsThreeAxes) {
    const BoundKernel bound =
        bind_sum({8, 16, 5, 5}, {{.shape = {8, 16, 5, 5}}, {.shape = {1, 16, 1, 1}}});
    EXPECT_EQ(bound.launch.extents, Numbers({8, 16, 25}));
    EXPECT_EQ(bound.launch.strides, Numbers({400, 25, 1, 0, 1, 0, 400, 25, 1}));
    EXPECT_EQ(bound.kernel.inputs[1].inner, Inner::broadcast);
}

TEST(Bind, ARowIsRepeatedOverMergedAxes) {
    const BoundKernel bound = bind_sum({2, 3, 4}, {{.shape = {2, 3, 4}}, {.shape = {4}}});
    EXPECT_EQ(bound.launch.extents, Numbers({6, 4}));
    EXPECT_EQ(bound.launch.strides, Numbers({4, 1, 0, 1, 4, 1}));
}

TEST(Bind, AxesOfOneElementVanish) {
    const BoundKernel bound = bind_sum({1, 7, 1}, {{.shape = {1, 7, 1}}, {.shape = {7, 1}}});
    EXPECT_EQ(bound.launch.extents, Numbers({7}));
    EXPECT_EQ(bound.launch.strides, Numbers({1, 1, 1}));
}

TEST(Bind, AnotherLayoutIsStrided) {
    const Shape shape{2, 3, 4, 5};
    const BoundKernel bound =
        bind_sum(shape, {{.shape = shape}, {.shape = shape, .layout = Layout::channels_last}});
    EXPECT_EQ(bound.launch.extents, Numbers({2, 3, 20}));
    EXPECT_EQ(bound.launch.strides, Numbers({60, 20, 1, 60, 1, 3, 60, 20, 1}));
    EXPECT_EQ(bound.kernel.inputs[1].inner, Inner::strided);
}

TEST(Bind, OneLayoutForAllIsFlat) {
    const Shape shape{2, 3, 4, 5};
    const BoundKernel bound =
        bind_sum(shape, {{.shape = shape, .layout = Layout::channels_last}}, Layout::channels_last);
    EXPECT_EQ(bound.launch.extents, Numbers({120}));
}

TEST(Bind, OneElementSharesTheKernelOfMany) {
    EXPECT_EQ(bind_sum({1}, {{.shape = {1}}, {.shape = {}}}).kernel,
              bind_sum({5}, {{.shape = {5}}, {.shape = {}}}).kernel);
}

TEST(Bind, NoElementsAreOneEmptyAxis) {
    const BoundKernel bound = bind_sum({4, 0, 3}, {{.shape = {4, 0, 3}}, {.shape = {3}}});
    EXPECT_EQ(bound.launch.numel(), 0);
    EXPECT_EQ(fault_of(bound.kernel), "");
}

TEST(Bind, DropsWhatNoResultNeeds) {
    ScalarProgram program;
    const Expr x(&program, program.input(0, ScalarType::f32));
    const Expr unused = x * 3.0;
    const Expr y = x + 1.0;
    EXPECT_NE(unused.id(), y.id());
    const std::vector<Type> inputs = {{.shape = {4}}};
    EXPECT_EQ(bind(program, {y.id()}, {DType::f32}, {4}, inputs).kernel.program.size(), 3);
}

}}  // namespace megjit::codegen
