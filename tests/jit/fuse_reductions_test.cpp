// Kernels that hold reductions: which nodes come together, and that the values stay.
#include <cmath>
#include <random>

#include "jit/plan/passes/passes.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using FuseReductions = World;

size_t ops_in(const Graph& graph) {
    size_t count = 0;
    for (const Node& node : graph.nodes())
        count += node.kind == NodeKind::op && node.op->name != "reshape";
    return count;
}

std::vector<TensorRef> random_inputs(const Graph& graph) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> draw(-2, 2);
    std::vector<TensorRef> inputs;
    for (const Node& node : graph.nodes()) {
        if (node.kind != NodeKind::input) continue;
        TensorRef tensor =
            runtime::empty_tensor(runtime::host_device(), graph.type(node.outputs[0]));
        for (int64_t i = 0; i < tensor->type().numel(); ++i) tensor->as<float>()[i] = draw(random);
        inputs.push_back(std::move(tensor));
    }
    return inputs;
}

// The graph after expand and fuse; it is sound and gives the same values.
Graph fused(std::string_view text) {
    const Graph graph = parse_graph(text);
    const Graph result = fuse(expand(graph));
    EXPECT_EQ(fault_of(result), "");
    const std::vector<TensorRef> inputs = random_inputs(graph);
    const auto expected = interpret(graph, inputs), got = interpret(result, inputs);
    for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(got[i]->type(), expected[i]->type());
        for (int64_t e = 0; e < expected[i]->type().numel(); ++e) {
            const float a = expected[i]->as<float>()[e], b = got[i]->as<float>()[e];
            EXPECT_NEAR(a, b, 1e-5 * (1 + std::fabs(a)))
                << "result " << i << ", element " << e << "\n"
                << print(result);
            if (std::fabs(a - b) > 1e-5 * (1 + std::fabs(a))) return result;
        }
    }
    return result;
}

void expect_one_kernel(std::string_view text) {
    const Graph graph = fused(text);
    EXPECT_EQ(kernels_in(graph), 1u) << print(graph);
    EXPECT_EQ(ops_in(graph), 0u) << print(graph);
}

TEST_F(FuseReductions, SoftmaxWithItsNeighbours) {
    expect_one_kernel(
        "%0: f32[16, 40] = input 0\n%1: f32[40] = input 1\n%2: f32[16, 40] = add %0 %1\n%3: f32[16, 40] = softmax %2 {axis=1}\n"
        "%4: f32[16, 40] = mul %3 %0\nreturn %4\n");
}

TEST_F(FuseReductions, LogSoftmaxAlongTheFirstAxis) {
    expect_one_kernel(
        "%0: f32[40, 70] = input 0\n%1: f32[40, 70] = log_softmax %0 {axis=0}\nreturn %1\n");
}

TEST_F(FuseReductions, SoftmaxGradient) {
    expect_one_kernel(
        "%0: f32[16, 40] = input 0\n%1: f32[16, 40] = input 1\n%2: f32[16, 40] = mul %0 %1\n%3: f32[16, 1] = reduce_sum %2 {axes=[1], keepdims=1}\n"
        "%4: f32[16, 40] = sub %1 %3\n%5: f32[16, 40] = mul %0 %4\nreturn %5\n");
}

TEST_F(FuseReductions, LayerNormIsOneKernel) {
    expect_one_kernel(
        "%0: f32[4, 9, 32] = input 0\n%1: f32[32] = input 1\n%2: f32[32] = input 2\n"
        "%3: f32[4, 9, 32], %4: f32[4, 9], %5: f32[4, 9] = layer_norm %0 %1 %2 {axes=1, eps=1e-05, affine=1}\nreturn %3 %4 %5\n");
}

constexpr std::string_view kLayerNormGradient =
    "%0: f32[4, 9, 64] = input 0\n%1: f32[4, 9] = input 1\n%2: f32[4, 9] = input 2\n%3: f32[4, 9, 64] = input 3\n%4: f32[64] = input 4\n"
    "%5: f32[4, 9, 64], %6: f32[64], %7: f32[64] = layer_norm_grad %0 %1 %2 %3 %4 {axes=1, affine=1}\n";

