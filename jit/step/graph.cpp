#include "jit/step/graph.h"

#include <algorithm>

#include "runtime/core/host_view.h"
#include "runtime/core/rematerializer.h"
#include "runtime/eager/dispatch.h"

namespace megjit::jit {

ValueId Graph::add_input(const Type& type, int slot, std::string name) {
    Node node{.kind = NodeKind::input, .slot = slot};
    if (!name.empty()) node.names = {std::move(name)};
    return add(std::move(node), {&type, 1})[0];
}

ValueId Graph::add_constant(TensorRef tensor) {
    const Type type = tensor->type();
    Node node{.kind = NodeKind::constant, .constant = std::move(tensor)};
    return add(std::move(node), {&type, 1})[0];
}

std::string Graph::name(ValueId id) const {
    const Node& node = producer(id);
    const size_t output = at(id) - at(node.outputs[0]);
    return output < node.names.size() ? node.names[output] : std::string();
}

void Graph::set_name(ValueId id, std::string name) {
    Node& node = nodes_[at(value(id).producer)];
    node.names.resize(node.outputs.size());
    node.names[at(id) - at(node.outputs[0])] = std::move(name);
}

std::vector<ValueId> Graph::add(Node node, std::span<const Type> outputs) {
    const auto id = static_cast<NodeId>(nodes_.size());
    if (node.constant) {  // passes and programs keep its address
        node.constant = runtime::readable_on(runtime::host_device(), node.constant);
        runtime::Rematerializer::instance().keep(*node.constant);
    }
    node.outputs.clear();
    for (const Type& type : outputs) {
        node.outputs.push_back(static_cast<ValueId>(values_.size()));
        values_.push_back({type, id});
    }
    nodes_.push_back(std::move(node));
    return nodes_.back().outputs;
}

runtime::Device& Graph::device() const { return device_ ? *device_ : runtime::host_device(); }

void Graph::reserve(const Graph& like) {
    nodes_.reserve(like.nodes_.size() + 16);
    values_.reserve(like.values_.size() + 16);
}

std::vector<ValueId> Graph::add_op(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs,
                                   const Node& like) {
    return add({.op = &op,
                .attrs = std::move(attrs),
                .inputs = std::move(inputs),
                .where = like.where,
                .marks = like.marks,
                .role = like.role});
}

std::vector<ValueId> Graph::add(Node op) {
    const std::vector<Type> results = runtime::infer({*op.op, op.attrs, types(op.inputs)});
    return add(std::move(op), results);
}

std::vector<Type> Graph::types(std::span<const ValueId> ids) const {
    std::vector<Type> result;
    result.reserve(ids.size());
    for (ValueId id : ids) result.push_back(type(id));
    return result;
}

void Rewriter::copy(const Node& node) {
    Node fresh = node;
    for (ValueId& input : fresh.inputs) input = map(input);
    const std::vector<ValueId> outputs = to.add(std::move(fresh), from.types(node.outputs));
    for (size_t i = 0; i < outputs.size(); ++i) replace(node.outputs[i], outputs[i]);
}

std::vector<ValueId> Rewriter::map(std::span<const ValueId> old) const {
    std::vector<ValueId> result;
    result.reserve(old.size());
    for (ValueId id : old) result.push_back(map(id));
    return result;
}

Graph Rewriter::finish() {
    to.outputs = map(from.outputs);
    to.prologue = from.prologue;
    to.copies = from.copies;
    return std::move(to);
}

std::vector<codegen::LaunchShape> launches_of(const Node& fused) {
    std::vector<codegen::LaunchShape> launches{fused.kernel->launch};
    launches.insert(launches.end(), fused.more_launches.begin(), fused.more_launches.end());
    for (codegen::LaunchShape& launch : launches) launch.joins = launches.size() > 1;
    return launches;
}

std::string fault_of(const Graph& graph) {
    using runtime::cat;
    std::vector<bool> seen_slot;
    size_t defined = 0;
    for (const Node& node : graph.nodes()) {
        const std::string_view name = node.op ? std::string_view(node.op->name) : "node";
        for (ValueId input : node.inputs)
            if (at(input) >= defined)
                return cat(name, " reads %", at(input), " before it is defined");
        defined += node.outputs.size();
        switch (node.kind) {
            case NodeKind::input: {
                if (node.slot < 0) return "an input has no slot";
                if (seen_slot.size() <= static_cast<size_t>(node.slot))
                    seen_slot.resize(node.slot + 1);
                if (seen_slot[node.slot]) return cat("slot ", node.slot, " has two inputs");
                seen_slot[node.slot] = true;
                break;
            }
            case NodeKind::constant:
                if (!node.constant || !node.constant->has_data()) return "a constant has no data";
                break;
            case NodeKind::op: {
                std::vector<Type> inputs = graph.types(node.inputs);
                const std::vector<Type> outputs = graph.types(node.outputs);
                try {
                    const std::vector<Type> expected =
                        runtime::infer({*node.op, node.attrs, inputs});
                    for (size_t i = 0; i < outputs.size(); ++i)
                        if (expected.size() != outputs.size() ||
                            expected[i].dtype != outputs[i].dtype ||
                            !(expected[i].shape == outputs[i].shape))
                            return cat(name, " has type ", to_string(outputs[i]),
                                       ", inference gives ",
                                       i < expected.size() ? to_string(expected[i]) : "none");
                } catch (const runtime::Error& error) {
                    return cat(name, " does not infer: ", error.what());
                }
                break;
            }
            case NodeKind::fused:
                if (!node.kernel) return "a fused node has no kernel";
                if (std::string fault = codegen::fault_of(node.kernel->kernel); !fault.empty())
                    return fault;
                if (codegen::memory_inputs(node.kernel->kernel) * launches_of(node).size() !=
                        node.inputs.size() ||
                    node.kernel->kernel.outputs.size() * launches_of(node).size() !=
                        node.outputs.size())
                    return "a fused node and its kernel differ in their operands";
                break;
        }
    }
    for (ValueId output : graph.outputs)
        if (at(output) >= graph.value_count())
            return cat("the graph returns %", at(output), ", which nothing defines");
    return "";
}

std::vector<TensorRef> interpret(const Graph& graph, std::span<const TensorRef> inputs) {
    std::vector<TensorRef> values(graph.value_count());
    std::vector<const Node*> last_readers(graph.value_count());
    for (const Node& node : graph.nodes())
        for (ValueId input : node.inputs) last_readers[at(input)] = &node;
    for (ValueId output : graph.outputs) last_readers[at(output)] = nullptr;
    for (const Node& node : graph.nodes()) {
        if (node.kind == NodeKind::input) {
            values[at(node.outputs[0])] = inputs[node.slot];
            continue;
        }
        if (node.kind == NodeKind::constant) {
            values[at(node.outputs[0])] = runtime::copied_to(node.constant, graph.device());
            continue;
        }
        std::vector<TensorRef> operands;
        for (ValueId input : node.inputs) operands.push_back(values[at(input)]);
        for (ValueId input : node.inputs)
            if (last_readers[at(input)] == &node) values[at(input)] = nullptr;
        if (node.kind == NodeKind::op) {
            const auto results = runtime::compute(*node.op, node.attrs, operands, &graph.device());
            for (size_t i = 0; i < results.size(); ++i) values[at(node.outputs[i])] = results[i];
            continue;
        }
        std::vector<runtime::HostView> views(operands.begin(), operands.end());
        std::vector<TensorRef> results;
        std::vector<void*> in, out;
        for (const runtime::HostView& view : views) in.push_back(const_cast<void*>(view.data()));
        for (ValueId output : node.outputs) {
            results.push_back(runtime::empty_tensor(runtime::host_device(), graph.type(output)));
            out.push_back(results.back()->data());
        }
        const codegen::KernelIR& kernel = node.kernel->kernel;
        void **next_in = in.data(), **next_out = out.data();
        for (const codegen::LaunchShape& launch : launches_of(node)) {
            codegen::interpret(kernel, launch, next_in, next_out);
            next_in += codegen::memory_inputs(kernel);
            next_out += kernel.outputs.size();
        }
        for (size_t i = 0; i < results.size(); ++i)
            values[at(node.outputs[i])] = runtime::copied_to(results[i], graph.device());
    }
    std::vector<TensorRef> results;
    for (ValueId output : graph.outputs) results.push_back(values[at(output)]);
    return results;
}

}  // namespace megjit::jit
