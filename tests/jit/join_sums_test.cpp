#include "jit/plan/passes/passes.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using JoinSums = World;

// Gradients of a layer's bias, cast, and of its weights, by a gradient of more axes.
constexpr std::string_view kGradients =
    "%0: f16[2, 4, 8] = input 0\n%1: f16[8, 16] = input 1\n"
    "%2: f16[8] = reduce_sum %0 {axes=[0, 1], keepdims=0}\n%3: f32[8] = cast %2 {dtype=\"float32\"}\n"
    "%4: f16[8, 8] = reshape %0 {shape=[8, 8]}\n"
    "%5: f16[8, 16] = matmul %4 %1 {transpose_a=1, transpose_b=0}\nreturn %3 %5\n";

Graph with_joint_sums(std::string_view text) {
    Graph graph = join_sums(on_card(text));
    EXPECT_EQ(fault_of(graph), "");
    return graph;
}

std::string with_replaced(std::string_view part, std::string_view by) {
    std::string text(kGradients);
    return text.replace(text.find(part), part.size(), by);
}

TEST_F(JoinSums, AHostKeepsBoth) {
    EXPECT_EQ(print(join_sums(parse_graph(kGradients))), kGradients);
}

TEST_F(JoinSums, AProductOnAGpuGivesTheSums) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const Graph graph = with_joint_sums(kGradients);
    EXPECT_EQ(count(graph, "matmul_sums"), 1u) << print(graph);
    EXPECT_EQ(count(graph, "reduce_sum"), 0u);
}

TEST_F(JoinSums, SumsOfOtherAxesStay) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    EXPECT_EQ(
        count(with_joint_sums(with_replaced("transpose_a=1", "transpose_a=0")), "matmul_sums"), 0u);
    EXPECT_EQ(count(with_joint_sums(with_replaced("f16[2, 4, 8]", "f16[1, 8, 8]")), "matmul_sums"),
              1u);
}

// %1 is computed behind the sum, from it.
TEST_F(JoinSums, AProductOfWhatTheSumGivesStays) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const Graph graph = with_joint_sums(
        "%0: f16[8, 8] = input 0\n%1: f16[8] = reduce_sum %0 {axes=[0], keepdims=0}\n"
        "%2: f16[8, 8] = add %0 %1\n%3: f16[8, 8] = matmul %0 %2 {transpose_a=1, transpose_b=0}\nreturn %3\n");
    EXPECT_EQ(count(graph, "matmul_sums"), 0u);
    EXPECT_EQ(count(graph, "reduce_sum"), 1u);
}

}}  // namespace megjit::jit
