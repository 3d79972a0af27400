#include "jit/plan/passes/branch_weights.h"

#include <algorithm>
#include <optional>

#include "jit/step/subgraph.h"

namespace megjit::jit {
namespace {

using runtime::Layout;

constexpr size_t kFirst = 1;  // operand of slot 0: the condition stands before it

// How the node wants its input `place` to lie.
Layout wanted_by(const Graph& graph, const Node& node, size_t place, runtime::Device& device) {
    if (node.kind != NodeKind::op || node.op->weights() != place) return Layout::row_major;
    const std::vector<Type> inputs = graph.types(node.inputs), outputs = graph.types(node.outputs);
    return device.packed_layout({*node.op, node.attrs, inputs}, outputs, static_cast<int>(place));
}

// By operand; nothing where no node reads it.
void note_readers(const Graph& branch, runtime::Device& device,
                  std::vector<std::optional<Layout>>& wanted) {
    const auto note = [&](ValueId value, Layout layout) {
        const Node& source = branch.producer(value);
        if (source.kind != NodeKind::input) return;
        auto& known = wanted[static_cast<size_t>(source.slot) + kFirst];
        known = !known || *known == layout ? layout : Layout::row_major;
    };
    for (const Node& node : branch.nodes())
        for (size_t i = 0; i < node.inputs.size(); ++i)
            note(node.inputs[i], wanted_by(branch, node, i, device));
    for (const ValueId output : branch.outputs) note(output, Layout::row_major);
}

Graph with_inputs_in(const Graph& branch, const std::vector<Layout>& layouts) {
    Rewriter rewrite(branch);
    for (const Node& node : branch.nodes()) {
        if (node.kind != NodeKind::input) {
            rewrite.copy(node);
            continue;
        }
        Type type = branch.type(node.outputs[0]);
        const Layout layout = layouts[static_cast<size_t>(node.slot) + kFirst];
        if (layout != Layout::row_major) type.layout = layout;
        rewrite.replace(node.outputs[0],
                        rewrite.to.add_input(type, node.slot, branch.name(node.outputs[0])));
    }
    return rewrite.finish();
}

}  // namespace

std::vector<Layout> layouts_in_branches(const Node& cond, runtime::Device& device) {
    std::vector<std::optional<Layout>> wanted(cond.inputs.size());
    for (const std::string& text : graph_texts(cond)) note_readers(*subgraph(text), device, wanted);
    std::vector<Layout> layouts;
    for (const auto& layout : wanted) layouts.push_back(layout.value_or(Layout::row_major));
    return layouts;
}

void set_layouts_in_branches(Node& cond, const std::vector<Layout>& layouts) {
    if (std::ranges::all_of(layouts, [](Layout each) { return each == Layout::row_major; })) return;
    for (size_t i = 0; i < cond.attrs.size(); ++i) {
        if (cond.op->attrs[i].kind != runtime::AttrKind::graph) continue;
        const auto branch = subgraph(std::get<std::string>(cond.attrs[i]));
        cond.attrs[i] = print(with_inputs_in(*branch, layouts));
    }
}

}  // namespace megjit::jit
