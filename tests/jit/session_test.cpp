// Calls of a traced function without Python: what is recorded, replayed, and left of a call that
// fails.
#include <cmath>
#include <thread>

#include "runtime/host/error.h"
#include "traced_world.h"

namespace megjit::jit { namespace {

using SessionTest = TracedWorld;

TEST_F(SessionTest, TheFirstCallRecordsAndLaterOnesReplay) {
    EXPECT_EQ(values_of(traced(doubled, floats({2}, {1, 2}))), (std::vector<float>{2, 4}));
    EXPECT_FALSE(has_replayed());
    EXPECT_EQ(values_of(traced(doubled, floats({2}, {3, 4}))), (std::vector<float>{6, 8}));
    EXPECT_TRUE(has_replayed());
    EXPECT_EQ(function.latest()->calls, 1);
}

TEST_F(SessionTest, PlaceholdersGetDataWhenTheCallEnds) {
    const auto body = [](const TensorRef& x) {
        TensorRef y = doubled(x);
        EXPECT_FALSE(y->has_data());
        return y;
    };
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(traced(body, floats({1}, {1}))->has_data());
}

TEST_F(SessionTest, OtherTypesOfOutsideTensorsMakeARecordingOfAReplayedCall) {
    TensorRef outside = floats({2}, {10, 20});
    const auto body = [&](const TensorRef& x) { return call("add", {doubled(x), outside}); };
    traced(body, floats({1}, {1}));
    outside = floats({3}, {10, 20, 30});
    EXPECT_EQ(values_of(traced(body, floats({1}, {1}))), (std::vector<float>{12, 22, 32}));
    EXPECT_FALSE(has_replayed());
    EXPECT_EQ(function.versions().size(), 2);
    EXPECT_EQ(values_of(traced(body, floats({1}, {2}))), (std::vector<float>{14, 24, 34}));
    EXPECT_TRUE(has_replayed());
    outside = floats({2}, {10, 20});
    EXPECT_EQ(values_of(traced(body, floats({1}, {2}))), (std::vector<float>{14, 24}));
    EXPECT_TRUE(has_replayed());
}

TEST_F(SessionTest, AnotherOpIsAnErrorAndWhatWasIssuedIsComputed) {
    traced([](const TensorRef& x) { return call("exp", {doubled(x)}); }, floats({1}, {1}));
    TensorRef kept;
    const auto other = [&](const TensorRef& x) {
        kept = doubled(x);
        return call("tanh", {kept});
    };
    EXPECT_THROW(traced(other, floats({1}, {3})), runtime::UserError);
    EXPECT_EQ(values_of(kept), std::vector<float>{6});
}

TEST_F(SessionTest, ABodyThatEndsEarlyIsAnError) {
    traced([](const TensorRef& x) { return call("exp", {doubled(x)}); }, floats({1}, {1}));
    EXPECT_THROW(traced(doubled, floats({1}, {1})), runtime::UserError);
}

TEST_F(SessionTest, AKeptValueBecomesOneMoreResult) {
    const auto body = [](TensorRef* kept) {
        return [kept](const TensorRef& x) {
            const TensorRef y = doubled(x);
            if (kept) *kept = y;
            return call("add", {y, x});
        };
    };
    traced(body(nullptr), floats({1}, {1}));
    const CompiledSegment before = function.compiled()[0];
    TensorRef kept;
    traced(body(&kept), floats({1}, {5}));
    EXPECT_EQ(values_of(kept), std::vector<float>{10});
    EXPECT_EQ(before.step->outputs.size(), 1);  // who asked before sees no change
    EXPECT_EQ(function.compiled()[0].step->outputs.size(), 2);
}

TEST_F(SessionTest, ProgramsThatAreAskedForFitTheirSegments) {
    std::vector<TensorRef> kept;
    const auto body = [&](const TensorRef& x) {
        TensorRef y = x;
        std::vector<TensorRef> all;
        for (int i = 0; i < 50; ++i) all.push_back(y = doubled(y));
        kept.assign(all.begin(), all.begin() + static_cast<long>(kept.size()) + 1);
        return y;
    };
    traced(body, floats({1}, {1}));
    std::atomic<bool> is_over = false;
    std::thread reader([&] {
        while (!is_over)
            for (const CompiledSegment& one : function.compiled())
                ASSERT_EQ(one.step->outputs.size(), one.program->graph().outputs.size());
    });
    for (int i = 0; i < 40; ++i) traced(body, floats({1}, {1}));
    is_over = true;
    reader.join();
    EXPECT_EQ(values_of(kept[40])[0], std::ldexp(1.0F, 41));
}

}}  // namespace megjit::jit
