#include "jit/plan/passes/passes.h"

#include "codegen/expand_math.h"
#include "jit/plan/pipeline.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using FoldConstants = World;
using Dedup = World;
using DropDead = World;
using Simplify = World;
using Cancel = World;
using PickOperands = World;
using MaskPooled = World;
using TurnFactors = World;
using MoveViews = World;
using Fuse = World;
using Pipeline = World;

std::string after(Graph (*pass)(Graph), std::string_view text) {
    const Graph graph = pass(parse_graph(text));
    EXPECT_EQ(fault_of(graph), "");
    return print(graph);
}

TEST_F(FoldConstants, ReplacesTheSumOfTwoConstants) {
    EXPECT_EQ(after(fold_constants,
                    "%0: f32[] = const 2\n%1: f32[] = const 3\n%2: f32[] = add %0 %1\nreturn %2\n"),
              "%0: f32[] = const 5\nreturn %0\n");
}

TEST_F(FoldConstants, LeavesWhatDependsOnAnInput) {
    constexpr std::string_view text =
        "%0: f32[] = input 0\n%1: f32[] = const 3\n%2: f32[] = add %0 %1\nreturn %2\n";
    EXPECT_EQ(after(fold_constants, text), text);
}

TEST_F(Dedup, JoinsEqualNodes) {
    EXPECT_EQ(
        after(
            dedup,
            "%0: f32[2] = input 0\n%1: f32[2] = exp %0\n%2: f32[2] = exp %0\n%3: f32[2] = add %1 %2\nreturn %3\n"),
        "%0: f32[2] = input 0\n%1: f32[2] = exp %0\n%2: f32[2] = add %1 %1\nreturn %2\n");
}

TEST_F(Dedup, KeepsNodesWithOtherAttributesApart) {
    constexpr std::string_view text =
        "%0: f32[2, 3] = input 0\n%1: f32[6] = reshape %0 {shape=[6]}\n%2: f32[3, 2] = reshape %0 {shape=[3, 2]}\nreturn %1 %2\n";
    EXPECT_EQ(after(dedup, text), text);
}

TEST_F(DropDead, KeepsInputsButNotUnreadNodes) {
    EXPECT_EQ(
        after(
            drop_dead,
            "%0: f32[2] = input 0\n%1: f32[2] = input 1\n%2: f32[2] = exp %0\n%3: f32[2] = neg %0\nreturn %3\n"),
        "%0: f32[2] = input 0\n%1: f32[2] = input 1\n%2: f32[2] = neg %0\nreturn %2\n");
}

TEST_F(Simplify, MultiplyingByOneGoes) {
    EXPECT_EQ(
        after(simplify,
              "%0: f32[2] = input 0\n%1: f32[] = const 1\n%2: f32[2] = mul %0 %1\nreturn %2\n"),
        "%0: f32[2] = input 0\nreturn %0\n");
}

TEST_F(Simplify, TwoTranspositionsCancel) {
    EXPECT_EQ(
        after(
            simplify,
            "%0: f32[2, 3] = input 0\n%1: f32[3, 2] = transpose %0 {perm=[1, 0]}\n%2: f32[2, 3] = transpose %1 {perm=[1, 0]}\nreturn %2\n"),
        "%0: f32[2, 3] = input 0\nreturn %0\n");
}

TEST_F(TurnFactors, ProductsReadTransposedMatricesAsTheyLie) {
    EXPECT_EQ(
        after(
            turn_factors,
            "%0: f32[2, 3] = input 0\n%1: f32[2, 3] = input 1\n%2: f32[3, 2] = transpose %1 {perm=[1, 0]}\n%3: f32[2, 2] = matmul %0 %2 {transpose_a=0, transpose_b=0}\n%4: f32[3, 3] = matmul %2 %0 {transpose_a=0, transpose_b=0}\nreturn %3 %4\n"),
        "%0: f32[2, 3] = input 0\n%1: f32[2, 3] = input 1\n%2: f32[2, 2] = matmul %0 %1 {transpose_a=0, transpose_b=1}\n%3: f32[3, 3] = matmul %1 %0 {transpose_a=1, transpose_b=0}\nreturn %2 %3\n");
}

