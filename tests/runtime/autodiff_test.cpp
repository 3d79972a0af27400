#include "runtime/eager/autodiff.h"

#include <gtest/gtest.h>

#include "runtime/ops/builders.h"
#include "tests/jit/world.h"

namespace megjit::runtime { namespace {

using jit::floats;
using jit::values_of;

class TapeTest : public jit::World {
protected:
    void SetUp() override { context().tapes = {&tape_}; }
    void TearDown() override { context().tapes.clear(); }
    Tensors backward(const TensorRef& y, std::initializer_list<TensorRef> wanted) {
        const TensorRef dy = build::full(y->shape(), 1, y->dtype(), y->device());
        return tape_.backward({&y, 1}, {&dy, 1}, {wanted.begin(), wanted.size()});
    }
    Tape tape_;
};

TEST_F(TapeTest, DifferentiatesAProduct) {
    const TensorRef x = floats({2}, {2, 3}), w = floats({2}, {5, 7});
    tape_.watch(x);
    const Tensors grads = backward(build::mul(x, w), {x});
    EXPECT_EQ(values_of(grads[0]), (std::vector<float>{5, 7}));
}

TEST_F(TapeTest, SumsTheGradientOverBroadcastAxes) {
    const TensorRef x = floats({}, {2}), w = floats({3}, {1, 2, 3});
    tape_.watch(x);
    const Tensors grads = backward(build::mul(x, w), {x});
    EXPECT_EQ(grads[0]->shape(), Shape{});
    EXPECT_EQ(values_of(grads[0]), (std::vector<float>{6}));
}

TEST_F(TapeTest, AddsWhatComesBackOnTwoPaths) {
    const TensorRef x = floats({1}, {3});
    tape_.watch(x);
    const Tensors grads = backward(build::add(build::mul(x, x), x), {x});
    EXPECT_EQ(values_of(grads[0]), (std::vector<float>{7}));
}

TEST_F(TapeTest, ATensorThatTheResultDoesNotDependOnHasNoGradient) {
    const TensorRef x = floats({1}, {3}), other = floats({1}, {3});
    tape_.watch(x);
    tape_.watch(other);
    EXPECT_FALSE(backward(build::neg(x), {other})[0]);
}

TEST_F(TapeTest, WhatCameBeforeWatchingIsInvisible) {
    const TensorRef x = floats({1}, {3});
    const TensorRef y = build::mul(x, x);
    tape_.watch(x);
    EXPECT_FALSE(backward(build::neg(y), {x})[0]);
}

TEST_F(TapeTest, AnOuterTapeSeesTheBackwardOfAnInnerOne) {
    Tape inner;
    const TensorRef x = floats({1}, {3});
    tape_.watch(x);
    inner.watch(x);
    context().tapes.push_back(&inner);
    const TensorRef y = build::mul(build::mul(x, x), x),
                    dy = build::full({1}, 1, DType::f32, host_device());
    const TensorRef first = inner.backward({&y, 1}, {&dy, 1}, {&x, 1})[0];
    context().tapes.pop_back();
    EXPECT_EQ(values_of(first), (std::vector<float>{27}));
    EXPECT_EQ(values_of(backward(first, {x})[0]), (std::vector<float>{18}));
}

TEST_F(TapeTest, DerivedOpsAreFoundByTheirNames) {
    const OpDef* derived = find_op_or_null("tanh.grad0");
    ASSERT_NE(derived, nullptr);
    EXPECT_TRUE(derived->is_elementwise());
    EXPECT_NE(find_op_or_null("tanh.grad0.grad0"), nullptr);
    EXPECT_EQ(find_op_or_null("tanh.grad7"), nullptr);
    EXPECT_EQ(find_op_or_null("matmul.grad0"), nullptr);
}

// A slope of 1 makes leaky_relu the identity; the derived op must still hold for every other slope.
TEST_F(TapeTest, TheGradientOfAnOpHoldsForEveryAttribute) {
    const TensorRef x = floats({2}, {-2, 2});
    tape_.watch(x);
    EXPECT_EQ(values_of(backward(build::op("leaky_relu", {x}, {1.0}), {x})[0]),
              (std::vector<float>{1, 1}));
    tape_.watch(x);
    EXPECT_EQ(values_of(backward(build::op("leaky_relu", {x}, {0.25}), {x})[0]),
              (std::vector<float>{0.25, 1}));
}

}}  // namespace megjit::runtime
