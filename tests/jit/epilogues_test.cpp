#include "jit/plan/passes/passes.h"
#include "jit/plan/pipeline.h"
#include "jit/run/program.h"
#include "tests/jit/graphs.h"
#include "tests/onednn.h"

namespace megjit::jit { namespace {

using FuseEpilogues = World;

constexpr std::string_view kConv = " {stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1}\n";

std::string after(std::string_view text) {
    const Graph graph = fuse_epilogues(parse_graph(text));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(print(parse_graph(print(graph))), print(graph));
    return print(graph);
}

// Everything that the nodes of a graph read and write.
double bytes_moved(const Graph& graph) {
    double bytes = 0;
    for (const Node& node : graph.nodes())
        for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs})
            for (ValueId id : *values)
                if (node.kind == NodeKind::op || node.kind == NodeKind::fused)
                    bytes += static_cast<double>(graph.type(id).bytes());
    return bytes;
}

constexpr std::string_view kBiasedProduct =
    "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n%2: f32[3] = input 2\n"
    "%3: f32[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%4: f32[4, 3] = add %3 %2\nreturn %4\n";

TEST_F(FuseEpilogues, ABiasBecomesAStepOfTheProduct) {
    EXPECT_EQ(
        after(kBiasedProduct),
        "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n%2: f32[3] = input 2\n"
        "%3: f32[4, 3] = matmul_epilogue %0 %1 %2 {transpose_a=0, transpose_b=0, epilogue=\"bias\"}\nreturn %3\n");
}

TEST_F(FuseEpilogues, ABiasThatIsNamedLaterComesFirst) {
    EXPECT_EQ(
        after(
            "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n"
            "%2: f32[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%3: f32[3] = input 2\n%4: f32[4, 3] = add %3 %2\nreturn %4\n"),
        "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n%2: f32[3] = input 2\n"
        "%3: f32[4, 3] = matmul_epilogue %0 %1 %2 {transpose_a=0, transpose_b=0, epilogue=\"bias\"}\nreturn %3\n");
}

TEST_F(FuseEpilogues, ABiasAndThenAResidual) {
    const std::string text = after(
        "%0: f32[4, 3] = input 0\n%1: f32[3, 3] = input 1\n%2: f32[3] = input 2\n"
        "%3: f32[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%4: f32[4, 3] = add %3 %2\n%5: f32[4, 3] = add %0 %4\nreturn %5\n");
    EXPECT_NE(
        text.find(
            "matmul_epilogue %0 %1 %2 %0 {transpose_a=0, transpose_b=0, epilogue=\"bias add\"}\nreturn %3\n"),
        std::string::npos)
        << text;
}

TEST_F(FuseEpilogues, AProductThatSomebodyElseReadsStays) {
    constexpr std::string_view text =
        "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n%2: f32[3] = input 2\n"
        "%3: f32[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%4: f32[4, 3] = add %3 %2\n%5: f32[4, 3] = exp %3\nreturn %4 %5\n";
    EXPECT_EQ(after(text), text);
}

TEST_F(FuseEpilogues, AProductThatIsReturnedStays) {
    constexpr std::string_view text =
        "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n%2: f32[3] = input 2\n"
        "%3: f32[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%4: f32[4, 3] = add %3 %2\nreturn %4 %3\n";
    EXPECT_EQ(after(text), text);
}

TEST_F(FuseEpilogues, AProductAddedToItselfStays) {
    constexpr std::string_view text =
        "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n"
        "%2: f32[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%3: f32[4, 3] = add %2 %2\nreturn %3\n";
    EXPECT_EQ(after(text), text);
}

// It would have to live while the product is computed.
TEST_F(FuseEpilogues, AnAddendThatIsComputedLaterStaysApart) {
    constexpr std::string_view text =
        "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n%2: f32[3, 3] = input 2\n%3: f32[4, 3] = input 3\n"
        "%4: f32[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n"
        "%5: f32[4, 3] = softmax %3 {axis=1}\n%6: f32[4, 3] = add %4 %5\nreturn %6\n";
    EXPECT_EQ(after(text), text);
}

