#include "jit/step/graph.h"

#include "runtime/host/error.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

using GraphText = World;
using Verifier = World;
using Interpreter = World;
using GraphViews = World;

constexpr std::string_view kLinear =
    "%0: f32[8, 64] = input 0\n"
    "%1: f32[64, 10] = input 1\n"
    "%2: f32[8, 10] = matmul %0 %1 {transpose_a=0, transpose_b=0}\n"
    "%3: f32[] = const 0.5\n"
    "%4: f32[8, 10] = mul %2 %3\n"
    "return %4 %2\n";

TEST_F(GraphText, ParseUndoesPrint) { EXPECT_EQ(print(parse_graph(kLinear)), kLinear); }

TEST_F(GraphText, AnOlderTextLacksTheAttributesThatAnOpHasGotSince) {
    constexpr std::string_view before =
        "%0: f32[1, 2, 3, 4] = input 0\n"
        "%1: f32[1, 2, 3, 4], %2: f32[1, 2, 3] = attention %0 %0 %0 {scale=0.5, causal=1, masked=0, drop_prob=0.0";
    const std::string end = "}\nreturn %1\n", now = ", hides=0, zeros=0" + end;
    EXPECT_EQ(print(parse_graph(std::string(before) + end)), std::string(before) + now);
    EXPECT_THROW(parse_graph("%0: f32[2] = input 0\n%1: f32[1] = reduce_sum %0 {axes=[0]\n"),
                 runtime::UserError);
}

TEST_F(GraphText, LargeConstantsKeepEveryBit) {
    Graph graph;
    TensorRef tensor = runtime::empty_tensor(runtime::host_device(),
                                             {.dtype = runtime::DType::f32, .shape = {40}});
    for (int i = 0; i < 40; ++i) tensor->as<float>()[i] = 1.0f / static_cast<float>(i);
    graph.outputs = {graph.add_constant(tensor)};
    const std::string text = print(graph);
    const Graph again = parse_graph(text);
    EXPECT_EQ(print(again), text);
    EXPECT_EQ(std::memcmp(again.producer(again.outputs[0]).constant->data(), tensor->data(), 160),
              0);
}

TEST_F(GraphText, SmallConstantsThatNoDoubleHoldsKeepEveryBit) {
    const std::string text = "%0: i64[2] = const x0700000000000010ffffffffffffff7f\nreturn %0\n";
    EXPECT_EQ(print(parse_graph(text)), text);
}

TEST_F(GraphText, AnIntegerThatDoesNotFitIsRefused) {
    EXPECT_THROW(parse_graph("%0: f32[2] = input 99999999999999999999\nreturn %0\n"),
                 runtime::UserError);
}

TEST_F(GraphText, AnUnknownOpIsRefusedWithItsLine) {
    try {
        parse_graph("%0: f32[2] = input 0\n%1: f32[2] = frobnicate %0\nreturn %1\n");
        FAIL() << "an unknown op must be refused";
    } catch (const runtime::UserError& error) {
        EXPECT_NE(std::string(error.what()).find("line 2: there is no op named 'frobnicate'"),
                  std::string::npos)
            << error.what();
    }
}

TEST_F(GraphText, AnUnknownCustomOpSaysHowToLoadIt) {
    try {
        parse_graph("%0: f32[2] = input 0\n%1: f32[2] = custom.Scale %0\nreturn %1\n");
        FAIL() << "an unknown op must be refused";
    } catch (const runtime::UserError& error) {
        EXPECT_NE(std::string(error.what()).find("fix: load the library that defines it first"),
                  std::string::npos)
            << error.what();
    }
}

TEST_F(GraphText, AValueThatIsNotDefinedIsRefused) {
    EXPECT_THROW(parse_graph("%0: f32[2] = input 0\n%1: f32[2] = neg %7\nreturn %1\n"),
                 runtime::UserError);
}

TEST_F(GraphText, AMissingReturnIsRefused) {
    EXPECT_THROW(parse_graph("%0: f32[2] = input 0\n"), runtime::UserError);
}

TEST_F(GraphViews, DotHasAnEdgeForEachOperand) {
    const std::string dot = to_dot(parse_graph(kLinear));
    EXPECT_NE(dot.find("n0 -> n2 [label=\"f32[8, 64]\"]"), std::string::npos) << dot;
    EXPECT_NE(dot.find("n4 -> out0"), std::string::npos);
}

TEST_F(GraphViews, HtmlEscapesWhatUsersWrote) {
    EXPECT_NE(to_html(parse_graph(kLinear), "<script>").find("&lt;script&gt;"), std::string::npos);
}

TEST_F(Verifier, AcceptsASoundGraph) { EXPECT_EQ(fault_of(parse_graph(kLinear)), ""); }

TEST_F(Verifier, FindsATypeThatInferenceDoesNotGive) {
    const Graph graph = parse_graph("%0: f32[2] = input 0\n%1: f32[3] = neg %0\nreturn %1\n");
    EXPECT_NE(fault_of(graph).find("neg has type f32[3], inference gives f32[2]"),
              std::string::npos)
        << fault_of(graph);
}

TEST_F(Verifier, FindsTwoInputsInOneSlot) {
    const Graph graph = parse_graph("%0: f32[2] = input 0\n%1: f32[2] = input 0\nreturn %1\n");
    EXPECT_EQ(fault_of(graph), "slot 0 has two inputs");
}

TEST_F(Interpreter, GivesTheMeaningOfAGraph) {
    const Graph graph = parse_graph(
        "%0: f32[2] = input 0\n%1: f32[] = const 3\n%2: f32[2] = mul %0 %1\n%3: f32[2] = add %2 %0\nreturn %3\n");
    const TensorRef x = floats({2}, {1, -2});
    EXPECT_EQ(values_of(interpret(graph, {&x, 1})[0]), (std::vector<float>{4, -8}));
}

}}  // namespace megjit::jit