TEST_F(TurnFactors, BatchesMayBeMergedInBetween) {
    EXPECT_EQ(
        after(
            turn_factors,
            "%0: f32[4, 5, 3] = input 0\n%1: f32[2, 2, 6, 3] = input 1\n%2: f32[2, 2, 3, 6] = transpose %1 {perm=[0, 1, 3, 2]}\n%3: f32[4, 3, 6] = reshape %2 {shape=[4, 3, 6]}\n%4: f32[4, 5, 6] = matmul %0 %3 {transpose_a=0, transpose_b=0}\nreturn %4\n"),
        "%0: f32[4, 5, 3] = input 0\n%1: f32[2, 2, 6, 3] = input 1\n%2: f32[4, 6, 3] = reshape %1 {shape=[4, 6, 3]}\n%3: f32[4, 5, 6] = matmul %0 %2 {transpose_a=0, transpose_b=1}\nreturn %3\n");
}

TEST_F(TurnFactors, OtherAxesStay) {
    constexpr std::string_view text =
        "%0: f32[4, 5, 3] = input 0\n%1: f32[3, 4, 6] = input 1\n%2: f32[4, 3, 6] = transpose %1 {perm=[1, 0, 2]}\n%3: f32[4, 5, 6] = matmul %0 %2 {transpose_a=0, transpose_b=0}\nreturn %3\n";
    EXPECT_EQ(after(turn_factors, text), text);
}

TEST_F(Simplify, ASquareIsNoPower) {
    EXPECT_EQ(
        after(simplify,
              "%0: f32[2] = input 0\n%1: f32[] = const 2\n%2: f32[2] = pow %0 %1\nreturn %2\n"),
        "%0: f32[2] = input 0\n%1: f32[2] = square %0\nreturn %1\n");
}

TEST_F(Simplify, AHalfThatWentThroughFloat32IsCastFromWhatItWas) {
    EXPECT_EQ(
        after(
            simplify,
            "%0: bf16[2] = input 0\n%1: f32[2] = cast %0 {dtype=\"float32\"}\n%2: bf16[2] = cast %1 {dtype=\"bfloat16\"}\n%3: f16[2] = cast %1 {dtype=\"float16\"}\nreturn %2 %3\n"),
        "%0: bf16[2] = input 0\n%1: f16[2] = cast %0 {dtype=\"float16\"}\nreturn %0 %1\n");
    constexpr std::string_view rounds =
        "%0: f32[2] = input 0\n%1: bf16[2] = cast %0 {dtype=\"bfloat16\"}\n%2: f32[2] = cast %1 {dtype=\"float32\"}\nreturn %2\n";
    EXPECT_EQ(after(simplify, rounds), rounds);
}

TEST_F(Simplify, AnIdentityOfACastIsTheCast) {
    EXPECT_EQ(
        after(
            simplify,
            "%0: bf16[2] = input 0\n%1: f32[2] = cast %0 {dtype=\"float32\"}\n%2: f32[2] = identity %1\nreturn %2\n"),
        "%0: bf16[2] = input 0\n%1: f32[2] = cast %0 {dtype=\"float32\"}\nreturn %1\n");
}

TEST_F(Simplify, AScalarTimesOneThatBroadcastsStays) {
    constexpr std::string_view text =
        "%0: f32[] = input 0\n%1: f32[2] = const 1 1\n%2: f32[2] = mul %0 %1\nreturn %2\n";
    EXPECT_EQ(after(simplify, text), text);
}

TEST_F(Simplify, LeavesWhatHoldsInTheRealsAlone) {
    constexpr std::string_view text =
        "%0: f32[2] = input 0\n%1: f32[2] = true_div %0 %0\n%2: f32[2] = exp %1\n%3: f32[2] = log %2\nreturn %3\n";
    EXPECT_EQ(after(simplify, text), text);
}

TEST_F(Cancel, WhatIsDividedByItselfIsOneIfItIsWrittenTwiceToo) {
    EXPECT_EQ(
        after(
            cancel,
            "%0: f32[2] = input 0\n%1: f32[] = const 2\n%2: f32[2] = mul %0 %1\n%3: f32[2] = mul %0 %1\n%4: f32[2] = true_div %2 %3\nreturn %4\n"),
        "%0: f32[2] = input 0\n%1: f32[2] = full {shape=[2], value=1.0, dtype=\"float32\"}\nreturn %1\n");
}

TEST_F(Cancel, ExpAndLogCancel) {
    for (const char* text :
         {"%0: f32[2] = input 0\n%1: f32[2] = exp %0\n%2: f32[2] = log %1\nreturn %2\n",
          "%0: f32[2] = input 0\n%1: f32[2] = log %0\n%2: f32[2] = exp %1\nreturn %2\n"})
        EXPECT_EQ(after(cancel, text), "%0: f32[2] = input 0\nreturn %0\n");
}

