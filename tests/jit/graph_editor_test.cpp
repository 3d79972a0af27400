#include "jit/graph_editor.h"

#include "runtime/error.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

using GraphEdits = World;
using runtime::find_op;

Type floats_of(const runtime::Shape& shape) {
    return {.dtype = runtime::DType::f32, .shape = shape};
}

std::string refusal(const std::function<void()>& edit) {
    try {
        edit();
        return "accepted";
    } catch (const runtime::UserError& error) { return error.what(); }
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

// y = relu(x + w)
struct Sum {
    Sum() {
        x = editor.add_input(floats_of({2, 3}), "x");
        w = editor.add_constant(floats({3}, {1, 2, 3}), "w", true);
        sum = editor.add_op(find_op("add"), {}, {x, w})[0];
        y = editor.add_op(find_op("relu"), {}, {sum})[0];
        editor.set_roots({.outputs = {y}});
    }
    std::string text() {
        return print(editor.model(editor.roots().outputs, {.optimize = false}).graph);
    }

    GraphEditor editor;
    ValueId x, w, sum, y;
};

TEST_F(GraphEdits, AModelHasWhatItsOutputsNeedAndNothingElse) {
    Sum net;
    net.editor.add_op(find_op("exp"), {}, {net.x});
    const Model model =
        net.editor.model(net.editor.roots().outputs,
                         {.optimize = false, .keep_op_names = true, .keep_param_names = true});
    EXPECT_EQ(model.graph.nodes().size(), 4);
    EXPECT_EQ(model.node_names, (std::vector<std::string>{"x", "w", "ADD", "RELU"}));
    EXPECT_EQ(fault_of(model.graph), "");
}

TEST_F(GraphEdits, ALoadedModelIsTheSameModel) {
    Sum net;
    const Model model = net.editor.model(net.editor.roots().outputs, {.optimize = false,
                                                                      .keep_value_names = 2,
                                                                      .keep_op_names = true,
                                                                      .keep_param_names = true});
    GraphEditor other;
    other.set_roots({.outputs = other.add_model(model)});
    const Model again = other.model(other.roots().outputs, {.optimize = false,
                                                            .keep_value_names = 2,
                                                            .keep_op_names = true,
                                                            .keep_param_names = true});
    EXPECT_EQ(to_bytes(again), to_bytes(model));
}

TEST_F(GraphEdits, WhatTheNewValueIsMadeFromGoesOnReadingTheOld) {
    Sum net;
    const ValueId doubled = net.editor.add_op(find_op("exp"), {}, {net.x})[0];
    net.editor.replace({{net.x, doubled}});
    EXPECT_TRUE(contains(net.text(), "exp %0")) << net.text();
    EXPECT_FALSE(contains(net.text(), "add %0")) << net.text();
}

TEST_F(GraphEdits, TypesFollowAReplacedInput) {
    Sum net;
    net.editor.replace({{net.x, net.editor.add_input(floats_of({7, 3}), "z")}});
    EXPECT_EQ(net.editor.value(net.y).type, floats_of({7, 3}));
}

TEST_F(GraphEdits, AnEditThatFailsChangesNothing) {
    Sum net;
    const std::string before = net.text();
    const std::string why = refusal(
        [&] { net.editor.replace({{net.x, net.editor.add_input(floats_of({7, 4}), "z")}}); });
    EXPECT_TRUE(contains(why, "node 'ADD' (add)")) << why;
    EXPECT_EQ(net.text(), before);
}

TEST_F(GraphEdits, ALoopIsNamed) {
    Sum net;
    const std::string why =
        refusal([&] { net.editor.set_operand(net.editor.value(net.sum).producer, 0, net.y); });
    EXPECT_TRUE(contains(why, "'ADD' (add) would read its own result, through 'RELU'")) << why;
    EXPECT_TRUE(contains(net.text(), "add %0"));
}

TEST_F(GraphEdits, OpsOnPlaceholdersGrowTheGraph) {
    Sum net;
    const TensorRef result =
        runtime::apply(find_op("neg"), {}, {{net.editor.placeholder(net.y)}})[0];
    net.editor.set_roots({.outputs = {static_cast<ValueId>(result->trace.value)}});
    EXPECT_TRUE(contains(net.text(), "neg %3")) << net.text();
}

TEST_F(GraphEdits, APlaceholderOfAGraphThatIsGoneIsRefused) {
    TensorRef orphan;
    {
        Sum net;
        orphan = net.editor.placeholder(net.y);
    }
    EXPECT_TRUE(contains(refusal([&] { runtime::apply(find_op("neg"), {}, {&orphan, 1}); }),
                         "a network that is gone"));
}

TEST_F(GraphEdits, DeepGraphsNeedNoDeepStack) {
    Sum net;
    ValueId last = net.y;
    for (int i = 0; i < 100000; ++i) last = net.editor.add_op(find_op("neg"), {}, {last})[0];
    net.editor.set_roots({.outputs = {last}});
    EXPECT_EQ(net.editor.order().size(), 100004);
}

// ---- attributes that hold extents

std::string refitted(std::string_view op, Attrs attrs, const Type& before, const Type& after,
                     BatchChange batch = {}) {
    const Node node{.op = &find_op(op), .attrs = std::move(attrs)};
    try {
        return runtime::to_string(refit(node, {&before, 1}, {&after, 1}, batch)[0]);
    } catch (const runtime::UserError&) { return "refused"; }
}
using Ints = std::vector<int64_t>;

TEST(Refit, ABatchThatLeadsFollowsThroughReshape) {
    EXPECT_EQ(refitted("reshape", {Ints{4, 6}}, floats_of({4, 2, 3}), floats_of({8, 2, 3}), {4, 8}),
              "[8, 6]");
    EXPECT_EQ(refitted("reshape", {Ints{8, 3}}, floats_of({4, 2, 3}), floats_of({1, 2, 3}), {4, 1}),
              "[2, 3]");
    EXPECT_EQ(refitted("reshape", {Ints{1, 6}}, floats_of({1, 2, 3}), floats_of({5, 2, 3}), {1, 5}),
              "[5, 6]");
    EXPECT_EQ(refitted("reshape", {Ints{1, 2, 3}}, floats_of({2, 3}), floats_of({10, 3}), {1, 5}),
              "[5, 2, 3]");
}

TEST(Refit, AReshapeWithTwoReadingsIsRefused) {
    EXPECT_EQ(refitted("reshape", {Ints{8, 4, 3}}, floats_of({32, 3}), floats_of({64, 3}), {4, 8}),
              "refused");  // [t, B, c]?
    EXPECT_EQ(refitted("reshape", {Ints{6}}, floats_of({1, 6}), floats_of({5, 6}), {1, 5}),
              "refused");  // x[0]?
    EXPECT_EQ(
        refitted("reshape", {Ints{2, 12}}, floats_of({2, 4, 3}), floats_of({2, 8, 3}), {4, 8}),
        "refused");
    EXPECT_EQ(refitted("reshape", {Ints{4, 6}}, floats_of({4, 2, 3}), floats_of({8, 2, 3})),
              "refused");  // no batch is known
}

TEST(Refit, WholeAxesStayWholeAndPartsAreRefused) {
    EXPECT_EQ(refitted("slice", {Ints{0, 1}, Ints{4, 2}, Ints{1, 1}}, floats_of({4, 3}),
                       floats_of({8, 3})),
              "[0, 1]");
    EXPECT_EQ(refitted("slice", {Ints{3}, Ints{-1}, Ints{-1}}, floats_of({4}), floats_of({8})),
              "[7]");
    EXPECT_EQ(refitted("slice", {Ints{1}, Ints{4}, Ints{1}}, floats_of({4}), floats_of({8})),
              "refused");
}

TEST(Refit, IndexedAxesKeepTheirExtent) {
    EXPECT_EQ(refitted("index_get", {Ints{1}}, floats_of({4, 3}), floats_of({8, 3})), "[1]");
    EXPECT_EQ(refitted("index_get", {Ints{0}}, floats_of({4, 3}), floats_of({8, 3})), "refused");
    EXPECT_EQ(refitted("gather", {int64_t{-1}}, floats_of({4, 3}), floats_of({4, 5})), "refused");
}

TEST(Refit, BroadcastsFollowTheAxesThatTheyKeep) {
    EXPECT_EQ(refitted("broadcast_to", {Ints{2, 4, 9}}, floats_of({4, 1}), floats_of({8, 1})),
              "[2, 8, 9]");
}

}}  // namespace megjit::jit
