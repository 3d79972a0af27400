// What an op says of its steps (OpDef::loop) gives its results: written out, and as a scan.
#include "runtime/ops/loop.h"

#include <cmath>

#include "tests/jit/world.h"

namespace megjit::jit { namespace {

using runtime::Tensors;

constexpr int64_t kSteps = 4, kBatch = 2, kHidden = 3;

class Loops : public World, public testing::WithParamInterface<int64_t> {
protected:
    static TensorRef waves(const runtime::Shape& shape) {
        static float phase = 0;
        const TensorRef made = runtime::empty_tensor(runtime::host_device(), {.shape = shape});
        for (int64_t i = 0; i < shape.numel(); ++i) made->as<float>()[i] = std::sin(++phase);
        return made;
    }
    static TensorRef of_steps(int64_t chunks = 1) {
        return waves({kSteps, kBatch, chunks * kHidden});
    }
    static TensorRef state() { return waves({kBatch, kHidden}); }
    static TensorRef weights(int64_t chunks) { return waves({chunks * kHidden, kHidden}); }

    static void expect_close(const Tensors& got, const Tensors& want, const std::string& what) {
        ASSERT_EQ(got.size(), want.size()) << what;
        for (size_t k = 0; k < want.size(); ++k) {
            ASSERT_EQ(got[k]->type(), want[k]->type()) << what;
            const std::vector<float> a = values_of(got[k]), b = values_of(want[k]);
            for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << what << k;
        }
    }
    // Returns what the op's kernel gives.
    static Tensors check(const std::string& name, const Tensors& inputs, runtime::Attrs attrs) {
        const OpDef& op = runtime::find_op(name);
        std::vector<Type> types;
        for (const TensorRef& input : inputs) types.push_back(input->type());
        const runtime::OpCall call{op, attrs, types};
        const runtime::Results made = runtime::compute(op, attrs, inputs);
        const Tensors want(made.begin(), made.end());
        expect_close(unrolled(call, inputs), want, name + " unrolled ");
        expect_close(scan(call, inputs), want, name + " as a scan ");
        return want;
    }
};

TEST_P(Loops, OfAnElmanNetwork) {
    for (const char* nonlinearity : {"tanh", "relu"}) {
        const runtime::Attrs attrs{std::string(nonlinearity), GetParam()};
        const TensorRef w = weights(1);
        const Tensors made = check("rnn", {of_steps(), w, state()}, attrs);
        check("rnn_grad", {made[0], w, of_steps()}, attrs);
    }
}

TEST_P(Loops, OfLongShortTermMemory) {
    const TensorRef w = weights(4), c = state();
    const Tensors made = check("lstm", {of_steps(4), w, state(), c}, {GetParam(), int64_t{0}});
    const Tensors inputs{made[2], w, c, made[1], of_steps()};
    check("lstm_grad", inputs, {GetParam()});
    Tensors more = inputs;
    more.push_back(of_steps());  // dc
    check("lstm_grad", more, {GetParam()});
}

TEST_P(Loops, OfGatedUnits) {
    const TensorRef w = weights(3), h = state();
    const Tensors made = check("gru", {of_steps(3), w, h, waves({3 * kHidden})}, {GetParam()});
    check("gru_grad", {made[1], w, h, made[0], made[2], of_steps()}, {GetParam()});
}

INSTANTIATE_TEST_SUITE_P(Directions, Loops, testing::Values(0, 1));

}}  // namespace megjit::jit
