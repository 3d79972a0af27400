// Gradients of tables of words as few rows of sums and a map, and kernels that read them by it.
#include "jit/plan/passes/map_rows.h"

#include "jit/plan/failure_rule.h"
#include "jit/plan/known_places.h"
#include "jit/plan/passes/passes.h"
#include "runtime/ops/known.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using MapRows = World;

// A text of six words, which were read before, out of a table of 4,096; the update has one op.
constexpr std::string_view kWordUpdate =
    "%0: f32[4096, 64] = input 0\n%1: i32[2, 3] = input 1\n%2: f32[] = input 2\n"
    "%3: f32[2, 3, 64] = index_get %0 %1 {axes=[0]}\n"
    "%4: f32[4096, 64] = full {shape=[4096, 64], value=0.0, dtype=\"float32\"}\n"
    "%5: f32[4096, 64] = index_add %4 %3 %1 {axes=[0]}\n"
    "%6: f32[4096, 64] = fma3 %5 %2 %0\nreturn %6\n";

std::string updated(std::string_view part, std::string_view by,
                    std::string text = std::string(kWordUpdate)) {
    return replaced(part, by, std::move(text));
}

Graph mapped(std::string_view text) {
    Graph graph = map_rows(parse_graph(text));
    EXPECT_EQ(fault_of(graph), "");
    return graph;
}

std::vector<TensorRef> words_for(const Graph& graph, std::initializer_list<int32_t> words) {
    std::vector<TensorRef> inputs = inputs_for(graph);
    std::copy(words.begin(), words.end(), inputs[1]->as<int32_t>());
    return inputs;
}

TEST_F(MapRows, AKernelReadsTheSumsByAMap) {
    const Graph graph = parse_graph(kWordUpdate), result = fuse(mapped(kWordUpdate));
    EXPECT_EQ(fault_of(result), "");
    EXPECT_EQ(kernels_in(result), 1u) << print(result);
    for (const Node& node : result.nodes()) {
        if (node.kind == NodeKind::fused) {
            EXPECT_TRUE(contains(print(node.kernel->kernel), " by ")) << print(result);
        } else if (node.op == &ops::index_add()) {
            EXPECT_EQ(result.type(node.outputs[0]).shape[0], 7);
        }
    }
    // Each word once, one several times, from the end, and the last row.
    for (const auto words : {std::initializer_list<int32_t>{0, 1, 2, 3, 4, 5},
                             {9, 9, 9, 9, 9, 9},
                             {-1, 4095, -4096, 0, 7, -4089}}) {
        const std::vector<TensorRef> inputs = words_for(graph, words);
        EXPECT_EQ(values_of(interpret(graph, inputs)[0]), values_of(interpret(result, inputs)[0]));
    }
}

TEST_F(MapRows, WhatIsAddedToTheSumsIsReadInTheSameKernel) {
    const std::string tied =
        updated("%6: f32[4096, 64] = fma3 %5 %2 %0\nreturn %6\n",
                "%6: f32[4096, 64] = add %0 %5\n%7: f32[4096, 64] = square %6\nreturn %7\n");
    const Graph result = fuse(mapped(tied));
    EXPECT_EQ(kernels_in(result), 1u) << print(result);
    const std::vector<TensorRef> inputs = words_for(result, {3, 4, 3, -1, 4, 3});
    EXPECT_EQ(values_of(interpret(parse_graph(tied), inputs)[0]),
              values_of(interpret(result, inputs)[0]));
}

// The sums are added to another table, begin at no zeros, have other readers, are as many as the
// table has rows, of short rows, or save less time than launches take.
TEST_F(MapRows, OtherSumsStayTables) {
    const auto stays = [](const std::string& text) {
        EXPECT_EQ(print(mapped(text)), print(parse_graph(text)));
    };
    stays(
        updated("index_add %4", "index_add %0",
                updated("%4: f32[4096, 64] = full {shape=[4096, 64], value=0.0, dtype=\"float32\"}",
                        "%4: f32[] = neg %2", updated("%5 %2 %0", "%5 %4 %0"))));
    for (const std::string_view value : {"value=1", "value=-0.0"})
        stays(updated("value=0.0", value));
    stays(updated("return %6", "return %6 %5"));
    stays(updated("return %6", "%7: f32[64] = reduce_sum %5 {axes=[0], keepdims=0}\nreturn %6 %7"));
    stays(updated("[2, 3", "[2, 2500"));
    stays(updated("64]", "8]"));
    stays(updated("4096", "64"));
}

// The user is told which op found a wrong place.
TEST_F(MapRows, PlacesThatMayBeWrongAreFoundByTheUsersOp) {
    const std::string text = updated("index_get %0 %1 {axes=[0]}", "input 3");
    EXPECT_EQ(print(mapped(text)), print(parse_graph(text)));
}

TEST_F(MapRows, PlacesOfTheMapNeverFail) {
    const Graph graph = mapped(kWordUpdate);
    FirstFailures failures(graph);
    size_t count = 0;
    for (const Node& node : graph.nodes()) count += failures.may_be(node);
    EXPECT_EQ(count, 1u);  // the user's index_get
}

TEST_F(MapRows, PlacesAreKnownWithinWhatMakesThem) {
    const Graph graph = parse_graph(
        "%0: i32[5] = input 0\n%1: i32[5] = coordinates {shape=[5], axis=0}\n"
        "%2: i32[9] = full {shape=[9], value=7.0, dtype=\"int32\"}\n"
        "%3: i32[9] = index_set %2 %1 %0 {axes=[0]}\n%4: i32[5] = index_get %3 %0 {axes=[0]}\n"
        "%5: i32[9] = index_set %2 %0 %0 {axes=[0]}\n%6: i32[9, 1] = reshape %3 {shape=[9, 1]}\n"
        "%7: i32[9] = full {shape=[9], value=-1.0, dtype=\"int32\"}\n"
        "return %1 %2 %3 %4 %5 %6 %7 %0\n");
    const auto least = [&](size_t k) {
        for (int64_t extent = 1; extent < 20; ++extent)
            if (are_known_places(graph, graph.outputs[k], extent)) return extent;
        return int64_t{0};
    };
    const std::vector<int64_t> expected{5, 8, 8, 0, 0, 8, 0, 0};
    for (size_t k = 0; k < expected.size(); ++k) EXPECT_EQ(least(k), expected[k]) << k;
}

}}  // namespace megjit::jit
