// Graphs in which ops run twice: the same results, views and outputs included.
#include <gtest/gtest.h>

#include "jit/plan/passes/passes.h"
#include "jit/plan/pipeline.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

using Rematerialize = World;

// exp is read at once, through a view much later, and by the result.
constexpr std::string_view kGraph =
    "%0: f32[4] = input 0\n%1: f32[4] = exp %0\n%2: f32[2, 2] = reshape %1 {shape=[2, 2]}\n%3: f32[4] = neg %1\n%4: f32[4] = abs %3\n"
    "%5: f32[2, 2] = reshape %4 {shape=[2, 2]}\n%6: f32[2, 2] = add %5 %2\nreturn %6 %3\n";

Graph listed(const Graph& graph, std::vector<uint32_t> order) {
    PipelineOptions options;
    options.choose_plan = [&](const memory::RematProblem&) { return order; };
    return rematerialize(graph, options);
}

TEST_F(Rematerialize, WithoutAPlanTheGraphStaysAsItIs) {
    const Graph graph = parse_graph(kGraph);
    EXPECT_EQ(print(rematerialize(graph, {})), print(graph));
    EXPECT_EQ(print(run_pipeline(graph, {.opt_level = 0})), print(graph));
}

TEST_F(Rematerialize, WhatRunsTwiceGivesTheSameResults) {
    const Graph graph = parse_graph(kGraph);
    const Graph twice = listed(graph, {0, 1, 2, 0, 3});  // exp again for the view
    EXPECT_EQ(fault_of(twice), "");
    EXPECT_EQ(twice.nodes().size(), graph.nodes().size() + 1);
    const std::vector<TensorRef> inputs = {floats({4}, {0, 1, -2, 3})};
    const auto expected = interpret(graph, inputs), got = interpret(twice, inputs);
    for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(values_of(got[i]), values_of(expected[i]));
}

TEST_F(Rematerialize, AnOutputIsReadFromItsFirstCopy) {
    const Graph twice = listed(parse_graph(kGraph), {0, 1, 1, 2, 3});
    const Node& abs =
        twice.producer(twice.producer(twice.producer(twice.outputs[0]).inputs[0]).inputs[0]);
    EXPECT_EQ(abs.inputs[0], twice.outputs[1]) << print(twice);
}

TEST_F(Rematerialize, ASecondCopyOfAnOutputServesNobodyAndGoes) {
    const Graph graph = parse_graph(kGraph), twice = listed(graph, {0, 1, 1, 2, 3});
    EXPECT_EQ(dead_node(twice), nullptr);
    EXPECT_EQ(twice.nodes().size(), graph.nodes().size());
}

TEST_F(Rematerialize, ViewsAreWhatTheyView) {
    PipelineOptions options;
    options.choose_plan = [&](const memory::RematProblem& problem) {
        EXPECT_EQ(problem.steps.size(), 4u);  // exp, neg, abs, add
        EXPECT_EQ(problem.values.size(), 5u);  // and the input
        EXPECT_EQ(problem.steps[3].reads.size(), 2u);
        EXPECT_TRUE(problem.values[0].is_kept && problem.values[2].is_kept &&
                    problem.values[4].is_kept);
        return std::vector<uint32_t>{0, 1, 2, 3};
    };
    rematerialize(parse_graph(kGraph), options);
}

// A kernel of exp and neg, a product and what reads the kernel's result again.
constexpr std::string_view kUnits =
    "%0: f32[4, 4] = input 0\n%1: f32[4, 4] = exp %0\n%2: f32[4, 4] = neg %1\n%3: f32[4, 4] = matmul %2 %2 {transpose_a=0, transpose_b=0}\n"
    "%4: f32[4, 4] = matmul %3 %2 {transpose_a=0, transpose_b=0}\nreturn %4\n";