// The kernels would read both matrices twice.
TEST_F(FuseReductions, LayerNormGradientAloneIsItsOwnKernel) {
    const Graph graph = fused(runtime::cat(kLayerNormGradient, "return %5 %6 %7\n"));
    EXPECT_EQ(kernels_in(graph), 0u) << print(graph);
    EXPECT_EQ(ops_in(graph), 1u) << print(graph);
}

TEST_F(FuseReductions, LayerNormGradientWithItsNeighbourIsTwoKernels) {
    const Graph graph =
        fused(runtime::cat(kLayerNormGradient, "%8: f32[4, 9, 64] = add %5 %0\nreturn %8 %6 %7\n"));
    EXPECT_EQ(kernels_in(graph), 2u) << print(graph);
    EXPECT_EQ(ops_in(graph), 0u) << print(graph);
}

TEST_F(FuseReductions, BatchNormJoinsTheActivationBehindIt) {
    const Graph graph = fused(
        "%0: f32[4, 6, 5, 5] = input 0\n%1: f32[6] = input 1\n%2: f32[6] = input 2\n"
        "%3: f32[4, 6, 5, 5], %4: f32[6], %5: f32[6] = batch_norm %0 %1 %2 {eps=1e-05}\n%6: f32[4, 6, 5, 5] = relu %3\nreturn %6 %4 %5\n");
    EXPECT_EQ(kernels_in(graph), 2u)
        << print(graph);  // the factor of each channel, and the elements
    EXPECT_EQ(ops_in(graph), 1u) << print(graph);  // the statistics
}

TEST_F(FuseReductions, BatchNormGradient) {
    const Graph graph = fused(
        "%0: f32[4, 6, 5, 5] = input 0\n%1: f32[6] = input 1\n%2: f32[6] = input 2\n%3: f32[6] = square %2\n%4: f32[6] = input 3\n%5: f32[4, 6, 5, 5] = input 4\n"
        "%6: f32[4, 6, 5, 5], %7: f32[6], %8: f32[6] = batch_norm_grad %0 %1 %3 %4 %5 {eps=1e-05}\nreturn %6 %7 %8\n");
    EXPECT_EQ(ops_in(graph), 2u) << print(graph);
}

// Cross-entropy: the logarithm at the label, and the gradient of the logits, are a kernel each.
TEST_F(FuseReductions, ThePlaceOfALabelIsPickedInPassing) {
    const Graph graph = fused(
        "%0: f32[16, 40] = input 0\n%1: i32[16, 1] = const 0 39 5 7 1 2 3 4 -1 9 10 11 12 13 14 38\n%2: f32[16, 40] = log_softmax %0 {axis=1}\n"
        "%3: f32[16, 1] = gather %2 %1 {axis=1}\n%4: f32[16] = reshape %3 {shape=[16]}\n%5: f32[16] = neg %4\n%6: f32[] = reduce_mean %5 {axes=[0], keepdims=0}\n"
        "%7: f32[16, 40] = full {shape=[16, 40], value=0.0, dtype=\"float32\"}\n%8: f32[16, 1] = full {shape=[16, 1], value=-0.0625, dtype=\"float32\"}\n"
        "%9: f32[16, 40] = scatter_add %7 %1 %8 {axis=1}\n%10: f32[16, 1] = reduce_sum %9 {axes=[1], keepdims=1}\n%11: f32[16, 40] = exp %2\n"
        "%12: f32[16, 40] = mul %11 %10\n%13: f32[16, 40] = sub %9 %12\nreturn %6 %13\n");
    EXPECT_LE(kernels_in(graph), 2u) << print(graph);
    EXPECT_LE(ops_in(graph), 3u) << print(
        graph);  // the labels are checked twice, and the mean over rows
}

