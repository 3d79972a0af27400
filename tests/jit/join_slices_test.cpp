#include "jit/plan/passes/passes.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using JoinSlices = World;

// Rows 0, 1 and 2 of a [3, 2] tensor, in the order in which a tape adds them.
constexpr std::string_view kRows =
    "%0: f32[1, 2] = input 0\n%1: f32[1, 2] = input 1\n%2: f32[1, 2] = input 2\n%3: f32[3, 2] = full {shape=[3, 2], value=0.0, dtype=\"float32\"}\n"
    "%4: f32[3, 2] = slice_set %3 %2 {begin=[2, 0], end=[3, 2], step=[1, 1]}\n%5: f32[3, 2] = slice_set %3 %1 {begin=[1, 0], end=[2, 2], step=[1, 1]}\n"
    "%6: f32[3, 2] = add %4 %5\n%7: f32[3, 2] = slice_set %3 %0 {begin=[0, 0], end=[1, 2], step=[1, 1]}\n%8: f32[3, 2] = add %6 %7\nreturn %8\n";

TEST_F(JoinSlices, PartsThatDoNotOverlapAreSetInOneTensor) {
    const Graph graph = join_slices(parse_graph(kRows));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(count(graph, "add"), 0u) << print(graph);
    EXPECT_EQ(count(graph, "full"), 1u) << print(graph);
    const std::vector<TensorRef> inputs = {floats({1, 2}, {1, 2}), floats({1, 2}, {3, 4}),
                                           floats({1, 2}, {5, 6})};
    EXPECT_EQ(values_of(interpret(graph, inputs)[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(JoinSlices, OverlappingPartsAreAdded) {
    std::string text(kRows);
    text.replace(text.find("begin=[1, 0], end=[2, 2]"), 24, "begin=[2, 0], end=[3, 2]");
    const Graph graph = join_slices(parse_graph(text));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_GE(count(graph, "add"), 1u) << print(graph);
    const std::vector<TensorRef> inputs = {floats({1, 2}, {1, 2}), floats({1, 2}, {3, 4}),
                                           floats({1, 2}, {5, 6})};
    EXPECT_EQ(values_of(interpret(graph, inputs)[0]), (std::vector<float>{1, 2, 0, 0, 8, 10}));
}

TEST_F(JoinSlices, APartThatSomebodyElseReadsStays) {
    std::string text(kRows);
    text.replace(text.find("return %8"), 9, "return %8 %4");
    const Graph graph = join_slices(parse_graph(text));
    EXPECT_EQ(fault_of(graph), "");
    const std::vector<TensorRef> inputs = {floats({1, 2}, {1, 2}), floats({1, 2}, {3, 4}),
                                           floats({1, 2}, {5, 6})};
    const auto got = interpret(graph, inputs);
    EXPECT_EQ(values_of(got[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(values_of(got[1]), (std::vector<float>{0, 0, 0, 0, 5, 6}));
}

}}  // namespace megjit::jit
