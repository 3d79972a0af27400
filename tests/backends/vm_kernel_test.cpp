// The VM against the interpreter, its storage types, and the gradients of all element-wise ops.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/backends/vm_testing.h"

namespace megjit::cpu::testing { namespace {

std::vector<float> random_values(size_t n, uint32_t seed, float low = -2, float high = 2) {
    std::mt19937 random(seed);
    std::vector<float> values(n);
    for (float& value : values)
        value = low + (high - low) * static_cast<float>(random()) * 0x1p-32f;
    return values;
}

// a * b + c over broadcast shapes: every way of walking gives what the interpreter gives.
void expect_like_interpreter(const Shape& a, const Shape& b, const Shape& c) {
    register_all_ops();
    const Attrs attrs;
    const std::vector<Type> types = {{.shape = a}, {.shape = b}, {.shape = c}};
    const OpCall call{find_op("fma3"), attrs, types};
    const Type output = infer(call)[0];
    const codegen::BoundKernel bound = codegen::elementwise_kernel(call, output);
    std::vector<std::vector<float>> data;
    std::vector<void*> inputs;
    for (const Type& type : types)
        data.push_back(random_values(static_cast<size_t>(type.numel()), 5));
    for (auto& values : data) inputs.push_back(values.data());
    std::vector<float> got(static_cast<size_t>(output.numel())), wanted = got;
    void *got_out[] = {got.data()}, *wanted_out[] = {wanted.data()};
    prepare_vm(bound.kernel, bound.launch)
        ->enqueue(runtime::inline_stream(), inputs.data(), got_out, nullptr);
    codegen::interpret(bound.kernel, bound.launch, inputs.data(), wanted_out);
    EXPECT_EQ(got, wanted) << to_string(a) << " * " << to_string(b) << " + " << to_string(c);
}

TEST(Vm, BroadcastsLikeTheInterpreter) {
    expect_like_interpreter({7}, {7}, {7});
    expect_like_interpreter({}, {1}, {1, 1});
    expect_like_interpreter({5, 3}, {3}, {5, 1});
    expect_like_interpreter({700, 3}, {1, 3}, {700, 1});
    expect_like_interpreter({2, 1, 33}, {4, 1}, {2, 4, 33});
    expect_like_interpreter({3, 1000}, {3, 1}, {1});
    expect_like_interpreter({4, 1, 5, 1}, {1, 6, 1, 7}, {5, 7});
    expect_like_interpreter({0, 4}, {4}, {1});
    expect_like_interpreter({300, 400}, {400}, {300, 1});
}

TEST(Vm, LetsTheOutputLieOnAnInput) {
    codegen::KernelIR kernel;
    const Expr x(&kernel.program, kernel.program.input(0, ScalarType::f32));
    kernel.inputs = {{}};
    kernel.results = {(exp(x) * x + x).id()};
    kernel.outputs = {{DType::f32}};
    std::vector<float> data = random_values(5000, 1), apart(5000);
    const auto vm = prepare_vm(kernel, {{5000}, {1}});
    void *in[] = {data.data()}, *out[] = {apart.data()};
    ASSERT_TRUE(vm->may_alias(0, 0));
    vm->enqueue(runtime::inline_stream(), in, out, nullptr);
    vm->enqueue(runtime::inline_stream(), in, in, nullptr);
    EXPECT_EQ(data, apart);
}

TEST(Vm, WrapsSmallIntegers) {
    const std::vector<int8_t> x = {127, -128, 5}, y = {1, -1, 6};
    const auto sum = run_program<int8_t>([](std::vector<Expr> a) { return a[0] + a[1]; }, DType::i8,
                                         {DType::i8, DType::i8}, x, y);
    EXPECT_EQ(sum, (std::vector<int8_t>{-128, 127, 11}));
}

TEST(Vm, RoundsHalvesToEvenInFloat16) {
    const std::vector<float> x = {1.0f + 0x1p-11f, 1.0f + 0x3p-11f, 65520.0f, 0x1p-25f, -0.0f};
    const auto half = run_program<uint16_t>([](std::vector<Expr> a) { return a[0]; }, DType::f16,
                                            {DType::f32}, x);
    EXPECT_EQ(half, (std::vector<uint16_t>{0x3C00, 0x3C02, 0x7C00, 0, 0x8000}));
}

TEST(Vm, KeepsDenormals) {
    EXPECT_EQ(run_binary([](Expr a, Expr b) { return a * b; }, {1e-39f}, {0.5f})[0], 1e-39f * 0.5f);
}

// Each op's derived gradient against a central difference.
TEST(Elementwise, GradientsAgreeWithFiniteDifferences) {
    register_all_ops();
    for (const OpDef* op : all_ops()) {
        if (!op->is_elementwise() || op->result != Result::same ||
            op->promotion == Promotion::boolean || op->promotion == Promotion::integer ||
            op->kind_of(0) == OperandKind::mask || op->name == "digamma")
            continue;
        const bool above_one = op->name == "acosh";
        Attrs attrs;
        for (const AttrSpec& spec : op->attrs) attrs.push_back(*spec.fallback);
        std::vector<std::vector<float>> inputs;
        for (uint32_t i = 0; i < op->inputs.size(); ++i)
            inputs.push_back(
                random_values(40, i + 3, above_one ? 1.3f : 0.15f, above_one ? 3.0f : 0.85f));
        const std::vector<Type> types(inputs.size(), Type{.shape = Shape{40}});
        const std::vector<float> y = run_op(*op, attrs, inputs);
        for (int k = 0; k < static_cast<int>(inputs.size()); ++k) {
            const DerivedGrad* derived = derive_grad(*op, types, types[0], k);
            if (!derived || derived->is_identity) continue;
            std::vector<std::vector<float>> candidates = inputs, operands;
            candidates.push_back(y);
            candidates.emplace_back(40, 1.0f);
            for (int position : derived->operands)
                operands.push_back(candidates[static_cast<size_t>(position)]);
            const std::vector<float> gradient = run_op(*derived->op, attrs, operands);
            auto up = inputs, down = inputs;
            for (size_t i = 0; i < 40; ++i) {
                up[k][i] += 0x1p-8f;
                down[k][i] -= 0x1p-8f;
            }
            const std::vector<float> above = run_op(*op, attrs, up),
                                     below = run_op(*op, attrs, down);
            for (size_t i = 0; i < 40; ++i) {
                const float wanted = (above[i] - below[i]) / 0x1p-7f;
                if (op->name.ends_with("maximum") || op->name.ends_with("minimum"))
                    if (std::fabs(inputs[0][i] - inputs[1][i]) < 0x1p-7f) continue;
                if (op->name == "mod" || op->name == "floor_div") continue;  // jumps
                if (op->name == "fake_quant")
                    continue;  // jumps, and its gradient passes through them by definition
                EXPECT_NEAR(gradient[i], wanted, 5e-3 * (1 + std::fabs(wanted)))
                    << op->name << " for input " << k << " at " << inputs[0][i];
            }
        }
    }
}

}}  // namespace megjit::cpu::testing
