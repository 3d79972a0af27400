// Equal kernels in a row become one step.
#include "jit/plan/passes/passes.h"
#include "jit/run/program.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

using Batch = World;

// Three parameters of different sizes, each updated by p - 0.5 * g twice rounded.
constexpr std::string_view kUpdates =
    "%0: f32[4] = input 0\n%1: f32[4] = input 1\n%2: f32[2, 3] = input 2\n%3: f32[2, 3] = input 3\n%4: f32[1] = input 4\n%5: f32[1] = input 5\n"
    "%6: f32[] = const 0.5\n%7: f32[4] = mul %1 %6\n%8: f32[4] = sub %0 %7\n%9: f32[2, 3] = mul %3 %6\n%10: f32[2, 3] = sub %2 %9\n"
    "%11: f32[1] = mul %5 %6\n%12: f32[1] = sub %4 %11\nreturn %8 %10 %12\n";

size_t steps_in(const Graph& graph) {
    size_t count = 0;
    for (const Node& node : graph.nodes())
        count += node.kind == NodeKind::fused || node.kind == NodeKind::op;
    return count;
}

TEST_F(Batch, AllUpdatesAreOneStep) {
    const Graph graph = batch(fuse(parse_graph(kUpdates)));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(steps_in(graph), 1u) << print(graph);
    EXPECT_EQ(launches_of(graph.nodes().back()).size(), 3u);
    EXPECT_EQ(print(parse_graph(print(graph))), print(graph));
    const std::vector<TensorRef> inputs = {floats({4}, {1, 2, 3, 4}),
                                           floats({4}, {2, 2, 2, 2}),
                                           floats({2, 3}, {1, 1, 1, 1, 1, 1}),
                                           floats({2, 3}, {0, 2, 4, 6, 8, 10}),
                                           floats({1}, {7}),
                                           floats({1}, {14})};
    const auto got = interpret(graph, inputs);
    EXPECT_EQ(values_of(got[0]), (std::vector<float>{0, 1, 2, 3}));
    EXPECT_EQ(values_of(got[1]), (std::vector<float>{1, 0, -1, -2, -3, -4}));
    EXPECT_EQ(values_of(got[2]), (std::vector<float>{0}));
}

TEST_F(Batch, ADependentKernelComesAfterIt) {
    const Graph graph = batch(fuse(parse_graph(
        "%0: f32[4, 4] = input 0\n%1: f32[4, 4] = neg %0\n%2: f32[4, 4] = abs %1\n%3: f32[16] = reshape %2 {shape=[16]}\n"
        "%4: f32[16] = neg %3\n%5: f32[16] = abs %4\nreturn %5\n")));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(steps_in(graph), 3u) << print(graph);
}

TEST_F(Batch, NothingIsDelayedPastAnotherOp) {
    const Graph graph = batch(fuse(parse_graph(
        "%0: f32[4, 4] = input 0\n%1: f32[4, 4] = neg %0\n%2: f32[4, 4] = abs %1\n%3: f32[4, 4] = matmul %0 %0 {transpose_a=0, transpose_b=0}\n"
        "%4: f32[4, 4] = neg %3\n%5: f32[4, 4] = abs %4\nreturn %2 %5\n")));
    EXPECT_EQ(steps_in(graph), 3u) << print(graph);
}

// One of the two steps is the product.
TEST_F(Batch, OnAGpuKernelsOfFewBytesWaitForEachOther) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const auto steps = [](const std::string& text) {
        const Graph graph = batch(fuse(on_card(text)));
        EXPECT_EQ(fault_of(graph), "");
        return steps_in(graph);
    };
    const std::string two_updates =
        "%0: f32[8, 8] = input 0\n%1: f32[8] = input 1\n%2: f32[8] = input 2\n%3: f32[8] = neg %1\n%4: f32[8] = abs %3\n"
        "%5: f32[8, 8] = matmul %0 %0 {transpose_a=0, transpose_b=0}\n%6: f32[8] = neg %2\n%7: f32[8] = abs %6\nreturn %4 %5 %7\n";
    EXPECT_EQ(steps(two_updates), 2u);
    // The larger kernel, which the product reads, is the third step.
    EXPECT_EQ(
        steps(
            "%0: f32[512, 512] = input 0\n%1: f32[8] = input 1\n%2: f32[8] = input 2\n%3: f32[8] = neg %1\n%4: f32[8] = abs %3\n"
            "%5: f32[512, 512] = exp %0\n%6: f32[512, 512] = neg %5\n%7: f32[512, 512] = matmul %6 %6 {transpose_a=0, transpose_b=0}\n"
            "%8: f32[8] = neg %2\n%9: f32[8] = abs %8\nreturn %4 %7 %9\n"),
        3u);
}

// Two products of halves whose weights are cast, the first of which is read again at the end.
TEST_F(Batch, OnAGpuCastsOfInputsAreOneStep) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const Graph graph = batch(gather_casts(on_card(
        "%0: f16[8, 8] = input 0\n%1: f32[8, 8] = input 1\n%2: f16[8, 8] = cast %1 {dtype=\"float16\"}\n"
        "%3: f16[8, 8] = matmul %0 %2 {transpose_a=0, transpose_b=0}\n%4: f32[8, 16] = input 2\n"
        "%5: f16[8, 16] = cast %4 {dtype=\"float16\"}\n%6: f16[8, 16] = matmul %3 %5 {transpose_a=0, transpose_b=0}\nreturn %6\n")));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(steps_in(graph), 3u) << print(graph);
}

TEST_F(Batch, ALargeCastThatEndsBeforeTheLastOneStays) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const Graph graph = gather_casts(on_card(
        "%0: f16[8, 256] = input 0\n%1: f32[256, 256] = input 1\n%2: f16[256, 256] = cast %1 {dtype=\"float16\"}\n"
        "%3: f16[8, 256] = matmul %0 %2 {transpose_a=0, transpose_b=0}\n%4: f32[256, 256] = input 2\n"
        "%5: f16[256, 256] = cast %4 {dtype=\"float16\"}\n%6: f16[8, 256] = matmul %3 %5 {transpose_a=0, transpose_b=0}\nreturn %6\n"));
    for (const Node& node : graph.nodes()) EXPECT_NE(node.kind, NodeKind::fused) << print(graph);
}

}}  // namespace megjit::jit