//  A row without its axis must not be taken for one along another axis of the same extent.
TEST_F(FuseReductions, ASquareMatrixKeepsRowsAndColumnsApart) {
    fused(
        "%0: f32[12, 12] = input 0\n%1: f32[12] = reduce_sum %0 {axes=[1], keepdims=0}\n%2: f32[12, 12] = mul %0 %1\n"
        "%3: f32[12] = reduce_max %2 {axes=[1], keepdims=0}\n%4: f32[12] = add %1 %3\nreturn %4 %2\n");
    fused(
        "%0: f32[12, 12] = input 0\n%1: f32[12] = reduce_sum %0 {axes=[0], keepdims=0}\n%2: f32[12, 12] = mul %0 %1\n"
        "%3: f32[12] = reduce_max %2 {axes=[0], keepdims=0}\n%4: f32[12] = add %1 %3\nreturn %4 %2\n");
}

TEST_F(FuseReductions, ReductionsOfOneValueAlongOneAxisAreOneKernel) {
    expect_one_kernel(
        "%0: f32[16, 40] = input 0\n%1: f32[16] = reduce_sum %0 {axes=[1], keepdims=0}\n%2: f32[16] = reduce_max %0 {axes=[1], keepdims=0}\n"
        "%3: f32[16, 1] = reduce_mean %0 {axes=[1], keepdims=1}\nreturn %1 %2 %3\n");
}

TEST_F(FuseReductions, ATransposeIsReadThroughStrides) {
    expect_one_kernel(
        "%0: f32[4, 6, 5, 8] = input 0\n%1: f32[4, 5, 6, 8] = transpose %0 {perm=[0, 2, 1, 3]}\n%2: f32[4, 5, 6, 8] = exp %1\n"
        "%3: f32[4, 5, 6, 8] = mul %2 %1\nreturn %3\n");
}

// The copy is made for the matmul anyway: the kernel reads it, so that its source need not live
// longer.
TEST_F(FuseReductions, ATransposeThatIsStoredIsReadAsItIs) {
    const Graph graph = fused(
        "%0: f32[4, 4] = input 0\n%1: f32[4, 4] = transpose %0 {perm=[1, 0]}\n%2: f32[4, 4] = matmul %1 %1 {transpose_a=0, transpose_b=0}\n"
        "%3: f32[4, 4] = add %1 %2\n%4: f32[4, 4] = neg %3\nreturn %4\n");
    EXPECT_NE(print(graph).find("= fused %1 %2 {ops=add,neg"), std::string::npos) << print(graph);
}

// The broadcast was read through its source, which its own kernel keeps to itself.
TEST_F(FuseReductions, ABroadcastInsideAKernelIsReadAsItIs) {
    fused(
        "%0: f32[9] = input 0\n%1: f32[9] = input 1\n%2: f32[9] = exp %0\n%3: f32[4, 9] = broadcast_to %2 {shape=[4, 9]}\n"
        "%4: f32[4, 9] = neg %3\n%5: f32[9, 4] = input 2\n%6: f32[4, 4] = matmul %4 %5 {transpose_a=0, transpose_b=0}\n"
        "%7: f32[4, 9] = broadcast_to %2 {shape=[4, 9]}\n%8: f32[4, 1] = reduce_sum %6 {axes=[1], keepdims=1}\n%9: f32[4, 9] = sub %7 %8\nreturn %9 %6\n");
    fused(
        "%0: f32[1] = input 0\n%1: f32[1] = atan2 %0 %0\n%2: f32[1] = input 1\n%3: f32[1] = broadcast_to %1 {shape=[1]}\n"
        "%4: f32[1] = reduce_sum %3 {axes=[0], keepdims=1}\n%5: f32[1] = sub %3 %4\n%6: f32[1] = mul %2 %5\nreturn %6\n");
}

TEST_F(FuseReductions, AFewLongRowsAreLeftToTheEagerKernel) {
    const Graph graph = fused(
        "%0: f32[2, 40000] = input 0\n%1: f32[2, 40000] = neg %0\n%2: f32[2] = reduce_max %1 {axes=[1], keepdims=0}\nreturn %2\n");
    EXPECT_EQ(kernels_in(graph), 0u) << print(graph);
}

}}  // namespace megjit::jit
