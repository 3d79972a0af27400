#include "jit/plan/passes/relister.h"

#include "runtime/ops/ordered.h"

namespace megjit::jit {

ValueId viewed_by(const Graph& graph, ValueId value) {
    while (is_view(graph.producer(value))) value = graph.producer(value).inputs[0];
    return value;
}

Relister::Relister(const Graph& graph)
    : from_(graph),
      is_output_(graph.value_count()),
      has_run_(graph.value_count()),
      now_(graph.value_count()),
      viewed_(graph.value_count()) {
    to_.set_device(graph.device());
    for (ValueId output : graph.outputs) is_output_[at(viewed_by(graph, output))] = true;
    for (const Node& node : graph.nodes()) {
        if (node.kind == NodeKind::input)
            set(node.outputs[0],
                to_.add_input(graph.type(node.outputs[0]), node.slot, graph.name(node.outputs[0])));
        if (node.kind == NodeKind::constant) set(node.outputs[0], to_.add_constant(node.constant));
    }
}

void Relister::run(const Node& node) {
    Node copy = node;
    for (ValueId& input : copy.inputs) input = latest(input);
    const bool is_ordered = node.op && runtime::is_ordered(*node.op);
    if (is_ordered && last_exchange_) {
        copy.inputs.resize(node.op->inputs.size());
        copy.inputs.back() = *last_exchange_;
    }
    copy.outputs.clear();
    copy.role.is_recomputed = node.role.is_recomputed || has_run_[at(node.outputs[0])];
    has_run_[at(node.outputs[0])] = true;
    const std::vector<ValueId> outputs = to_.add(std::move(copy), from_.types(node.outputs));
    for (size_t i = 0; i < outputs.size(); ++i) set(node.outputs[i], outputs[i]);
    if (is_ordered) last_exchange_ = outputs.back();
}

ValueId Relister::add(Node node, ValueId read, const Type& type) {
    node.inputs = {read};
    return to_.add(std::move(node), std::span(&type, 1))[0];
}

Graph Relister::finish() {
    for (ValueId output : from_.outputs) to_.outputs.push_back(latest(output));
    to_.prologue = from_.prologue;
    to_.copies = from_.copies;
    return std::move(to_);
}

void Relister::set(ValueId old, ValueId fresh) {
    // What is an output has storage of its own from its first copy on; a second one serves nobody.
    if (!now_[at(old)] || !is_output_[at(old)]) now_[at(old)] = fresh;
}

ValueId Relister::latest(ValueId old) {
    const Node& producer = from_.producer(old);
    if (!is_view(producer)) return *now_[at(old)];
    const ValueId viewed = latest(producer.inputs[0]);
    if (now_[at(old)] && viewed_[at(old)] == viewed) return *now_[at(old)];
    Node copy = producer;
    copy.inputs = {viewed};
    for (size_t i = 1; i < producer.inputs.size(); ++i)
        copy.inputs.push_back(latest(producer.inputs[i]));
    copy.outputs.clear();
    viewed_[at(old)] = viewed;
    now_[at(old)] = to_.add(std::move(copy), from_.types(producer.outputs))[0];
    return *now_[at(old)];
}

}  // namespace megjit::jit
