// Where a graph begins what it exchanges with other processes, and where a program runs it.
#include <gtest/gtest.h>

#include <thread>

#include "jit/plan/pipeline.h"
#include "jit/run/program.h"
#include "tests/jit/graphs.h"
#include "tests/jit/twins.h"

namespace megjit::jit { namespace {

class Exchanges : public World {
protected:
    static Graph after(std::string_view text) {
        Graph graph = begin_exchanges(parse_graph(text));
        EXPECT_EQ(fault_of(graph), "");
        return graph;
    }
    static ProgramLayout layout_of(const Graph& graph, const std::vector<bool>& released = {}) {
        const PreparedGraph prepared = prepare_to_plan(graph, std::nullopt);
        return lay_out(prepared, plan_buffers(prepared, step_of(graph, released), true));
    }
    // "neg exp* sin<2": an exchange that runs beside the others, a step that waits for step 2.
    static std::string steps_of(const Graph& graph, const ProgramLayout& layout) {
        std::vector<const Node*> nodes;
        for (const Node& node : graph.nodes())
            if (node.kind == NodeKind::op) nodes.push_back(&node);
        std::string text;
        for (const ProgramLayout::Step& step : layout.steps) {
            text += (text.empty() ? "" : " ") + nodes[step.node]->op->name;
            if (step.is_transfer) text += "*";
            if (step.waits_for != memory::kNone) text += "<" + std::to_string(step.waits_for);
        }
        return text;
    }
};

TEST_F(Exchanges, AnExchangeBeginsAsSoonAsItsOperandsAreThereAndKeepsItsTurn) {
    const Graph graph = after(
        "%0: f32[4] = input 0\n%1: f32[4] = exp %0\n%2: f32[4] = neg %0\n%3: f32[4] = sin %1\n"
        "%4: f32[4], %5: f32[] = all_reduce_sum %2 {group=\"0,1\"}\n"
        "%6: f32[4], %7: f32[] = all_reduce_max %1 %5 {group=\"0,1\"}\n"
        "%8: f32[4] = add %4 %6\n%9: f32[4] = add %8 %3\nreturn %9\n");
    std::string order;
    for (const Node& node : graph.nodes())
        if (node.op) order += node.op->name + " ";
    EXPECT_EQ(order, "exp neg all_reduce_sum all_reduce_max sin add add ");
}

// ---- in a program

constexpr std::string_view kOverlap =
    "%0: f32[64] = input 0\n%1: f32[64] = input 1\n%2: f32[64] = input 2\n"
    "%3: f32[64] = exp %0\n%4: f32[64] = sin %3\n%5: f32[64] = neg %4\n"
    "%6: f32[64], %7: f32[] = all_reduce_sum %3 {group=\"0,1\"}\n"
    "%8: f32[64], %9: f32[] = all_reduce_max %4 %7 {group=\"0,1\"}\n"
    "%10: f32[64] = add %1 %5\n%11: f32[64] = add %2 %6\n%12: f32[64] = mul %11 %8\n"
    "return %10 %12\n";

TEST_F(Exchanges, StepsRunBesideAnExchangeUntilOneReadsIt) {
    const Graph graph = after(kOverlap);
    EXPECT_EQ(steps_of(graph, layout_of(graph)),
              "exp all_reduce_sum* sin all_reduce_max* neg add add<1 mul<3");
}

// An exchange may fail: until all are over no step lies over what the caller gave away.
TEST_F(Exchanges, WhoOverwritesAnInputWaitsForAll) {
    const Graph graph = after(kOverlap);
    EXPECT_EQ(steps_of(graph, layout_of(graph, {false, true, true})),
              "exp all_reduce_sum* sin all_reduce_max* neg add<3 add mul");
}

TEST_F(Exchanges, WhatIsWaitedForAtOnceRunsOnTheThreadThatWaits) {
    const Graph graph = after(
        "%0: f32[64] = input 0\n%1: f32[64] = exp %0\n"
        "%2: f32[64], %3: f32[] = all_reduce_sum %1 {group=\"0,1\"}\n"
        "%4: f32[64], %5: f32[] = all_reduce_max %2 %3 {group=\"0,1\"}\n%6: f32[64] = neg %4\n"
        "return %6\n");
    EXPECT_EQ(steps_of(graph, layout_of(graph)), "exp all_reduce_sum all_reduce_max neg");
}

TEST_F(Exchanges, AProgramExchangesOnAThreadOfItsOwnAndInOrder) {
    const auto twins = std::make_shared<Twins>();
    runtime::set_communicator("0,1", twins);
    const Graph graph = parse_graph(kOverlap), early = after(kOverlap);
    std::vector<TensorRef> inputs = inputs_for(graph);
    const std::vector<TensorRef> expected = interpret(graph, inputs);
    twins->threads.clear();
    Program program(early, {graph}, {.check = true});
    for (int run = 0; run < 3; ++run) {
        const std::vector<TensorRef> outputs = program.run(inputs);
        for (size_t i = 0; i < outputs.size(); ++i)
            EXPECT_EQ(values_of(outputs[i]), values_of(expected[i]));
    }
    ASSERT_EQ(twins->calls(), 6);
    EXPECT_NE(twins->threads[0], std::this_thread::get_id());
    runtime::set_communicator("0,1", nullptr);
}

// Which of them it is does not matter: what the caller gives away is as it was.
TEST_F(Exchanges, AfterAFailureInputsAreAsTheyWere) {
    const auto twins = std::make_shared<Twins>();
    runtime::set_communicator("0,1", twins);
    const Graph graph = after(kOverlap);
    Program program(graph, step_of(graph, {false, true, true}), {.check = true});
    const std::vector<TensorRef> originals = inputs_for(graph);
    std::vector<std::vector<float>> before;
    for (const TensorRef& input : originals) before.push_back(values_of(input));
    for (const int fails : {1, 2, 0}) {
        std::vector<TensorRef> inputs = inputs_for(graph);
        twins->threads.clear();
        twins->fails = fails;
        if (fails == 0) {
            program.run(inputs);  // the failures before it are over
            continue;
        }
        try {
            program.run(inputs);
            ADD_FAILURE() << "exchange " << fails << " failed in silence";
        } catch (const std::runtime_error& error) { EXPECT_STREQ(error.what(), "rank 1 is gone"); }
        for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(values_of(inputs[i]), before[i]);
    }
    runtime::set_communicator("0,1", nullptr);
}
}}  // namespace megjit::jit
