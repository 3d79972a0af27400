#include "jit/plan/passes/passes.h"
#include "jit/plan/pipeline.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

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

//   input -> relayout -> conv -> add -> relu -> conv -> relayout -> output
TEST_F(AssignLayouts, NothingIsRelaidBetweenConvolutions) {
    const Graph graph = assign_layouts(parse_graph(kTwoConvolutions));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(count(graph, "relayout"), 2u);
}

// 1x1, of images of some pixels.
Graph pointwise(std::string_view dtype, int side) {
    const std::string image = runtime::cat(side, ", ", side, "]");
    return parse_graph(runtime::cat(
        "%0: ", dtype, "[2, 4, ", image, " = input 0\n%1: ", dtype,
        "[8, 4, 1, 1] = input 1\n%2: ", dtype, "[2, 8, ", image,
        " = conv %0 %1 {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1}\nreturn %2\n"));
}

TEST_F(AssignLayouts, ProductsWithEachImageTakeItAsItLies) {
    EXPECT_EQ(count(assign_layouts(pointwise("f32", 24)), "relayout"), 0u);
    EXPECT_EQ(count(assign_layouts(pointwise("f32", 20)), "relayout"), 2u);  // too few pixels
    EXPECT_EQ(count(assign_layouts(pointwise("f16", 24)), "relayout"), 2u);
    if (runtime::all_devices().size() < 2) return;  // tests of cards ask this, too
    Graph graph = pointwise("f32", 24);
    graph.set_device(runtime::find_device("gpu0:0"));
    EXPECT_EQ(count(assign_layouts(std::move(graph)), "relayout"), 2u);
}

TEST_F(AssignLayouts, OutputsStayRowMajor) {
    const Graph graph = assign_layouts(parse_graph(kTwoConvolutions));
    for (ValueId output : graph.outputs)
        EXPECT_EQ(graph.type(output).layout, runtime::Layout::row_major);
}

TEST_F(AssignLayouts, KeepsTheResult) {
    const Graph graph = parse_graph(kTwoConvolutions);
    const auto inputs = inputs_for(graph);
    const TensorRef expected = interpret(graph, inputs)[0];
    const Graph laid = fuse(assign_layouts(graph));
    const TensorRef got = interpret(laid, inputs)[0];
    for (int64_t i = 0; i < expected->type().numel(); ++i)
        EXPECT_NEAR(got->as<float>()[i], expected->as<float>()[i], 1e-4f);
}

// What only moves elements lies as its operands do: joined along each axis, and cut with steps of
// both signs.
TEST_F(AssignLayouts, ConcatAndSliceFollow) {
    for (const int axis : {0, 1, 2, 3}) {
        const char* joined[] = {"[4, 8, 4, 4]", "[2, 16, 4, 4]", "[2, 8, 8, 4]", "[2, 8, 4, 8]"};
        const Graph graph = parse_graph(runtime::cat(
            "%0: f32[2, 4, 6, 6] = input 0\n%1: f32[8, 4, 3, 3] = input 1\n"
            "%2: f32[2, 8, 4, 4] = conv %0 %1 {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1}\n%3: f32[2, 8, 4, 4] = input 2\n"
            "%4: f32",
            joined[axis], " = concat %2 %3 {axis=", axis,
            "}\n"
            "%5: f32[1, 3, 2, 3] = slice %4 {begin=[1, 7, 0, 0], end=[2, 1, 3, 3], step=[1, -2, 2, 1]}\n%6: f32[1, 3, 2, 3] = relu %5\nreturn %6 %4\n"));
        const Graph laid = assign_layouts(graph);
        EXPECT_EQ(fault_of(laid), "");
        EXPECT_EQ(count(laid, "relayout"), 4u)
            << print(laid);  // both activations on their way in, both results on their way out
        const auto inputs = inputs_for(graph);
        const auto expected = interpret(graph, inputs), got = interpret(laid, inputs);
        for (size_t k = 0; k < expected.size(); ++k)
            for (int64_t i = 0; i < expected[k]->type().numel(); ++i)
                ASSERT_NEAR(got[k]->as<float>()[i], expected[k]->as<float>()[i], 1e-5f)
                    << "axis " << axis << ", result " << k;
    }
}

TEST_F(AssignLayouts, AGraphWithoutConvolutionsStaysAsItIs) {
    constexpr std::string_view text =
        "%0: f32[2, 3, 4, 4] = input 0\n%1: f32[2, 3, 4, 4] = relu %0\nreturn %1\n";
    EXPECT_EQ(print(assign_layouts(parse_graph(text))), text);
}

// A program that laid values out itself: its conversions go, but for those of results.
TEST_F(AssignLayouts, ConversionsOfTheProgramAreMovedWhereTheyAreNeeded) {
    const Graph graph = parse_graph(
        "%0: f32[2, 4, 6, 6] = input 0\n%1: f32[8, 4, 3, 3] = input 1\n"
        "%2: f32[2, 4, 6, 6]@channels_last = relayout %0 {layout=\"channels_last\"}\n"
        "%3: f32[2, 8, 4, 4]@channels_last = conv %2 %1 {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1}\n"
        "%4: f32[2, 8, 4, 4] = relayout %3 {layout=\"row_major\"}\n"
        "%5: f32[2, 8, 4, 4] = relu %4\nreturn %5 %3\n");
    ASSERT_EQ(fault_of(graph), "");
    const Graph laid = assign_layouts(graph);
    EXPECT_EQ(fault_of(laid), "");
    EXPECT_EQ(count(laid, "relayout"), 2u) << print(laid);
    for (size_t k = 0; k < graph.outputs.size(); ++k)
        EXPECT_EQ(laid.type(laid.outputs[k]), graph.type(graph.outputs[k]));
    const auto inputs = inputs_for(graph);
    const auto expected = interpret(graph, inputs), got = interpret(laid, inputs);
    for (size_t k = 0; k < expected.size(); ++k)
        for (int64_t i = 0; i < expected[k]->type().numel(); ++i)
            EXPECT_NEAR(got[k]->as<float>()[i], expected[k]->as<float>()[i], 1e-5f);
}

TEST_F(AssignLayouts, AnOperandThatIsNotPerChannelIsRelaidWithTheRest) {
    const Graph graph = assign_layouts(parse_graph(
        "%0: f32[2, 4, 3, 3] = input 0\n%1: f32[4, 4, 1, 1] = input 1\n%2: f32[3, 3] = input 2\n"
        "%3: f32[2, 4, 3, 3] = conv %0 %1 {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1}\n%4: f32[2, 4, 3, 3] = mul %3 %2\nreturn %4\n"));
    EXPECT_EQ(fault_of(graph), "");
    EXPECT_EQ(graph.type(graph.outputs[0]).layout, runtime::Layout::row_major);
}

}}  // namespace megjit::jit
