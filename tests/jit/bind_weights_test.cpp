#include "jit/plan/passes/passes.h"
#include "jit/plan/pipeline.h"
#include "jit/run/program.h"
#include "tests/jit/graphs.h"
#include "tests/onednn.h"

namespace megjit::jit { namespace {

using BindWeights = World;

// conv, a bias, a normalization of known statistics, relu; x is slot 0.
constexpr std::string_view kBlock =
    "%0: f32[1, 32, 12, 12] = input 0\n"
    "%1: f32[64, 32, 3, 3] = input 1\n"
    "%2: f32[1, 64, 1, 1] = input 2\n"
    "%3: f32[1, 64, 1, 1] = input 3\n"
    "%4: f32[1, 64, 1, 1] = input 4\n"
    "%5: f32[1, 64, 12, 12] = conv %0 %1 {stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1}\n"
    "%6: f32[1, 64, 12, 12] = add %5 %2\n"
    "%7: f32[1, 64, 1, 1] = exp %3\n"
    "%8: f32[1, 64, 12, 12] = fma3 %6 %7 %4\n"
    "%9: f32[1, 64, 12, 12] = relu %8\n"
    "return %9\n";

// By slot: is it from outside?
Step captured(const std::vector<bool>& slots) {
    Step step;
    for (const bool is_captured : slots)
        step.inputs.push_back(
            {.kind = is_captured ? Input::Kind::captured : Input::Kind::argument});
    return step;
}
PipelineOptions options_for(const Step& step) {
    return {.opt_level = 3, .device = &runtime::host_device(), .step = &step};
}
const Step kAllButX = captured({false, true, true, true, true});

void expect_near(const TensorRef& got, const TensorRef& want) {
    for (int64_t i = 0; i < want->type().numel(); ++i)
        ASSERT_NEAR(got->as<float>()[i], want->as<float>()[i],
                    1e-3f * (1 + std::abs(want->as<float>()[i])))
            << i;
}

TEST_F(BindWeights, ABlockIsOneConvolutionOfPackedWeights) {
    NEEDS_ONEDNN();
    const Graph graph = run_pipeline(parse_graph(kBlock), options_for(kAllButX));
    EXPECT_EQ(fault_of(graph), "");
    ASSERT_TRUE(graph.prologue);
    EXPECT_EQ(fault_of(*graph.prologue), "");
    EXPECT_EQ(count(graph, "conv_epilogue"), 1u);
    EXPECT_EQ(count(graph, "fma3") + count(graph, "relu") + count(graph, "exp"), 0u);
    EXPECT_EQ(graph.prologue->outputs.size(), 2u);  // weights and shift
    EXPECT_TRUE(runtime::is_packed(graph.prologue->type(graph.prologue->outputs[0]).layout));
}

TEST_F(BindWeights, WhatThePrologueComputesStaysNowhereElse) {
    NEEDS_ONEDNN();
    const Graph graph =
        bind_weights(parse_graph("%0: f32[100, 17] = input 0\n"
                                 "%1: f32[64, 17] = input 1\n"
                                 "%2: f32[] = const 0.5\n"
                                 "%3: f32[64, 17] = mul %1 %2\n"
                                 "%4: f32[100, 64] = matmul %0 %3 {transpose_a=0, transpose_b=1}\n"
                                 "return %4\n"),
                     options_for(captured({false, true})));
    ASSERT_TRUE(graph.prologue);
    EXPECT_EQ(count(*graph.prologue, "mul"), 1u);
    EXPECT_EQ(count(graph, "mul"), 0u);
    EXPECT_EQ(dead_node(graph), nullptr);
}

// A voice detector whose layers are branches packed their weights in each call.
TEST_F(BindWeights, WeightsThatBranchesReadArePackedOnce) {
    NEEDS_ONEDNN();
    const Type x{.shape = {2, 32, 14, 14}}, w{.shape = {64, 32, 3, 3}}, y{.shape = {2, 64, 14, 14}};
    const auto branch_of = [&](const char* op) {
        Graph made;
        const ValueId a = made.add_input(x, 0), b = made.add_input(w, 1);
        const runtime::Attrs window = {std::vector<int64_t>{1, 1}, std::vector<int64_t>{1, 1},
                                       std::vector<int64_t>{1, 1}, int64_t{1}};
        const ValueId product = made.add(
            {.op = &runtime::find_op("conv"), .attrs = window, .inputs = {a, b}}, {&y, 1})[0];
        made.outputs = made.add({.op = &runtime::find_op(op), .inputs = {product}}, {&y, 1});
        return print(made);
    };
    Graph recorded;
    const Type flag{.dtype = runtime::DType::b8};
    const std::vector<ValueId> inputs = {recorded.add_input(flag, 0), recorded.add_input(x, 1),
                                         recorded.add_input(w, 2)};
    recorded.outputs = recorded.add(
        {.op = &ops::cond(), .attrs = {branch_of("relu"), branch_of("neg")}, .inputs = inputs},
        {&y, 1});
    const Graph graph = run_pipeline(recorded, options_for(captured({false, false, true})));
    ASSERT_TRUE(graph.prologue);
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_TRUE(runtime::is_packed(graph.prologue->type(graph.prologue->outputs[0]).layout));
    std::vector<TensorRef> given = inputs_for(recorded);
    const TensorRef want = interpret(recorded, given)[0];
    Program program(graph, {recorded}, {.check = true});
    for (int i = 0; i < 2; ++i) expect_near(program.run(given)[0], want);
}

TEST_F(BindWeights, TheProgramGivesTheSameNumbers) {
    NEEDS_ONEDNN();
    const Graph recorded = parse_graph(kBlock);
    std::vector<TensorRef> inputs = inputs_for(recorded);
    const TensorRef want = interpret(recorded, inputs)[0];
    Program program(run_pipeline(recorded, options_for(kAllButX)), {recorded}, {.check = true});
    for (int i = 0; i < 2; ++i) expect_near(program.run(inputs)[0], want);
}

TEST_F(BindWeights, ProgramsHaveAConstantOnTheirDeviceOnce) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    runtime::Device& device = runtime::find_device("gpu0");
    Graph graph;
    graph.set_device(device);
    const Type type{.shape = {1 << 18}};  // 1 MiB
    const ValueId x = graph.add_input(type, 0);
    const ValueId w = graph.add_constant(runtime::empty_tensor(runtime::host_device(), type));
    graph.outputs = graph.add({.op = &runtime::find_op("add"), .inputs = {x, w}}, {&type, 1});
    const LoweringOptions options{.weights = std::make_shared<BoundWeights>()};
    std::vector<TensorRef> inputs = {runtime::empty_tensor(device, type)};
    const size_t before = device.allocator().stats().in_use;
    {
        Program first(graph, {graph}, options), second(graph, {graph}, options);
        first.run(inputs);
        const size_t of_one = device.allocator().stats().in_use - before;
        second.run(inputs);
        device.stream().synchronize();
        EXPECT_GE(of_one, type.bytes());
        EXPECT_LT(device.allocator().stats().in_use - before, of_one + type.bytes());
    }
    device.stream().synchronize();
    EXPECT_LT(device.allocator().stats().in_use - before, type.bytes());
}

// As a dumped model has them.
TEST_F(BindWeights, ConstantsAreBoundBeforeTheFirstRun) {
    NEEDS_ONEDNN();
    const Graph recorded = parse_graph(kBlock);
    std::vector<TensorRef> inputs = inputs_for(recorded);
    Rewriter rewrite(recorded);
    for (const Node& node : recorded.nodes()) {
        if (node.kind == NodeKind::input && node.slot > 0)
            rewrite.replace(node.outputs[0],
                            rewrite.to.add_constant(inputs[static_cast<size_t>(node.slot)]));
        else rewrite.copy(node);
    }
    const Graph with_constants = rewrite.finish();
    const TensorRef want = interpret(recorded, inputs)[0];
    inputs.resize(1);
    const Graph bound = run_pipeline(with_constants, options_for(captured({false})));
    ASSERT_TRUE(bound.prologue);
    EXPECT_EQ(bound.prologue->outputs.size(), 2u);
    Program program(bound, {with_constants}, {.check = true});
    const size_t before = runtime::host_device().allocator().stats().allocations;
    program.bind_constants();
    const size_t packed = runtime::host_device().allocator().stats().allocations;
    EXPECT_GT(packed, before);
    for (int i = 0; i < 2; ++i) expect_near(program.run(inputs)[0], want);
    program.bind_constants();  // is there
    EXPECT_LE(runtime::host_device().allocator().stats().allocations - packed,
              3u);  // an arena, and results
}

TEST_F(BindWeights, OtherWeightsArePackedAgain) {
    NEEDS_ONEDNN();
    const Graph recorded = parse_graph(kBlock);
    std::vector<TensorRef> inputs = inputs_for(recorded);
    Program program(run_pipeline(recorded, options_for(kAllButX)), {recorded}, {.check = true});
    program.run(inputs);
    for (const size_t slot : {1u, 2u, 3u, 4u}) {
        const TensorRef before = inputs[slot];
        inputs[slot] = runtime::empty_tensor(runtime::host_device(), before->type());
        for (int64_t i = 0; i < before->type().numel(); ++i)
            inputs[slot]->as<float>()[i] = 0.5f - before->as<float>()[i];
        expect_near(program.run(inputs)[0], interpret(recorded, inputs)[0]);
    }
}

TEST_F(BindWeights, WhatThePlanCountsHoldsThePackedWeights) {
    const Graph recorded = parse_graph(kBlock);
    const Graph plain = run_pipeline(recorded, options_for({})),
                bound = run_pipeline(recorded, options_for(kAllButX));
    const auto planned = [&](const Graph& graph) {
        return plan_of(graph, {recorded}, {}).planned_bytes;
    };
    EXPECT_GE(planned(bound), recorded.type(static_cast<ValueId>(1)).bytes() +
                                  recorded.type(static_cast<ValueId>(0)).bytes());
    EXPECT_GT(planned(bound) + plain.type(plain.outputs[0]).bytes(), planned(plain));
}

TEST_F(BindWeights, WeightsThatChangeStay) {
    const Graph graph =
        run_pipeline(parse_graph(kBlock), options_for(captured({false, false, true, true, true})));
    EXPECT_FALSE(graph.prologue);
}

TEST_F(BindWeights, NothingIsBoundUnderALimit) {
    PipelineOptions options = options_for(kAllButX);
    options.memory.limit = 1 << 30;
    EXPECT_FALSE(run_pipeline(parse_graph(kBlock), options).prologue);
}

TEST_F(BindWeights, ExactNumericsBindNothing) {
    PipelineOptions options = options_for(kAllButX);
    options.exact = true;
    EXPECT_FALSE(run_pipeline(parse_graph(kBlock), options).prologue);
}

//   the weights are read by a gradient, too
TEST_F(BindWeights, WeightsThatGradientsReadStay) {
    const Graph graph = run_pipeline(
        parse_graph(
            "%0: f32[1, 32, 12, 12] = input 0\n%1: f32[64, 32, 3, 3] = input 1\n"
            "%2: f32[1, 64, 12, 12] = conv %0 %1 {stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1}\n"
            "%3: f32[1, 64, 12, 12] = exp %2\n"
            "%4: f32[1, 32, 12, 12] = conv_backward_data %3 %1 {stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1, input_shape=[12, 12]}\n"
            "return %3 %4\n"),
        options_for(captured({false, true})));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_FALSE(graph.prologue);
}

//   an intermediate value that is returned keeps the chain apart
TEST_F(BindWeights, AScaleBehindAReturnedProductIsNotFolded) {
    std::string text(kBlock);
    text.replace(text.find("return %9"), 9, "return %9 %5");
    const Graph graph = fold_scales(parse_graph(text), options_for(kAllButX));
    EXPECT_EQ(count(graph, "fma3"), 1u);
}

}}  // namespace megjit::jit