// exp and add are one kernel, which never stores exp's result.
TEST_F(FuseEpilogues, AnAddendThatAKernelKeepsInRegistersStaysThere) {
    constexpr std::string_view text =
        "%0: f32[4, 8] = input 0\n%1: f32[8, 3] = input 1\n%2: f32[4, 3] = input 2\n%3: f32[4, 3] = exp %2\n"
        "%4: f32[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%5: f32[4, 3] = add %4 %3\nreturn %5\n";
    EXPECT_EQ(after(text), text);
}

TEST_F(FuseEpilogues, Float16IsRoundedAsOftenAsBefore) {
    constexpr std::string_view text =
        "%0: f16[4, 8] = input 0\n%1: f16[8, 3] = input 1\n%2: f16[3] = input 2\n"
        "%3: f16[4, 3] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%4: f16[4, 3] = add %3 %2\nreturn %4\n";
    EXPECT_EQ(after(text), text);
}

std::string half_product(int64_t columns) {
    const std::string n = std::to_string(columns);
    return "%0: f16[4, 8] = input 0\n%1: f16[8, " + n + "] = input 1\n%2: f16[" + n +
           "] = input 2\n%3: f16[4, " + n +
           "] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%4: f16[4, " + n +
           "] = add %3 %2\nreturn %4\n";
}

TEST_F(FuseEpilogues, AGpuAddsABiasToHalvesBeforeItRounds) {
    const auto on = [](Graph graph, runtime::Device& device) {
        graph.set_device(device);
        graph = fuse_half_biases(std::move(graph));
        EXPECT_EQ(fault_of(graph), "");
        return count(graph, "matmul_epilogue");
    };
    EXPECT_EQ(on(parse_graph(half_product(16)), runtime::host_device()), 0u);
    if (runtime::all_devices().size() < 2) return;  // tests of cards ask this, too
    runtime::Device& card = runtime::find_device("gpu0:0");
    EXPECT_EQ(on(parse_graph(half_product(16)), card), 1u);
    EXPECT_EQ(on(parse_graph(half_product(12)), card), 0u);  // rows of 24 bytes
    EXPECT_EQ(on(parse_graph(kBiasedProduct), card), 0u);
}

TEST_F(FuseEpilogues, ReluIsLeftOutWhereResultsAreExact) {
    const std::string relu = std::string(kBiasedProduct.substr(0, kBiasedProduct.find("return"))) +
                             "%5: f32[4, 3] = relu %4\nreturn %5\n";
    const auto text = [&](bool exact) {
        return print(run_pipeline(parse_graph(relu), {.opt_level = 3, .exact = exact}));
    };
    EXPECT_NE(text(false).find("epilogue=\"bias relu\""), std::string::npos);
    EXPECT_EQ(text(true).find("bias relu"), std::string::npos);
    EXPECT_NE(text(true).find("epilogue=\"bias\""), std::string::npos);
}

// A block with a residual: x -> conv, bias, relu -> conv, bias, + x -> relu.
std::string residual_block() {
    return "%0: f32[2, 16, 12, 12] = input 0\n%1: f32[16, 16, 3, 3] = input 1\n%2: f32[1, 16, 1, 1] = input 2\n"
           "%3: f32[2, 16, 12, 12] = conv %0 %1" +
           std::string(kConv) +
           "%4: f32[2, 16, 12, 12] = add %3 %2\n%5: f32[2, 16, 12, 12] = relu %4\n"
           "%6: f32[2, 16, 12, 12] = conv %5 %1" +
           std::string(kConv) +
           "%7: f32[2, 16, 12, 12] = add %6 %2\n%8: f32[2, 16, 12, 12] = add %7 %5\n%9: f32[2, 16, 12, 12] = relu %8\n"
           "%10: f32[2, 16, 12, 12] = conv %9 %1" +
           std::string(kConv) + "return %10\n";
}

