// Calls of a recorded function by slot, without its body.
#include "jit/trace/direct_call.h"

#include "runtime/host/error.h"
#include "traced_world.h"

namespace megjit::jit { namespace {

class DirectCallTest : public TracedWorld {
protected:
    // Records a body that adds its argument to `parameter`, and returns the double of the sum.
    DirectCall recorded() {
        std::vector<RecordId> wanted;
        TensorRef sum;
        traced([&](const TensorRef& x) {
            sum = call("add", {parameter, x});
            TensorRef twice = doubled(sum);
            wanted = {RecordId{sum->trace.value}, RecordId{twice->trace.value}};
            return twice;
        }, floats({2}, {1, 2}));
        return {function, function.latest(), wanted};
    }
    TensorRef parameter = floats({2}, {10, 20});  // slot 1; the argument is slot 0
};

TEST_F(DirectCallTest, GivesTheWantedValuesInTheirOrder) {
    const DirectCall direct = recorded();
    runtime::Tensors bound = {floats({2}, {3, 4}), floats({2}, {50, 60})};
    const runtime::Tensors values = direct.run(direct.compiled(), bound);
    EXPECT_EQ(values_of(values[0]), (std::vector<float>{53, 64}));
    EXPECT_EQ(values_of(values[1]), (std::vector<float>{106, 128}));
    EXPECT_EQ(function.latest()->calls, 1);
}

TEST_F(DirectCallTest, TakesTheTensorsOverThatItIsGiven) {
    const DirectCall direct = recorded();
    runtime::Tensors bound = {floats({2}, {3, 4}), floats({2}, {50, 60})};
    direct.run(direct.compiled(), bound);
    EXPECT_FALSE(bound[0]);
    EXPECT_FALSE(bound[1]);
}

TEST_F(DirectCallTest, ARunThatFailsGivesThemBack) {
    const DirectCall direct = recorded();
    const TensorRef argument = floats({2}, {3, 4});
    runtime::Tensors bound = {
        argument,
        runtime::make_placeholder(argument->type(), runtime::host_device())};  // without data
    EXPECT_THROW(direct.run(direct.compiled(), bound), runtime::UserError);
    EXPECT_EQ(bound[0], argument);
    EXPECT_TRUE(bound[1]);
}

TEST_F(DirectCallTest, TakesCallsLikeTheRecordedOne) {
    const DirectCall direct = recorded();
    EXPECT_TRUE(direct.takes({floats({2}, {0, 0})}));
    EXPECT_FALSE(direct.takes({floats({3}, {0, 0, 0})}));
    EXPECT_FALSE(direct.takes({floats({2}, {0, 0}), floats({2}, {0, 0})}));
}

TEST_F(DirectCallTest, FitsWhereCapturedTensorsAreAsRecorded) {
    const DirectCall direct = recorded();
    const TensorRef argument = floats({2}, {0, 0});
    EXPECT_TRUE(direct.fits({argument}, {{}, floats({2}, {1, 1})}));
    EXPECT_FALSE(direct.fits({argument}, {{}, floats({3}, {1, 1, 1})}));
    EXPECT_FALSE(direct.fits({argument}, {{}, argument}));  // recorded as two
}

TEST_F(DirectCallTest, ABodyThatMustRunIsRefusedWithItsLine) {
    try {
        DirectCall::refuse_read("train.py:3");
    } catch (const runtime::UserError& error) {
        EXPECT_EQ(error.message.at, "train.py:3");
        EXPECT_NE(error.message.fix.find("without_host"), std::string::npos);
    }
}

}}  // namespace megjit::jit