TEST_F(Cancel, TheLogarithmOfTwoExponentialsIsComputedWithoutThem) {
    EXPECT_EQ(
        after(
            cancel,
            "%0: f32[2, 3] = input 0\n%1: f32[3] = input 1\n%2: f32[2, 3] = exp %0\n%3: f32[3] = exp %1\n%4: f32[2, 3] = add %2 %3\n%5: f32[2, 3] = log %4\nreturn %5\n"),
        "%0: f32[2, 3] = input 0\n%1: f32[3] = input 1\n%2: f32[2, 3] = logaddexp %0 %1\nreturn %2\n");
}

TEST_F(Cancel, AQuotientOfDrawsOrProductsStays) {
    constexpr std::string_view text =
        "%0: f32[2, 2] = input 0\n%1: f32[2, 2] = matmul %0 %0 {transpose_a=0, transpose_b=0}\n%2: f32[2, 2] = exp %0\n%3: f32[2, 2] = true_div %1 %2\nreturn %3\n";
    EXPECT_EQ(after(cancel, text), text);
}

// A product and what is computed of it, of a batch whose second factor is broadcast and turned.
std::string product_text(std::string_view attrs, std::string_view second, std::string_view last) {
    return runtime::cat("%0: f32[3, 40, 24] = input 0\n%1: f32", second,
                        " = input 1\n%2: f32[70] = input 2\n%3: f32[3, 40, 70] = matmul %0 %1 {",
                        attrs, "}\n%4: f32[3, 40, 70] = add %3 %2\n%5: f32[3, 40, 70] = ", last,
                        " %4\nreturn %5\n");
}
constexpr std::string_view kAsItLies = "transpose_a=0, transpose_b=0",
                           kTurned = "transpose_a=0, transpose_b=1";

constexpr std::string_view kCastOfProduct =
    "%0: f16[2, 3, 4] = input 0\n%1: f16[4, 5] = input 1\n"
    "%2: f16[2, 3, 5] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n"
    "%3: f32[2, 3, 5] = cast %2 {dtype=\"float32\"}\n"
    "%4: f32[6, 5] = reshape %3 {shape=[6, 5]}\n";

// Labels of three rows; y is what the sum picks from.
std::string picked_from(std::string_view y) {
    return "%0: f32[3, 4] = input 0\n%1: f32[3, 1] = input 1\n%2: i32[3, 1] = const 0 3 2\n"
           "%3: i32[3, 1] = checked_index %2 {axis=1, extent=4, op=\"gather\"}\n"
           "%4: i32[3, 4] = coordinates {shape=[3, 4], axis=1}\n%5: bool[3, 4] = equal %4 %3\n"
           "%6: f32[3, 4] = sub %0 %1\n%7: f32[3, 4] = input 2\n" +
           std::string(y) +
           "%9: f32[] = const 0\n%10: f32[3, 4] = where %5 %8 %9\n"
           "%11: f32[3] = reduce_sum %10 {axes=[1], keepdims=0}\nreturn %11\n";
}

TEST_F(PickOperands, AnElementOfADifferenceIsPickedBeforeItIsComputed) {
    const Graph graph = parse_graph(picked_from("%8: f32[3, 4] = neg %6\n"));
    const Graph picked = pick_operands(graph);
    EXPECT_EQ(fault_of(picked), "");
    for (const Node& node : picked.nodes()) {
        if (!node.op || (node.op->name != "sub" && node.op->name != "neg")) continue;
        EXPECT_EQ(picked.type(node.outputs[0]).shape, (runtime::Shape{3, 1}));
    }
    const std::vector<TensorRef> inputs = inputs_for(graph);
    EXPECT_EQ(values_of(interpret(picked, inputs)[0]), values_of(interpret(graph, inputs)[0]));
}

TEST_F(PickOperands, WhatTwoValuesOfElementsMakeStays) {
    const std::string text = picked_from("%8: f32[3, 4] = add %6 %7\n");
    EXPECT_EQ(after(pick_operands, text), text);
}

