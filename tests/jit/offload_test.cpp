// Values that wait in the host's memory.
#include <gtest/gtest.h>

#include "jit/plan/pipeline.h"
#include "jit/run/program.h"
#include "jit/step/host_copy.h"
#include "memory/rematerialize.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

class Offload : public World {
protected:
    // exp is read at once and, through a view, in backward, which neg begins.
    static Graph training(bool is_marked) {
        const Graph graph = parse_graph(
            "%0: f32[1048576] = input 0\n%1: f32[1048576] = exp %0\n%2: f32[1024, 1024] = reshape %1 {shape=[1024, 1024]}\n%3: f32[1024, 1024] = sin %2\n"
            "%4: f32[2048, 1024] = concat %3 %3 {axis=0}\n%5: f32[2048, 1024] = neg %4\n%6: f32[1024, 1024] = slice %5 {begin=[0, 0], end=[2048, 1024], step=[2, 1]}\n"
            "%7: f32[1024, 1024] = mul %2 %6\n%8: f32[1024, 1024] = transpose %7 {perm=[1, 0]}\nreturn %8\n");
        Rewriter rewriter(graph);
        for (Node node : graph.nodes()) {
            node.marks.is_offloaded = is_marked && node.op && node.op->name == "reshape";
            node.role.is_backward = at(node.outputs[0]) >= 5;
            rewriter.copy(node);
        }
        return rewriter.finish();
    }

    void SetUp() override {
        if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    }
    static runtime::Device& card() { return runtime::find_device("gpu0:0"); }

    static Graph prepared(Graph graph, runtime::Device& device) {
        graph.set_device(device);
        return run_pipeline(graph, {.opt_level = 0, .device = &device});
    }
};

TEST_F(Offload, WhatTheLinkCouldNotStoreInTimeStays) {
    EXPECT_EQ(print(prepared(training(true), card())), print(prepared(training(false), card())));
}

// exp of 1 MiB waits on the host while products are computed, forth and back; between them
// softmax needs more memory than anything else.
class Products : public Offload {
protected:
    // More than a product with its scratch memory.
    static ValueId repeated(Graph& graph, ValueId y) {
        const Type type{.shape = {16 * 512, 512}};
        const ValueId all = graph.add({.op = &runtime::find_op("concat"),
                                       .attrs = {int64_t{0}},
                                       .inputs = std::vector<ValueId>(16, y)},
                                      {&type, 1})[0];
        return graph.add(
            {.op = &runtime::find_op("softmax"), .attrs = {int64_t{1}}, .inputs = {all}},
            {&type, 1})[0];
    }
    static ValueId first(Graph& graph, ValueId y) {
        using Ints = std::vector<int64_t>;
        const Type type{.shape = {512, 512}};
        return graph.add({.op = &runtime::find_op("slice"),
                          .attrs = {Ints{0, 0}, Ints{512, 512}, Ints{1, 1}},
                          .inputs = {y}},
                         {&type, 1})[0];
    }
    static Graph training(bool is_marked, const PipelineOptions& options = {.opt_level = 0}) {
        constexpr int kProducts = 40;
        Graph graph;
        graph.set_device(card());
        const Type type{.shape = {512, 512}};
        const auto add = [&](const char* op, std::vector<ValueId> inputs, runtime::Attrs attrs,
                             bool is_backward) {
            Node node{.op = &runtime::find_op(op), .attrs = attrs, .inputs = std::move(inputs)};
            node.marks.is_offloaded = is_marked && std::string_view(op) == "exp";
            node.role.is_backward = is_backward;
            return graph.add(std::move(node), {&type, 1})[0];
        };
        const ValueId x = graph.add_input(type, 0);
        const ValueId kept = add("exp", {x}, {}, false);
        ValueId y = add("sin", {kept}, {}, false);
        for (int i = 0; i < 2 * kProducts; ++i) {
            if (i == kProducts) y = first(graph, repeated(graph, y));
            y = add("matmul", {y, x}, {int64_t{0}, int64_t{0}}, i >= kProducts);
        }
        graph.outputs = {add("mul", {y, kept}, {}, true)};
        PipelineOptions passes = options;
        passes.device = &card();
        return run_pipeline(graph, passes);
    }
};

TEST_F(Products, TheirMemoryServesMeanwhile) {
    const Graph plain = training(false), marked = training(true);
    EXPECT_EQ(plan_of(marked, {marked}, {}).peak_live_bytes + (size_t{1} << 20),
              plan_of(plain, {plain}, {}).peak_live_bytes);
}

