// Fixed weights become inputs of their own, which the prologue computes and packs. A node takes
// part when
//   1. its weights (OperandKind) are fixed, and the device packs them for this node;
//   2. the device packs them for all their other readers, too: where gradients need the unpacked
//   weights, packed ones would be a second copy;
//   3. no kernel makes the weights from fewer bytes for few rows (makers_of_weights).
// Its other operands move, too, where they are computed from fixed values. Weights that nodes in
// the branches of a condition read (branch_weights.h) are packed likewise.
#include <algorithm>

#include "jit/plan/passes/bound.h"
#include "jit/plan/passes/branch_weights.h"
#include "jit/plan/passes/fusion_group.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {

using runtime::Layout;

bool may_bind(const PipelineOptions& options) {
    return options.device && (!options.memory.limit || options.binds_under_limit) &&
           !options.memory.is_sublinear && !options.memory.only_looks && options.step;
}

std::vector<bool> fixed_values(const Graph& graph, const PipelineOptions& options) {
    std::vector<bool> fixed(graph.value_count());
    for (const Node& node : graph.nodes()) {
        bool is_fixed = node.kind == NodeKind::constant;
        if (node.kind == NodeKind::input)
            is_fixed = !options.memory.limit && options.step->input(node.slot).is_fixed();
        if (node.kind == NodeKind::op)
            is_fixed = !node.inputs.empty() && !runtime::is_ordered(*node.op) &&
                       std::all_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId input) { return fixed[at(input)]; });
        for (ValueId output : node.outputs) fixed[at(output)] = is_fixed;
    }
    return fixed;
}

namespace {

class WeightBinder {
public:
    WeightBinder(const Graph& graph, const PipelineOptions& options)
        : from_(graph),
          options_(options),
          fixed_(fixed_values(graph, options)),
          readers_(reader_counts(graph)),
          copied_(graph.value_count()),
          bound_(graph.value_count()),
          rewrite_(graph) {
        prologue_.set_device(graph.device());
        std::vector<int> others(graph.value_count());  // by value: readers that take it unpacked
        for (ValueId output : graph.outputs) ++others[at(output)];
        for (const Node& node : graph.nodes()) {
            packed_.push_back(packed_layout(node));
            for (size_t i = 0; i < node.inputs.size(); ++i)
                others[at(node.inputs[i])] +=
                    packed_.back() == Layout::row_major || i != node.op->weights();
        }
        for (size_t id = 0; id < packed_.size(); ++id)
            if (packed_[id] != Layout::row_major && others[at(weights_of(graph.nodes()[id]))])
                packed_[id] = Layout::row_major;
    }

    Graph run() {
        for (size_t id = 0; id < packed_.size(); ++id) {
            const Node& node = from_.nodes()[id];
            Node fresh = node;
            for (size_t i = 0; i < node.inputs.size(); ++i)
                fresh.inputs[i] = rewrite_.map(node.inputs[i]);
            if (packed_[id] != Layout::row_major) bind_operands(node, fresh, packed_[id]);
            if (node.op == &ops::cond()) bind_branches(node, fresh);
            const std::vector<ValueId> outputs =
                rewrite_.to.add(std::move(fresh), from_.types(node.outputs));
            for (size_t i = 0; i < outputs.size(); ++i)
                rewrite_.replace(node.outputs[i], outputs[i]);
        }
        Graph result = drop_dead(rewrite_.finish());  // drops the nodes that moved to the prologue
        if (!prologue_.outputs.empty())
            result.prologue = std::make_shared<const Graph>(std::move(prologue_));
        return result;
    }

private:
    bool is_computed(ValueId id) const {
        return fixed_[at(id)] && from_.producer(id).kind == NodeKind::op;
    }

    static ValueId weights_of(const Node& node) { return node.inputs[*node.op->weights()]; }

    // How the device wants the weights of the node; row-major if they do not come from the
    // prologue.
    Layout packed_layout(const Node& node) const {
        if (node.kind != NodeKind::op || !node.op->weights()) return Layout::row_major;
        const ValueId weights = weights_of(node);
        if (!fixed_[at(weights)] || fixed_[at(node.inputs[0])] ||
            from_.type(weights).layout != Layout::row_major ||
            makers_of_weights(from_, options_, readers_, node).are_for_few_rows())
            return Layout::row_major;
        const std::vector<Type> inputs = from_.types(node.inputs),
                                outputs = from_.types(node.outputs);
        return options_.device->packed_layout({*node.op, node.attrs, inputs}, outputs,
                                              static_cast<int>(*node.op->weights()));
    }

    void bind_operands(const Node& node, Node& fresh, Layout layout) {
        const size_t weights = *node.op->weights();
        fresh.inputs[weights] = bound(node.inputs[weights], layout);
        for (size_t i = weights + 1; i < node.inputs.size(); ++i)
            if (is_computed(node.inputs[i]))
                fresh.inputs[i] = bound(node.inputs[i], from_.type(node.inputs[i]).layout);
    }

    void bind_branches(const Node& node, Node& fresh) {
        std::vector<Layout> layouts = layouts_in_branches(node, *options_.device);
        for (size_t i = 0; i < layouts.size(); ++i) {
            const ValueId weights = node.inputs[i];
            if (!fixed_[at(weights)] || from_.type(weights).layout != Layout::row_major)
                layouts[i] = Layout::row_major;
            if (layouts[i] != Layout::row_major) fresh.inputs[i] = bound(weights, layouts[i]);
        }
        set_layouts_in_branches(fresh, layouts);
    }

    // Returns the program's input that holds the value in that layout.
    ValueId bound(ValueId id, Layout layout) {
        auto& known = bound_[at(id)];
        for (const auto& [its, input] : known)
            if (its == layout) return input;
        ValueId made = copied(id);
        Type type = from_.type(id);
        if (type.layout != layout) {
            type.layout = layout;
            Node relayout{.kind = NodeKind::op,
                          .op = &ops::relayout(),
                          .inputs = {made},
                          .where = from_.producer(id).where};
            relayout.attrs.emplace_back(to_string(layout));
            made = prologue_.add(std::move(relayout), {&type, 1})[0];
        }
        const int slot = static_cast<int>(options_.step->inputs.size() + prologue_.outputs.size());
        prologue_.outputs.push_back(made);
        known.emplace_back(layout, rewrite_.to.add_input(type, slot));
        return known.back().second;
    }

    // Copies the value into the prologue, with all that it is computed from.
    ValueId copied(ValueId id) {
        if (copied_[at(id)]) return *copied_[at(id)];
        const Node& node = from_.producer(id);
        Node fresh = node;
        for (ValueId& input : fresh.inputs) input = copied(input);
        const std::vector<ValueId> outputs =
            prologue_.add(std::move(fresh), from_.types(node.outputs));
        for (size_t i = 0; i < outputs.size(); ++i) copied_[at(node.outputs[i])] = outputs[i];
        return *copied_[at(id)];
    }

    const Graph& from_;
    const PipelineOptions& options_;
    std::vector<bool> fixed_;
    std::vector<uint32_t> readers_;  // by value
    std::vector<Layout> packed_;  // by node: the layout of its weights
    std::vector<std::optional<ValueId>> copied_;  // by value: its copy in the prologue
    std::vector<std::vector<std::pair<Layout, ValueId>>>
        bound_;  // by value: inputs of the new graph
    Rewriter rewrite_;
    Graph prologue_;
};

}  // namespace

Graph bind_weights(Graph graph, const PipelineOptions& options) {
    if (!may_bind(options)) return graph;
    return WeightBinder(graph, options).run();
}

}  // namespace megjit::jit