// What a pooled relu gives backward, and `rest`.
std::string pooled_relu(std::string_view mask, std::string_view rest) {
    const std::string window = "{kernel=[3, 3], stride=[2, 2], padding=[1, 1]}\n";
    return "%0: f32[1, 2, 6, 6] = input 0\n%1: f32[1, 2, 3, 3] = input 1\n"
           "%2: f32[1, 2, 6, 6] = relu %0\n%3: f32[1, 2, 3, 3] = max_pool %2 " +
           window + "%4: f32[1, 2, 6, 6] = max_pool_grad %2 %1 " + window +
           "%5: f32[1, 2, 6, 6] = " + std::string(mask) + "\n" + std::string(rest);
}

TEST_F(MaskPooled, TheMaskOfReluIsAppliedToWhatIsPooled) {
    for (const char* mask : {"relu.grad0 %2 %4", "relu6.grad0 %2 %4"}) {
        const Graph graph = parse_graph(pooled_relu(mask, "return %3 %5\n"));
        const Graph moved = mask_pooled(graph);
        EXPECT_EQ(fault_of(moved), "");
        const Node& last = moved.producer(moved.outputs[1]);
        EXPECT_EQ(last.op->name, "max_pool_grad");
        EXPECT_EQ(moved.producer(last.inputs[1]).op->name,
                  std::string_view(mask).substr(0, std::string_view(mask).find(' ')));
        const std::vector<TensorRef> inputs = inputs_for(graph);
        EXPECT_EQ(values_of(interpret(moved, inputs)[1]), values_of(interpret(graph, inputs)[1]));
    }
}

TEST_F(MaskPooled, AMaskOfAnotherValueAScaleAndAGradientThatOthersReadStay) {
    for (const std::string& text :
         {pooled_relu("relu.grad0 %0 %4", "return %3 %5\n"),
          pooled_relu("mul %2 %4", "return %3 %5\n"),
          pooled_relu("leaky_relu.grad0 %2 %4 {negative_slope=0.5}", "return %3 %5\n"),
          pooled_relu("relu.grad0 %2 %4", "return %3 %4 %5\n")}) {
        const Graph graph = parse_graph(text);
        EXPECT_EQ(print(mask_pooled(graph)), print(graph));
    }
}

TEST_F(MoveViews, ACastOfAProductIsInOneShapeWithTheRowsBehindIt) {
    const Graph graph =
        parse_graph(std::string(kCastOfProduct) +
                    "%5: f32[6] = reduce_max %4 {axes=[1], keepdims=0}\nreturn %5\n");
    const Graph moved = move_views(graph);
    EXPECT_EQ(fault_of(moved), "");
    const Node& cast = moved.producer(moved.producer(moved.outputs[0]).inputs[0]);
    EXPECT_EQ(cast.op->name, "cast");
    EXPECT_EQ(moved.producer(cast.inputs[0]).op, &ops::reshape());
}

TEST_F(MoveViews, AnOpThatOthersReadOrThatFollowsAKernelStays) {
    for (const char* rest : {"%5: f32[6] = reduce_max %4 {axes=[1], keepdims=0}\nreturn %3 %5\n",
                             "%5: f32[30] = reshape %4 {shape=[30]}\nreturn %5\n"}) {
        const std::string text = kCastOfProduct.data() + std::string(rest);
        EXPECT_EQ(print(move_views(parse_graph(text))), text);
    }
    constexpr std::string_view behind_a_sum =
        "%0: f32[2, 3, 4] = input 0\n"
        "%1: f32[2, 3, 1] = reduce_sum %0 {axes=[2], keepdims=1}\n"
        "%2: f32[2, 3, 4] = sub %0 %1\n"
        "%3: f32[2, 3, 4] = exp %2\n"
        "%4: f32[6, 4] = reshape %3 {shape=[6, 4]}\n"
        "%5: f32[6] = reduce_max %4 {axes=[1], keepdims=0}\nreturn %5\n";
    EXPECT_EQ(after(move_views, behind_a_sum), behind_a_sum);
}

TEST_F(MoveViews, ANumberWithMoreAxesThanTheOtherShapeKeepsItsOpInPlace) {
    constexpr std::string_view text =
        "%0: f32[1, 4] = input 0\n%1: f32[1, 1] = input 1\n%2: f32[1, 4] = mul %0 %1\n"
        "%3: f32[4] = reshape %2 {shape=[4]}\n"
        "%4: f32[] = reduce_max %3 {axes=[0], keepdims=0}\nreturn %4\n";
    EXPECT_EQ(after(move_views, text), text);
}

