// Which gradients travel together, and that they do while backward goes on.
#include "runtime/eager/gradient_sums.h"

#include <gtest/gtest.h>

#include "runtime/eager/autodiff.h"
#include "runtime/ops/builders.h"
#include "tests/jit/twins.h"
#include "tests/jit/world.h"

namespace megjit::runtime { namespace {

using jit::floats;
using jit::values_of;
using Members = std::vector<std::vector<size_t>>;

WantedSum wanted(int64_t count, size_t left, std::string group = "0,1", DType dtype = DType::f32) {
    return {{dtype, {count}}, nullptr, std::move(group), left};
}
Members members(std::span<const WantedSum> all, BucketSizes sizes) {
    Members result;
    for (const GradientBucket& bucket : gradient_buckets(all, sizes))
        result.push_back(bucket.members);
    return result;
}

// What backward is through with first is reduced first; a bias comes behind what has a size of
// whole lines.
TEST(GradientBuckets, GoByTheOrderOfBackward) {
    const std::vector<WantedSum> all{wanted(3, 1), wanted(32, 2), wanted(32, 5), wanted(3, 4)};
    EXPECT_EQ(members(all, {}), (Members{{2, 1, 3, 0}}));
    EXPECT_EQ(members(all, {1, 1}), (Members{{2}, {3}, {1}, {0}}));
}

TEST(GradientBuckets, TheFirstAndTheLastOneAreSmall) {
    const std::vector<WantedSum> all(5, wanted(32, 0));
    EXPECT_EQ(members(all, {128, 1 << 20}), (Members{{0}, {1, 2, 3}, {4}}));
}

TEST(GradientBuckets, GroupsAndDtypesAreApartAndWhatHasNoGroupStays) {
    const std::vector<WantedSum> all{wanted(4, 3), wanted(4, 2, "0,2"), wanted(4, 1, ""),
                                     wanted(4, 5, "0,1", DType::f16), wanted(4, 4)};
    EXPECT_EQ(members(all, {}), (Members{{3}, {4, 0}, {1}}));
}

class GradientSumsTest : public jit::World {
protected:
    void SetUp() override {
        set_communicator("0,1", twins_);
        set_bucket_sizes({1, 1});
        context().tapes = {&tape_};
        tape_.watch(x_);
        tape_.watch(w_);
    }
    void TearDown() override {
        context().tapes.clear();
        set_bucket_sizes({});
        set_communicator("0,1", nullptr);
    }
    // Differentiates (x -> middle -> * w); `in_middle` is called when w's gradient is there and x's
    // is not.
    Tensors backward(const std::function<void()>& in_middle, std::vector<std::string> groups) {
        const TensorRef inner = build::mul(x_, x_);
        TensorRef middle;
        {
            const WithoutTapes pause;
            middle = build::mul(inner, 1.0);
        }
        tape_.record_custom({&inner, 1}, {&middle, 1}, [&](std::span<const TensorRef> dy) {
            in_middle();
            return Tensors{dy[0]};
        });
        const TensorRef y = build::mul(middle, w_), dy = floats({2}, {1, 1});
        const std::vector<TensorRef> wanted{x_, w_};
        return tape_.backward({&y, 1}, {&dy, 1}, wanted, groups);
    }
    const std::shared_ptr<jit::Twins> twins_ = std::make_shared<jit::Twins>();
    const TensorRef x_ = floats({2}, {2, 3}), w_ = floats({2}, {5, 7});
    Tape tape_;
};

// It would wait for ever if the exchange waited for the end of backward.
TEST_F(GradientSumsTest, ABucketTravelsWhileBackwardGoesOn) {
    const Tensors grads = backward([&] { twins_->wait_for_calls(1); }, {"0,1", "0,1"});
    EXPECT_EQ(values_of(grads[1]), (std::vector<float>{8, 18}));
    EXPECT_EQ(values_of(grads[0]), (std::vector<float>{40, 84}));
    EXPECT_EQ(twins_->calls(), 2);
    EXPECT_NE(twins_->threads[0], std::this_thread::get_id());
}

TEST_F(GradientSumsTest, WhatHasNoGroupIsNotExchanged) {
    const Tensors grads = backward([&] { EXPECT_EQ(twins_->calls(), 0); }, {"0,1", ""});
    EXPECT_EQ(values_of(grads[1]), (std::vector<float>{4, 9}));
    EXPECT_EQ(values_of(grads[0]), (std::vector<float>{40, 84}));
}

TEST_F(GradientSumsTest, AnExchangeThatFailsIsAnErrorOfBackward) {
    twins_->fails = 1;
    EXPECT_THROW(backward([] {}, {"0,1", "0,1"}), std::runtime_error);
}

// An error that somebody caught counts, whatever came in between.
TEST_F(GradientSumsTest, AnExchangeWhoseErrorSomebodyCaughtIsAnErrorToo) {
    twins_->fails = 1;
    const auto catches = [] { EXPECT_THROW(side_stream().synchronize(), std::runtime_error); };
    EXPECT_THROW(backward(catches, {"", "0,1"}), UserError);
}

// And who fails in the middle waits for what is on its way: it writes into memory that goes.
TEST_F(GradientSumsTest, AnErrorInTheMiddleLeavesNothingOnItsWay) {
    EXPECT_THROW(backward([] { throw std::logic_error("in the middle"); }, {"0,1", "0,1"}),
                 std::logic_error);
    EXPECT_EQ(twins_->calls(), 1);
}

}}  // namespace megjit::runtime