// The attention-free half of a transformer block, on rows: x + (leaky_relu(x a + b) c + d).
constexpr std::string_view kMlpBlock =
    "%0: f32[64, 32] = input 0\n%1: f32[32, 128] = input 1\n%2: f32[128] = input 2\n%3: f32[128, 32] = input 3\n%4: f32[32] = input 4\n"
    "%5: f32[64, 128] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n%6: f32[64, 128] = add %5 %2\n%7: f32[64, 128] = leaky_relu %6 {negative_slope=0.25}\n"
    "%8: f32[64, 32] = matmul %7 %3 {transpose_a=0, transpose_b=0}\n%9: f32[64, 32] = add %8 %4\n%10: f32[64, 32] = add %9 %0\n"
    "%11: f32[64, 128] = matmul %10 %1 {transpose_a=0, transpose_b=0}\nreturn %11\n";

size_t peak_of(const Graph& graph) {
    return Program(graph, {graph}, {.check = true}).plan().peak_live_bytes;
}

void expect_less_traffic_and_no_more_memory(const Graph& graph) {
    const PipelineOptions by_library{.exact = true};  // not left to kernels
    const Graph laid = assign_layouts(graph),
                ours = fuse_relu(fuse_epilogues(laid, by_library), by_library),
                kernels = fuse(ours, by_library);
    EXPECT_EQ(fault_of(ours), "");
    EXPECT_LE(peak_of(ours), peak_of(laid));
    EXPECT_LT(bytes_moved(kernels), bytes_moved(fuse(laid, by_library)));
    const auto inputs = inputs_for(graph);
    EXPECT_EQ(values_of(interpret(kernels, inputs)[0]),
              values_of(interpret(fuse(laid, by_library), inputs)[0]));
}

TEST_F(FuseEpilogues, AResidualBlockMovesLessAndHasTheSameBits) {
    NEEDS_ONEDNN();
    expect_less_traffic_and_no_more_memory(parse_graph(residual_block()));
}
TEST_F(FuseEpilogues, AnMlpBlockMovesLessAndHasTheSameBits) {
    expect_less_traffic_and_no_more_memory(parse_graph(kMlpBlock));
}

// What a program needs for its values, without workspace, and its last step; also checks what it
// computes.
struct Needs {
    size_t buffers = 0;
    std::string last_step;
};
Needs needs_of(std::string_view text) {
    const Graph graph = parse_graph(text);
    Program program(graph, {graph}, {.check = true});
    std::vector<TensorRef> inputs = inputs_for(graph);
    const auto expected = values_of(interpret(graph, inputs)[0]);
    EXPECT_EQ(values_of(program.run(inputs)[0]), expected);
    return {program.plan().planned_bytes - program.plan().workspace_bytes,
            program.plan().steps.back()};
}
constexpr size_t kMatrix = 64 * 64 * sizeof(float);

//   x, w and y = softmax(x), whose place the sum takes over, or the plan says why the kernel at
//   hand cannot
TEST_F(FuseEpilogues, TheResultLiesOnAnAddendThatNobodyElseReads) {
    NEEDS_ONEDNN();
    const Needs needs = needs_of(
        "%0: f32[64, 64] = input 0\n%1: f32[64, 64] = input 1\n%2: f32[64, 64] = softmax %0 {axis=1}\n"
        "%3: f32[64, 64] = matmul_epilogue %0 %1 %2 {transpose_a=0, transpose_b=0, epilogue=\"add\"}\nreturn %3\n");
    EXPECT_EQ(needs.buffers,
              (needs.last_step.find("not in place: ") == std::string::npos ? 3 : 4) * kMatrix);
}

//   x, y = softmax(x) and y x + y, which lies apart: the product reads all of y for each row
TEST_F(FuseEpilogues, TheResultDoesNotLieOnAnAddendThatIsAlsoAFactor) {
    EXPECT_EQ(
        needs_of(
            "%0: f32[64, 64] = input 0\n%1: f32[64, 64] = softmax %0 {axis=1}\n"
            "%2: f32[64, 64] = matmul_epilogue %1 %0 %1 {transpose_a=0, transpose_b=0, epilogue=\"add\"}\nreturn %2\n")
            .buffers,
        3 * kMatrix);
}

}}  // namespace megjit::jit