TEST_F(MoveViews, ACastForAProductStandsInFrontOfTheReshape) {
    const std::string row =
        "%0: f32[6, 4] = input 0\n%1: f32[6, 1] = input 1\n%2: f16[4, 5] = input 2\n"
        "%3: f32[6, 4] = sub %0 %1\n";
    const std::string product =
        "%6: f16[2, 3, 5] = matmul %5 %2 {transpose_a=0, transpose_b=0}\nreturn %6\n";
    EXPECT_EQ(after(move_views, row +
                                    "%4: f32[2, 3, 4] = reshape %3 {shape=[2, 3, 4]}\n"
                                    "%5: f16[2, 3, 4] = cast %4 {dtype=\"float16\"}\n" +
                                    product),
              row +
                  "%4: f16[6, 4] = cast %3 {dtype=\"float16\"}\n"
                  "%5: f16[2, 3, 4] = reshape %4 {shape=[2, 3, 4]}\n" +
                  product);
}

TEST_F(Fuse, AProductAndElementWiseOpsBehindItAreOneKernel) {
    for (const std::string_view second : {"[24, 70]", "[3, 24, 70]", "[1, 24, 70]"}) {
        const Graph graph = parse_graph(product_text(kAsItLies, second, "tanh")),
                    fused = fuse(fuse_epilogues(graph));
        EXPECT_EQ(kernels_in(fused), 1u);
        EXPECT_EQ(fault_of(fused), "");
        const auto inputs = inputs_for(graph);
        const auto want = values_of(interpret(graph, inputs)[0]),
                   got = values_of(interpret(fused, inputs)[0]);
        ASSERT_EQ(want.size(), got.size());
        for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], got[i], 1e-5);
    }
}

TEST_F(Fuse, ALibraryComputesProductsThatItReadsBetterOrEndsItself) {
    const auto fused = [](const std::string& text, bool exact) {
        const PipelineOptions options{.exact = exact};
        return print(fuse(fuse_relu(fuse_epilogues(parse_graph(text), options), options), options));
    };
    const auto is_product = [](const std::string& text) {
        return text.find("= matmul") != std::string::npos;
    };
    const std::string turned = product_text(kTurned, "[70, 24]", "tanh");  // small, and so is all
    EXPECT_FALSE(is_product(fused(turned, false)));
    std::string large = turned;
    for (size_t at = 0; (at = large.find("40", at)) != std::string::npos; at += 3)
        large.replace(at, 2, "400");
    EXPECT_TRUE(is_product(fused(large, false)));
    EXPECT_TRUE(is_product(fused(product_text(kAsItLies, "[24, 70]", "relu"), false)));
    EXPECT_TRUE(is_product(fused(product_text(kAsItLies, "[24, 70]", "tanh"), true)));
    EXPECT_FALSE(is_product(fused(product_text(kAsItLies, "[24, 70]", "tanh"), false)));
}

TEST_F(Pipeline, TellsWhichPassesDoNotKeepTheBits) {
    const Graph graph = parse_graph(
        "%0: f32[2] = input 0\n%1: f32[] = const 1\n%2: f32[2] = mul %0 %1\n%3: f32[2] = true_div %2 %0\nreturn %3\n");
    const std::vector<BitChange> changes = bit_changes(graph, {.opt_level = 1});
    ASSERT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes[0].pass, "cancel");
    EXPECT_EQ(changes[0].ops, std::vector<std::string>{"true_div"});
    EXPECT_TRUE(bit_changes(graph, {.opt_level = 1, .exact = true}).empty());
    EXPECT_TRUE(bit_changes(graph, {.opt_level = 0}).empty());
}

TEST_F(Fuse, AChainBecomesOneKernel) {
    const Graph graph = fuse(parse_graph(
        "%0: f32[4, 5] = input 0\n%1: f32[5] = input 1\n%2: f32[4, 5] = add %0 %1\n%3: f32[4, 5] = exp %2\n%4: f32[4, 5] = mul %3 %0\nreturn %4\n"));
    EXPECT_EQ(kernels_in(graph), 1u);
    EXPECT_EQ(graph.nodes().size(), 3u);
    EXPECT_EQ(graph.nodes().back().ops, (std::vector<std::string>{"add", "exp", "mul"}));
}