TEST_F(Products, ToTheSearchTheCopyOnTheHostTakesNoMemory) {
    size_t marked = 0, plain = 0;
    const auto peak = [](size_t& bytes) {
        return PipelineOptions{.opt_level = 0,
                               .choose_plan = [&bytes](const memory::RematProblem& problem) {
            bytes = memory::plain_plan(problem).peak_bytes;
            return std::vector<uint32_t>{};
        }};
    };
    training(false, peak(plain));
    training(true, peak(marked));
    EXPECT_EQ(marked + (size_t{1} << 20), plain);
}

TEST_F(Products, AreTransferredOnce) {
    const Graph graph = training(true);
    const MemoryPlan plan = plan_of(graph, {graph}, {});
    EXPECT_EQ(plan.host_bytes, size_t{1} << 20);
    EXPECT_EQ(plan.transferred_bytes, size_t{2} << 20);
}

TEST_F(Products, TransfersRunBesideThem) {
    const PreparedGraph prepared = prepare_to_plan(training(true), std::nullopt);
    const ProgramLayout layout = lay_out(prepared, plan_buffers(prepared, {}, true));
    std::vector<size_t> transfers, waits;
    for (size_t i = 0; i < layout.steps.size(); ++i) {
        if (layout.steps[i].is_transfer) transfers.push_back(i);
        if (layout.steps[i].waits_for != memory::kNone) waits.push_back(i);
    }
    ASSERT_EQ(transfers.size(), 2u);
    ASSERT_EQ(waits.size(), 2u);  // who writes over what was stored, and who reads what came back
    EXPECT_GE(waits[0], transfers[0] + 5);
    EXPECT_GE(waits[1], transfers[1] + 5);
    EXPECT_EQ(waits[1] + 1, layout.steps.size());
}

TEST_F(Products, GiveTheSameBits) {
    std::vector<float> numbers(512 * 512);
    for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<float>(i % 97) / 97 / 256;  // rows sum up to about 1
    std::vector<std::vector<float>> results;
    for (const bool is_marked : {false, true, true, true}) {
        const Graph graph = training(is_marked);
        Program program(graph, {graph}, {});
        std::vector<TensorRef> inputs = {
            runtime::tensor_from_host(card(), {.shape = {512, 512}}, numbers.data())};
        results.push_back(values_of(program.run(inputs)[0]));
    }
    for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]);
}

// What is cheap is computed again from what comes back: of a product that waits on the host,
// neither it nor its relu stays.
TEST_F(Offload, WhatIsCheapIsComputedFromWhatComesBack) {
    const auto training = [] {
        Graph graph;
        graph.set_device(card());
        const Type type{.shape = {512, 512}};
        const auto add = [&](const char* op, std::vector<ValueId> inputs, runtime::Attrs attrs,
                             bool is_backward, bool is_offloaded = false) {
            Node node{.op = &runtime::find_op(op), .attrs = attrs, .inputs = std::move(inputs)};
            node.marks.is_offloaded = is_offloaded;
            node.role.is_backward = is_backward;
            return graph.add(std::move(node), {&type, 1})[0];
        };
        const runtime::Attrs plain{int64_t{0}, int64_t{0}};
        const ValueId x = graph.add_input(type, 0);
        const ValueId product = add("matmul", {x, x}, plain, false, true);
        const ValueId kept = add("relu", {product}, {}, false);
        ValueId y = add("matmul", {kept, x}, plain, false);
        for (int i = 0; i < 80; ++i) y = add("matmul", {y, x}, plain, i >= 40);
        graph.outputs = {add("mul", {add("mul", {y, kept}, {}, true), product}, {}, true)};
        return run_pipeline(graph, {.opt_level = 3, .device = &card()});
    };
    const Graph graph = training();
    const Node& last = graph.producer(graph.outputs[0]);
    ASSERT_EQ(last.inputs.size(), 2u);
    EXPECT_EQ(graph.producer(last.inputs[0]).op, &from_host());
    EXPECT_TRUE(graph.producer(last.inputs[1]).role.is_backward);
}

TEST_F(Offload, WhereTheMemoryIsTheHostsNothingChanges) {
    runtime::Device& cpu = runtime::host_device();
    EXPECT_EQ(print(prepared(training(true), cpu)), print(prepared(training(false), cpu)));
}

TEST_F(Offload, ResultsAndWhatForwardAloneReadsStay) {
    Graph graph = training(true);
    graph.outputs.push_back(graph.nodes()[1].outputs[0]);
    EXPECT_EQ(prepared(graph, card()).value_count(), graph.value_count());
}
}}  // namespace megjit::jit
