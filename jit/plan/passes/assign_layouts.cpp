// Activations of convolutions, pooling and batch norm lie channels-last (N, spatial..., C) between
// them: oneDNN's primitives are fastest there, and need no reordered copies.
// runtime/ops/operand_layouts.h has the rules. Where two layouts meet, one `relayout` copies; equal
// ones are shared. The program's own ones go: results keep their layout, all other values get the
// best one. A primitive that is as fast on either takes activations as they lie. So does a GPU's
// reduction over the spatial axes, a generated kernel, whose result has the same bytes in both
// orders. A graph without one that prefers channels-last stays as it is: there is nothing to win.
#include <algorithm>

#include "jit/plan/passes/passes.h"
#include "runtime/ops/operand_layouts.h"

namespace megjit::jit {
namespace {

using runtime::Layout;

class LayoutAssigner {
public:
    explicit LayoutAssigner(const Graph& graph) : rewrite_(graph), other_(graph.value_count()) {}

    Graph run() {
        for (const Node& node : rewrite_.from.nodes()) place(node);
        for (ValueId output : rewrite_.from.outputs)
            rewrite_.replace(output, as(output, rewrite_.from.type(output).layout));
        return drop_dead(rewrite_.finish());
    }

private:
    const Type& type(ValueId old) const { return rewrite_.to.type(rewrite_.map(old)); }

    // The value in that layout, relaid once at most.
    ValueId as(ValueId old, Layout layout) {
        const ValueId now = rewrite_.map(old);
        if (rewrite_.to.type(now).layout == layout) return now;
        std::optional<ValueId>& other = other_[at(old)];
        if (!other) {
            Type wanted = rewrite_.to.type(now);
            wanted.layout = layout;
            Node node{.kind = NodeKind::op,
                      .op = &ops::relayout(),
                      .inputs = {now},
                      .role = rewrite_.to.producer(now).role};
            node.attrs.emplace_back(to_string(layout));
            other = rewrite_.to.add(std::move(node), {&wanted, 1})[0];
        }
        return *other;
    }

    // Is it a GPU's reduction over all spatial axes of a channels-last tensor?
    bool reduces_as_it_lies(const Node& node, const Type& operand) const {
        if (rewrite_.from.device().is_host() || !node.op->reduction ||
            operand.layout != Layout::channels_last)
            return false;
        const uint32_t spatial = ((1u << operand.rank()) - 1) & ~3u;
        return (runtime::reduced_axes({*node.op, node.attrs, {&operand, 1}}) & spatial) == spatial;
    }

    std::vector<Layout> layouts_of(const Node& node, std::span<const Type> operands) const {
        if (!operands.empty() && reduces_as_it_lies(node, operands[0]))
            return {Layout::channels_last};
        const bool takes_both =
            node.op->prefers_channels_last && !prefers_channels_last(rewrite_.from, node);
        return runtime::operand_layouts(
            *node.op, operands,
            takes_both ? runtime::ChannelsLast::where_it_is : runtime::ChannelsLast::everywhere);
    }

    void place(const Node& node) {
        if (node.kind != NodeKind::op) return rewrite_.copy(node);
        if (node.op == &ops::relayout())
            return rewrite_.replace(node.outputs[0], rewrite_.map(node.inputs[0]));
        std::vector<Type> operands;
        for (ValueId input : node.inputs) operands.push_back(type(input));
        const std::vector<Layout> layouts = layouts_of(node, operands);
        Node fresh = node;
        for (size_t i = 0; i < node.inputs.size(); ++i) {
            fresh.inputs[i] = as(node.inputs[i], layouts[i]);
            operands[i] = rewrite_.to.type(fresh.inputs[i]);
        }
        const std::vector<Type> results = runtime::infer({*node.op, node.attrs, operands});
        const std::vector<ValueId> outputs = rewrite_.to.add(std::move(fresh), results);
        for (size_t i = 0; i < outputs.size(); ++i) rewrite_.replace(node.outputs[i], outputs[i]);
    }

    Rewriter rewrite_;
    std::vector<std::optional<ValueId>>
        other_;  // by old value: the copy in the layout it was not made in
};

}  // namespace

bool prefers_channels_last(const Graph& graph, const Node& node) {
    if (node.kind != NodeKind::op || !node.op->prefers_channels_last) return false;
    if (!graph.device().is_host()) return true;
    const std::vector<Type> inputs = graph.types(node.inputs);
    return node.op->prefers_channels_last({*node.op, node.attrs, inputs},
                                          graph.types(node.outputs));
}

Graph assign_layouts(Graph graph) {
    const auto prefers = [&](const Node& node) { return prefers_channels_last(graph, node); };
    if (std::ranges::none_of(graph.nodes(), prefers)) return graph;
    return LayoutAssigner(graph).run();
}

}  // namespace megjit::jit
