#include "jit/plan/passes/passes.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using AlignRows = World;

// Logits of 301 words, and what their gradient gives: of the rows, and of the table.
constexpr std::string_view kHead =
    "%0: f16[256, 256] = input 0\n%1: f16[301, 256] = input 1\n%2: f16[2, 128, 301] = input 2\n"
    "%3: f16[256, 301] = matmul %0 %1 {transpose_a=0, transpose_b=1}\n"
    "%4: f16[2, 128, 256] = matmul %2 %1 {transpose_a=0, transpose_b=0}\n"
    "%5: f16[256, 301] = reshape %2 {shape=[256, 301]}\n"
    "%6: f16[301, 256] = matmul %5 %0 {transpose_a=1, transpose_b=0}\nreturn %3 %4 %6\n";

Graph aligned(std::string_view text) {
    Graph graph = align_rows(on_card(text));
    EXPECT_EQ(fault_of(graph), "");
    return graph;
}

TEST_F(AlignRows, AHostTakesRowsAsTheyAre) {
    EXPECT_EQ(print(align_rows(parse_graph(kHead))), kHead);
}

TEST_F(AlignRows, ProductsShareLargerFactors) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const Graph graph = aligned(kHead);
    EXPECT_EQ(count(graph, "concat"), 2u) << print(graph);
    EXPECT_EQ(count(graph, "slice"), 2u);
    for (const Node& node : graph.nodes()) {
        if (node.op != &ops::matmul()) continue;
        for (const Type& type : graph.types(node.inputs))
            EXPECT_EQ(type.shape[type.rank() - 1] % 8, 0);
    }
}

// The logits' gradient is computed with zeros behind its rows; the table, an input, gets a copy.
TEST_F(AlignRows, WhatIsMadeOfALargerProductIsNotCopied) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const Graph graph = aligned(
        "%0: f16[256, 256] = input 0\n%1: f16[301, 256] = input 1\n%2: f16[256, 1] = input 2\n"
        "%3: f16[256, 301] = matmul %0 %1 {transpose_a=0, transpose_b=1}\n"
        "%4: f16[256, 301] = exp %3\n%5: f16[256, 301] = sub %4 %2\n"
        "%6: f16[2, 128, 301] = reshape %5 {shape=[2, 128, 301]}\n"
        "%7: f16[2, 128, 256] = matmul %6 %1 {transpose_a=0, transpose_b=0}\nreturn %7\n");
    EXPECT_EQ(count(graph, "concat"), 1u) << print(graph);
    EXPECT_EQ(count(graph, "where"), 1u);
}

TEST_F(AlignRows, FewProductsAnElementAreNotWorthACopy) {
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const Graph graph = aligned(
        "%0: f16[16, 256] = input 0\n%1: f16[301, 256] = input 1\n"
        "%2: f16[16, 301] = matmul %0 %1 {transpose_a=0, transpose_b=1}\nreturn %2\n");
    EXPECT_EQ(count(graph, "concat"), 0u);
}

}}  // namespace megjit::jit
