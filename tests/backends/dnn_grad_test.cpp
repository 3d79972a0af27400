// Gradients of the network ops as a tape computes them, first and second order, against finite
// differences along one random direction.
#include "runtime/eager/autodiff.h"
#include "runtime/ops/builders.h"
#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

using runtime::TensorRef;
using runtime::Tensors;

struct GradCase {
    std::string op = {};
    std::vector<Shape> inputs = {};
    Attrs attrs = {};
    bool second_order = true;
};

TensorRef tensor(const Values& values) {
    TensorRef made = runtime::empty_tensor(device(), values.type);
    for (int64_t i = 0; i < values.type.numel(); ++i)
        store(made->data(), values.type.dtype, i, values[i]);
    return made;
}
TensorRef random_tensor(const Shape& shape, unsigned seed) { return tensor(random(shape, seed)); }

TensorRef moved(const TensorRef& x, const TensorRef& direction, double by) {
    TensorRef made = runtime::empty_tensor(device(), x->type());
    for (int64_t i = 0; i < x->type().numel(); ++i)
        made->as<float>()[i] =
            x->as<float>()[i] + static_cast<float>(by) * direction->as<float>()[i];
    return made;
}

double dot(const TensorRef& a, const TensorRef& b) {
    double sum = 0;
    for (int64_t i = 0; i < a->type().numel(); ++i)
        sum += static_cast<double>(a->as<float>()[i]) * static_cast<double>(b->as<float>()[i]);
    return sum;
}

// The op's results, weighted by fixed random numbers.
double loss_of(const Tensors& ys) {
    double loss = 0;
    for (size_t i = 0; i < ys.size(); ++i)
        loss += dot(ys[i], random_tensor(ys[i]->shape(), 50 + static_cast<unsigned>(i)));
    return loss;
}
Tensors weights_of(const Tensors& ys) {
    Tensors weights;
    for (size_t i = 0; i < ys.size(); ++i)
        weights.push_back(random_tensor(ys[i]->shape(), 50 + static_cast<unsigned>(i)));
    return weights;
}

struct Open {  // keeps a tape open for a scope
    explicit Open(runtime::Tape& tape) { runtime::context().tapes.push_back(&tape); }
    ~Open() { runtime::context().tapes.pop_back(); }
};

Tensors first_order(const GradCase& c, const Tensors& inputs) {
    runtime::Tape tape;
    for (const TensorRef& input : inputs) tape.watch(input);
    const Open open(tape);
    const Tensors ys = runtime::apply(runtime::find_op(c.op), c.attrs, inputs);
    return tape.backward(ys, weights_of(ys), inputs);
}

// The slope of `loss` at `inputs` along `direction` of input k, without the term of the step
// squared.
template <class Loss>
double slope(const Loss& loss, const Tensors& inputs, size_t k, const TensorRef& direction) {
    const auto at = [&](double by) {
        Tensors there = inputs;
        there[k] = moved(inputs[k], direction, by);
        return loss(there);
    };
    const auto over = [&](double step) { return (at(step) - at(-step)) / (2 * step); };
    constexpr double kStep = 1e-2;
    return (4 * over(kStep) - over(2 * kStep)) / 3;
}

class GradTest : public ::testing::TestWithParam<GradCase> {};

TEST_P(GradTest, AgreesWithDifferencesAlongADirection) {
    const GradCase& c = GetParam();
    device();
    Tensors inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i)
        inputs.push_back(random_tensor(c.inputs[i], static_cast<unsigned>(i) + 1));
    const runtime::OpDef& op = runtime::find_op(c.op);
    const Tensors grads = first_order(c, inputs);
    const auto loss = [&](const Tensors& there) {
        return loss_of(runtime::apply(op, c.attrs, there));
    };
    for (size_t k = 0; k < inputs.size(); ++k) {
        if (!grads[k]) continue;
        const TensorRef direction = random_tensor(inputs[k]->shape(), 90);
        const double difference = slope(loss, inputs, k, direction);
        EXPECT_NEAR(dot(grads[k], direction), difference, 2e-4 * (1 + std::abs(difference)))
            << c.op << " input " << k;
    }
    if (!c.second_order) return;

    // d/dx of <grads(x), fixed weights>.
    Tensors seconds;
    {
        runtime::Tape outer;
        for (const TensorRef& input : inputs) outer.watch(input);
        const Open open(outer);
        Tensors firsts = first_order(c, inputs), present;
        for (const TensorRef& grad : firsts)
            if (grad) present.push_back(grad);
        seconds = outer.backward(present, weights_of(present), inputs);
    }
    const auto present_loss = [&](const Tensors& there) {
        Tensors present;
        for (const TensorRef& grad : first_order(c, there))
            if (grad) present.push_back(grad);
        return loss_of(present);
    };
    for (size_t k = 0; k < inputs.size(); ++k) {
        const TensorRef direction = random_tensor(inputs[k]->shape(), 90);
        const double difference = slope(present_loss, inputs, k, direction);
        const double got = seconds[k] ? dot(seconds[k], direction) : 0;
        EXPECT_NEAR(got, difference, 2e-3 * (1 + std::abs(difference)))
            << "second order of " << c.op << ", input " << k;
    }
}

const Ints kOne{1}, kTwo{2};
INSTANTIATE_TEST_SUITE_P(
    Dnn, GradTest,
    ::testing::Values(
        GradCase{"conv", {{2, 4, 6, 5}, {6, 2, 3, 3}}, {kTwo, kOne, kOne, int64_t{2}}},
        GradCase{"conv_backward_data",
                 {{1, 4, 3, 3}, {4, 3, 2, 2}},
                 {kTwo, Ints{0}, kOne, int64_t{1}, Ints{7, 6}}},
        GradCase{"conv_backward_filter",
                 {{2, 3, 5, 5}, {2, 4, 5, 5}},
                 {kOne, kOne, kOne, int64_t{1}, Ints{3, 3}}},
        GradCase{"matmul", {{3, 4}, {4, 5}}, {int64_t{0}, int64_t{0}}},
        GradCase{"matmul", {{4, 3}, {5, 4}}, {int64_t{1}, int64_t{1}}},
        GradCase{"matmul", {{2, 3, 4}, {4, 5}}, {int64_t{0}, int64_t{0}}},
        GradCase{"matmul", {{2, 3, 4}, {5, 4}}, {int64_t{0}, int64_t{1}}},
        GradCase{"matmul", {{2, 1, 4, 3}, {3, 4, 5}}, {int64_t{1}, int64_t{0}}},
        GradCase{"matmul", {{3, 4}, {2, 5, 4}}, {int64_t{0}, int64_t{1}}},
        GradCase{"avg_pool", {{2, 3, 6, 7}}, {Ints{3}, kTwo, kOne, int64_t{0}}},
        GradCase{"adaptive_avg_pool", {{2, 3, 6, 7}}, {Ints{4, 3}}},
        GradCase{"max_pool", {{1, 2, 4, 4}}, {kTwo, kTwo, Ints{0}}, false},
        GradCase{"softmax", {{3, 5, 2}}, {int64_t{1}}},
        GradCase{"log_softmax", {{3, 5}}, {int64_t{1}}},
        GradCase{"batch_norm", {{4, 3, 5, 2}, {3}, {3}}, {1e-1}},
        GradCase{"layer_norm", {{4, 6}, {6}, {6}}, {int64_t{1}, 1e-1, int64_t{1}}},
        GradCase{"layer_norm", {{2, 3, 4}}, {int64_t{2}, 1e-1, int64_t{0}}}),
    [](const auto& info) { return info.param.op + std::to_string(info.index); });

}}  // namespace megjit::testing