TEST_F(Rematerialize, KernelsRunAgainAsTheyAre) {
    const Graph graph = parse_graph(kUnits);
    size_t steps = 0;
    const PipelineOptions options{.opt_level = 3,
                                  .choose_units = [&](const memory::RematProblem& problem) {
        steps = problem.steps.size();
        EXPECT_TRUE(problem.steps[0].repeatable);
        EXPECT_TRUE(problem.values.back().is_kept);
        return std::vector<uint32_t>{0, 1, 0, 2};
    }};
    const Graph twice = run_pipeline(graph, options);
    EXPECT_EQ(steps, 3u);
    EXPECT_EQ(fault_of(twice), "");
    std::vector<std::string> kernels;
    for (const Node& node : twice.nodes())
        if (node.kind == NodeKind::fused) kernels.push_back(codegen::print(node.kernel->kernel));
    ASSERT_EQ(kernels.size(), 2u) << print(twice);
    EXPECT_EQ(kernels[0], kernels[1]);
    const std::vector<TensorRef> inputs = {
        floats({4, 4}, {0, 1, 2, 3, 0, -1, -2, -3, 1, 1, 2, 2, 0, 0, 1, -1})};
    EXPECT_EQ(values_of(interpret(twice, inputs)[0]),
              values_of(interpret(run_pipeline(graph, {.opt_level = 3}), inputs)[0]));
}

// To the plan of a stage softmax is one op as recorded, behind expansion its parts, behind fuse a
// kernel.
TEST_F(Rematerialize, EachStageHasAPlanOfItsOwn) {
    const Graph graph = parse_graph(
        "%0: f32[4, 4] = input 0\n%1: f32[4, 4] = softmax %0 {axis=1}\n%2: f32[4, 4] = matmul %1 %1 {transpose_a=0, transpose_b=0}\nreturn %2\n");
    std::vector<size_t> steps;
    const auto choose = [&](const memory::RematProblem& problem) {
        steps.push_back(problem.steps.size());
        return std::vector<uint32_t>{};
    };
    run_pipeline(
        graph,
        {.opt_level = 3, .choose_whole = choose, .choose_plan = choose, .choose_units = choose});
    ASSERT_EQ(steps.size(), 3u);
    EXPECT_EQ(steps[0], 2u);
    EXPECT_GT(steps[1], 2u);
    EXPECT_EQ(steps[2], 2u);
}

TEST_F(Rematerialize, AGraphThatAnOpHoldsHasNoPlan) {
    const Graph graph = parse_graph(R"(%0: bool[] = input 0
%1: f32[2] = input 1
%2: f32[2] = cond %0 %1 {if_true=graph, if_false=graph}
  | %0: f32[2] = input 0
  | %1: f32[2] = exp %0
  | %2: f32[2] = neg %1
  | return %2
  | %0: f32[2] = input 0
  | return %0
return %2
)");
    for (const int level : {2, 3}) {
        size_t asked = 0;
        const auto choose = [&](const memory::RematProblem& problem) {
            EXPECT_EQ(problem.steps.size(), 1u);
            ++asked;
            return std::vector<uint32_t>{};
        };
        run_pipeline(graph, {.opt_level = level,
                             .choose_whole = choose,
                             .choose_plan = choose,
                             .choose_units = choose});
        EXPECT_EQ(asked, 2u) << level;  // no kernel is made: there are no units
    }
}

TEST_F(Rematerialize, AMarkToKeepIsOneOfTheKernelToo) {
    Graph graph = parse_graph(kUnits);
    Rewriter rewrite(graph);
    for (Node node : graph.nodes()) {
        node.marks.stays = node.op && node.op->name == "exp";
        rewrite.copy(node);
    }
    bool is_asked = false;
    PipelineOptions options{.opt_level = 3,
                            .choose_units = [&](const memory::RematProblem& problem) {
        is_asked = true;
        EXPECT_TRUE(problem.values[problem.steps[0].writes[0]].must_stay);
        EXPECT_FALSE(problem.values[problem.steps[1].writes[0]].must_stay);
        return std::vector<uint32_t>{};
    }};
    run_pipeline(rewrite.finish(), options);
    EXPECT_TRUE(is_asked);
}

}}  // namespace megjit::jit
