#include "jit/passes/passes.h"
#include "jit/pipeline.h"
#include "tests/jit/world.h"

namespace megjit::jit {
namespace {

using AssignLayouts = World;

constexpr std::string_view kTwoConvolutions =
    "%0: f32[2, 4, 6, 6] = input 0\n"
    "%1: f32[8, 4, 3, 3] = input 1\n"
    "%2: f32[8, 8, 1, 1] = input 2\n"
    "%3: f32[1, 8, 1, 1] = input 3\n"
    "%4: f32[2, 8, 4, 4] = conv %0 %1 {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1}\n"
    "%5: f32[2, 8, 4, 4] = add %4 %3\n"
    "%6: f32[2, 8, 4, 4] = relu %5\n"
    "%7: f32[2, 8, 4, 4] = conv %6 %2 {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1}\n"
    "return %7\n";

size_t count(const Graph& graph, std::string_view op) {
    size_t found = 0;
    for (const Node& node : graph.nodes()) found += node.op && node.op->name == op;
    return found;
}

std::vector<TensorRef> inputs_for(const Graph& graph) {
    std::vector<TensorRef> inputs;
    for (const Node& node : graph.nodes()) {
        if (node.kind != NodeKind::input) continue;
        TensorRef tensor = runtime::empty_tensor(runtime::default_device(), graph.type(node.outputs[0]));
        for (int64_t i = 0; i < tensor->type().numel(); ++i) tensor->as<float>()[i] = static_cast<float>((i * 37 + node.slot * 11) % 17) / 8.0f - 1.0f;
        inputs.push_back(tensor);
    }
    return inputs;
}

//   input -> relayout -> conv -> add -> relu -> conv -> relayout -> output
TEST_F(AssignLayouts, NothingIsRelaidBetweenConvolutions) {
    const Graph graph = assign_layouts(parse_graph(kTwoConvolutions));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(count(graph, "relayout"), 2u);
}

TEST_F(AssignLayouts, OutputsStayRowMajor) {
    const Graph graph = assign_layouts(parse_graph(kTwoConvolutions));
    for (ValueId output : graph.outputs) EXPECT_EQ(graph.type(output).layout, runtime::Layout::row_major);
}

TEST_F(AssignLayouts, KeepsTheResult) {
    const Graph graph = parse_graph(kTwoConvolutions);
    const auto inputs = inputs_for(graph);
    const TensorRef expected = interpret(graph, inputs)[0];
    const Graph laid = fuse(assign_layouts(graph));
    const TensorRef got = interpret(laid, inputs)[0];
    for (int64_t i = 0; i < expected->type().numel(); ++i) EXPECT_NEAR(got->as<float>()[i], expected->as<float>()[i], 1e-4f);
}

TEST_F(AssignLayouts, AGraphWithoutConvolutionsStaysAsItIs) {
    constexpr std::string_view text = "%0: f32[2, 3, 4, 4] = input 0\n%1: f32[2, 3, 4, 4] = relu %0\nreturn %1\n";
    EXPECT_EQ(print(assign_layouts(parse_graph(text))), text);
}

TEST_F(AssignLayouts, AnOperandThatIsNotPerChannelIsRelaidWithTheRest) {
    const Graph graph = assign_layouts(parse_graph(
        "%0: f32[2, 4, 3, 3] = input 0\n%1: f32[4, 4, 1, 1] = input 1\n%2: f32[3, 3] = input 2\n"
        "%3: f32[2, 4, 3, 3] = conv %0 %1 {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1}\n%4: f32[2, 4, 3, 3] = mul %3 %2\nreturn %4\n"));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(graph.type(graph.outputs[0]).layout, runtime::Layout::row_major);
}

}  // namespace
}  // namespace megjit::jit