TEST_F(Fuse, KeepsTheResult) {
    const Graph graph = parse_graph(
        "%0: f32[2, 2] = input 0\n%1: f32[2] = input 1\n%2: f32[2, 2] = mul %0 %1\n%3: f32[2, 2] = sub %2 %0\n%4: f32[2, 2] = abs %3\nreturn %4 %2\n");
    const std::vector<TensorRef> inputs = {floats({2, 2}, {1, 2, 3, 4}), floats({2}, {10, -1})};
    const auto expected = interpret(graph, inputs), got = interpret(fuse(graph), inputs);
    for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(values_of(got[i]), values_of(expected[i]));
}

//   %1 = exp %0 -> matmul -> add: the add reads both the group of exp and what depends on it
TEST_F(Fuse, NeverMakesALoopThroughAnOpThatCannotJoin) {
    const Graph graph = fuse(parse_graph(
        "%0: f32[3, 3] = input 0\n%1: f32[3, 3] = exp %0\n%2: f32[3, 3] = neg %1\n"
        "%3: f32[3, 3] = matmul %2 %2 {transpose_a=0, transpose_b=0}\n%4: f32[3, 3] = add %1 %3\n%5: f32[3, 3] = abs %4\nreturn %5\n"));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(kernels_in(graph), 2u);
}

TEST_F(Fuse, AValueThatIsReadOutsideLeavesTheKernel) {
    const Graph graph = fuse(parse_graph(
        "%0: f32[4] = input 0\n%1: f32[4] = exp %0\n%2: f32[4] = neg %1\nreturn %2 %1\n"));
    EXPECT_EQ(graph.nodes().back().outputs.size(), 2u);
}

TEST_F(Fuse, ASingleNodeStaysAsItIs) {
    constexpr std::string_view text = "%0: f32[4] = input 0\n%1: f32[4] = exp %0\nreturn %1\n";
    EXPECT_EQ(after([](Graph g) { return fuse(std::move(g)); }, text), text);
}

TEST_F(Fuse, AGroupMovesNoMoreBytesThanItsParts) {
    const Graph graph = parse_graph(
        "%0: f32[64] = input 0\n%1: f32[64] = input 1\n%2: f32[64] = add %0 %1\n%3: f32[64] = mul %2 %0\n%4: f32[64] = exp %3\nreturn %4 %3\n");
    const auto bytes_moved = [](const Graph& g) {
        size_t bytes = 0;
        for (const Node& node : g.nodes()) {
            if (node.kind == NodeKind::input || node.kind == NodeKind::constant) continue;
            for (ValueId id : node.inputs) bytes += g.type(id).bytes();
            for (ValueId id : node.outputs) bytes += g.type(id).bytes();
        }
        return bytes;
    };
    EXPECT_LE(bytes_moved(fuse(graph)), bytes_moved(graph));
}

// It used to be noted by op, in the types that came first: in bfloat16 acos is long, in float32
// not.
TEST_F(Fuse, AnOpAloneIsAKernelWhereItsCodeIsLongInItsOwnTypes) {
    constexpr int kLong = 40;  // kHeavyInstructions
    for (const OpDef* op : runtime::all_ops())
        for (runtime::DType dtype : {runtime::DType::f32, runtime::DType::bf16}) {
            if (!op->is_elementwise() || op->promotion != runtime::Promotion::floating ||
                op->inputs.size() != 1 || !op->attrs.empty())
                continue;
            const Type type{.dtype = dtype, .shape = {128, 128}};
            Graph graph;
            const ValueId x = graph.add_input(type, 0);
            graph.outputs = graph.add({.op = op, .inputs = {x}}, {&type, 1});
            const auto kernel = codegen::elementwise_kernel({*op, {}, {&type, 1}}, type).kernel;
            EXPECT_EQ(kernels_in(fuse(graph)),
                      codegen::expand_math(kernel).program.size() > kLong ? 1u : 0u)
                << op->name;
        }
}

TEST_F(Pipeline, Level0KeepsTheGraphAsRecorded) {
    constexpr std::string_view text =
        "%0: f32[] = const 2\n%1: f32[] = neg %0\n%2: f32[] = neg %1\nreturn %2\n";
    EXPECT_EQ(print(run_pipeline(parse_graph(text), {.opt_level = 0})), text);
}

TEST_F(Pipeline, EveryPassSaysWhyItStandsWhereItStands) {
    for (const Pass& pass : pipeline()) EXPECT_FALSE(pass.why_here.empty()) << pass.name;
}

}}  // namespace megjit::jit
