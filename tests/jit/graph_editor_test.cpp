#include "jit/file/graph_editor.h"

#include "runtime/host/error.h"
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

// y = relu(x + w)
struct Sum {
    Sum() {
        x = editor.add_input(floats_of({2, 3}), "x");
        w = editor.add_constant(floats({3}, {1, 2, 3}), "w", true);
        sum = editor.add_op(find_op("add"), {}, {x, w})[0];
        y = editor.add_op(find_op("relu"), {}, {sum})[0];
        editor.set_outputs({y});
    }
    std::string text() { return print(editor.model(editor.outputs(), {.optimize = false}).graph); }

    GraphEditor editor;
    ValueId x, w, sum, y;
};

TEST_F(GraphEdits, AModelHasWhatItsOutputsNeedAndNothingElse) {
    Sum net;
    net.editor.add_op(find_op("exp"), {}, {net.x});
    const Model model =
        net.editor.model(net.editor.outputs(), {.optimize = false, .keep_op_names = true});
    EXPECT_EQ(model.graph.nodes().size(), 4);
    EXPECT_EQ(model.node_names, (std::vector<std::string>{"x", "w", "ADD", "RELU"}));
    EXPECT_EQ(fault_of(model.graph), "");
}

TEST_F(GraphEdits, ALoadedModelIsTheSameModel) {
    Sum net;
    const Model model = net.editor.model(
        net.editor.outputs(), {.optimize = false, .keep_value_names = 2, .keep_op_names = true});
    GraphEditor other;
    other.set_outputs(other.add_model(model));
    const Model again = other.model(
        other.outputs(), {.optimize = false, .keep_value_names = 2, .keep_op_names = true});
    const auto bytes_of = [](const Model& one) {
        return to_bytes({.functions = {std::make_shared<const Model>(one)}});
    };
    EXPECT_EQ(bytes_of(again), bytes_of(model));
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
    net.editor.set_outputs({static_cast<ValueId>(result->trace.value)});
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
    net.editor.set_outputs({last});
    EXPECT_EQ(net.editor.order().size(), 100004);
}

}}  // namespace megjit::jit
