#include "jit/file/graph_editor.h"

#include <algorithm>

#include "jit/plan/pipeline.h"
#include "runtime/core/rematerializer.h"
#include "runtime/host/error.h"
#include "runtime/host/user_line.h"
#include "runtime/ops/refit.h"

namespace megjit::jit {

using runtime::cat;
using runtime::ErrorKind;
using runtime::Tensors;

namespace {

std::string quoted(const EditedNode& node) {
    const std::string line = node.node.where.empty() ? "" : ", " + node.node.where;
    return cat("'", node.name, "'", node.node.op ? cat(" (", node.node.op->name, line, ")") : "");
}

void check_constant(const runtime::Tensor& tensor) {
    if (!tensor.has_data())
        runtime::user_error(
            {.what = cat("network: a constant ", to_string(tensor.type()), " has no value"),
             .why = "it was made by a graph that is edited, or in a running trace"});
}

[[noreturn]] void fail_at(const EditedNode& node, runtime::UserError error) {
    error.message.what = cat("network: node ", quoted(node), ": ", error.message.what);
    runtime::user_error(std::move(error.message), error.kind);
}

}  // namespace

GraphEditor::GraphEditor(runtime::Device& device)
    : GraphTracer(next_trace_id(runtime::TraceLink::kEdited)), device_(device) {
    runtime::add_edited_graph(id_, *this);
}
GraphEditor::~GraphEditor() { runtime::remove_edited_graph(id_); }

// ---- growing

std::string GraphEditor::fresh_name(const std::string& base) {
    std::string name = base;
    while (!names_.try_emplace(name, 0).second) name = cat(base, "[", names_[base]++, "]");
    return name;
}

std::vector<ValueId> GraphEditor::append(EditedNode edited, std::span<const Type> types) {
    const auto id = static_cast<NodeId>(nodes_.size());
    if (edited.node.constant) runtime::Rematerializer::instance().keep(*edited.node.constant);
    if (!edited.device)
        edited.device = edited.node.inputs.empty()
                            ? &device_
                            : node(value(edited.node.inputs[0]).producer).device;
    edited.node.outputs.clear();
    for (size_t i = 0; i < types.size(); ++i) {
        edited.node.outputs.push_back(static_cast<ValueId>(values_.size()));
        values_.push_back({types[i], id, i ? cat(edited.name, ":o", i) : edited.name});
    }
    nodes_.push_back(std::move(edited));
    return nodes_.back().node.outputs;
}

ValueId GraphEditor::add_input(const Type& type, const std::string& name, runtime::Device* device) {
    return append({.node = {.kind = NodeKind::input},
                   .name = fresh_name(name),
                   .follows_batch = true,
                   .device = device},
                  {&type, 1})[0];
}

ValueId GraphEditor::add_constant(TensorRef tensor, const std::string& name, bool is_parameter) {
    check_constant(*tensor);
    const Type type = tensor->type();
    runtime::Device* device = tensor->is_constant ? nullptr : &tensor->device();
    return append({.node = {.kind = NodeKind::constant, .constant = std::move(tensor)},
                   .name = fresh_name(name),
                   .is_parameter = is_parameter,
                   .follows_batch = true,
                   .device = device},
                  {&type, 1})[0];
}

std::vector<ValueId> GraphEditor::add_op(const OpDef& op, const Attrs& attrs,
                                         std::vector<ValueId> inputs) {
    std::vector<Type> types;
    for (ValueId input : inputs) types.push_back(value(input).type);
    const std::vector<Type> results = runtime::infer({op, attrs, types});
    return append({.node = {.op = &op, .attrs = attrs, .inputs = std::move(inputs)},
                   .name = fresh_name(type_name_of(op)),
                   .follows_batch = !runtime::has_extents(op),
                   .operands = types},
                  results);
}

std::vector<ValueId> GraphEditor::add_graph(const Graph& graph, std::span<const ValueId> inputs,
                                            bool follows_batch) {
    std::vector<ValueId> map(graph.value_count());
    for (const Node& node : graph.nodes()) {
        if (node.kind == NodeKind::input) {
            map[at(node.outputs[0])] = inputs[static_cast<size_t>(node.slot)];
            continue;
        }
        const NotedName noted = NotedName::from(node.where);
        const std::string base = node.op ? type_name_of(*node.op) : "const";
        EditedNode edited{.node = node,
                          .name = fresh_name(noted.node.empty() ? base : noted.node),
                          .is_parameter = noted.is_parameter,
                          .follows_batch = follows_batch,
                          .operands = graph.types(node.inputs)};
        edited.node.where = noted.line;
        for (ValueId& input : edited.node.inputs) input = map[at(input)];
        const std::vector<ValueId> results = append(std::move(edited), graph.types(node.outputs));
        for (size_t i = 0; i < results.size(); ++i) map[at(node.outputs[i])] = results[i];
        if (!noted.variable.empty()) values_[at(results[0])].name = noted.variable;
    }
    std::vector<ValueId> results;
    for (ValueId output : graph.outputs) results.push_back(map[at(output)]);
    return results;
}

std::vector<ValueId> GraphEditor::add_model(const Model& model) {
    std::vector<ValueId> inputs(model.input_names.size());
    Rewriter named(model.graph);
    size_t index = 0;
    for (const Node& node : model.graph.nodes()) {
        Node with_name = node;
        const bool is_parameter = std::find(model.params.begin(), model.params.end(),
                                            node.outputs[0]) != model.params.end();
        if (node.kind != NodeKind::input)
            with_name.where = NotedName{.node = model.node_names[index],
                                        .variable = model.value_names[at(node.outputs[0])],
                                        .is_parameter = is_parameter}
                                  .where();
        else
            inputs[static_cast<size_t>(node.slot)] =
                add_input(model.graph.type(node.outputs[0]),
                          model.input_names[static_cast<size_t>(node.slot)]);
        if (node.kind == NodeKind::input) nodes_.back().follows_batch = model.follows_batch;
        named.copy(with_name);
        ++index;
    }
    const std::vector<ValueId> results = add_graph(named.finish(), inputs, model.follows_batch);
    for (size_t i = 0; i < results.size(); ++i)
        if (node(value(results[i]).producer).node.kind == NodeKind::op)
            values_[at(results[i])].name = model.output_names[i];
    return results;
}

// ---- ops on placeholders

TensorRef GraphEditor::placeholder(ValueId value) const {
    const EditedValue& variable = this->value(value);
    return GraphTracer::placeholder(value, variable.type, *node(variable.producer).device);
}

ValueId GraphEditor::capture(const TensorRef& tensor) {
    if (!tensor->has_data())
        runtime::user_error(
            {.what = cat("network: an operand ", to_string(tensor->type()), " belongs to ",
                         tensor->trace.is_edited() ? "another network" : "a running trace"),
             .fix = "dump and load both into one network, or pass a value"});
    return add_constant(tensor, tensor->is_constant ? "const" : "param", !tensor->is_constant);
}

runtime::Results GraphEditor::on_op(const OpDef& op, const Attrs& attrs,
                                    std::span<const TensorRef> inputs, runtime::Device&) {
    if (op.is_data_dependent())
        runtime::user_error(
            {.what = cat("network: the shape of ", op.name, "'s result depends on values"),
             .why = "a graph has static shapes"});
    runtime::Results results;
    const std::vector<ValueId> made = add_op(op, attrs, values_of(inputs));
    nodes_.back().node.where = runtime::user_line();
    for (ValueId id : made) results.push_back(placeholder(id));
    return results;
}

void GraphEditor::on_read(runtime::Tensor& tensor) {
    fail_to_read(static_cast<ValueId>(tensor.trace.value));
}

void GraphEditor::fail_to_read(ValueId id) const {
    const EditedValue& variable = value(id);
    runtime::user_error({.what = cat("network: the variable '", variable.name, "' ",
                                     to_string(variable.type), " has no value"),
                         .why = "it stands for what the graph computes",
                         .fix = "run Network.infer, or read constants with numpy()"},
                        ErrorKind::runtime);
}

// ---- looking

std::vector<bool> GraphEditor::ancestors(std::span<const ValueId> of) const {
    std::vector<bool> found(nodes_.size());
    std::vector<NodeId> open;
    const auto visit = [&](ValueId id) {
        const NodeId producer = value(id).producer;
        if (found[at(producer)]) return;
        found[at(producer)] = true;
        open.push_back(producer);
    };
    for (ValueId id : of) visit(id);
    while (!open.empty()) {
        const NodeId next = open.back();
        open.pop_back();
        for (ValueId input : node(next).node.inputs) visit(input);
    }
    return found;
}

std::vector<NodeId> GraphEditor::order(std::span<const ValueId> of) const {
    std::vector<ValueId> roots(of.begin(), of.end());
    if (roots.empty()) roots = outputs_;
    const std::vector<bool> wanted = ancestors(roots);
    enum class State : uint8_t { fresh, open, done };
    std::vector<State> state(nodes_.size());
    std::vector<NodeId> result;
    std::vector<std::pair<NodeId, size_t>> path;  // a node and its next operand
    const auto visit = [&](NodeId start) {
        if (state[at(start)] == State::done) return;
        path.push_back({start, 0});
        while (!path.empty()) {
            auto& [id, operand] = path.back();
            state[at(id)] = State::open;
            const auto& inputs = node(id).node.inputs;
            if (operand == inputs.size()) {
                state[at(id)] = State::done;
                result.push_back(id);
                path.pop_back();
                continue;
            }
            const NodeId next = value(inputs[operand++]).producer;
            if (state[at(next)] == State::open)
                runtime::user_error(
                    {.what = cat("network: node ", quoted(node(next)),
                                 " would read its own result, through ", quoted(node(id)))});
            if (state[at(next)] == State::fresh) path.push_back({next, 0});
        }
    };
    for (size_t i = 0; i < nodes_.size(); ++i)
        if (wanted[i] && nodes_[i].node.kind == NodeKind::op) visit(static_cast<NodeId>(i));
    for (ValueId root : roots)
        visit(value(root).producer);  // inputs and constants that nobody reads
    return result;
}

GraphEditor::Extract GraphEditor::extract(std::span<const ValueId> of) const {
    const std::vector<NodeId> nodes = order(of);
    Extract result;
    std::vector<ValueId> map(values_.size());
    std::vector<NodeId> inputs;
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(inputs),
                 [&](NodeId id) { return node(id).node.kind == NodeKind::input; });
    std::sort(inputs.begin(), inputs.end());  // in the order in which they were made
    for (NodeId id : inputs) {
        const ValueId input = node(id).node.outputs[0];
        map[at(input)] =
            result.graph.add_input(value(input).type, static_cast<int>(result.inputs.size()));
        result.inputs.push_back(input);
    }
    for (NodeId id : nodes) {
        const EditedNode& edited = node(id);
        if (edited.node.kind == NodeKind::input) continue;
        Node copy = edited.node;
        std::vector<Type> types;
        for (ValueId& input : copy.inputs) input = map[at(input)];
        for (ValueId output : copy.outputs) types.push_back(value(output).type);
        copy.where = NotedName{.node = edited.name,
                               .variable = value(copy.outputs[0]).name,
                               .line = edited.node.where,
                               .is_parameter = edited.is_parameter}
                         .where();
        const std::vector<ValueId> results = result.graph.add(std::move(copy), types);
        for (size_t i = 0; i < results.size(); ++i) map[at(edited.node.outputs[i])] = results[i];
    }
    for (ValueId id : of) result.graph.outputs.push_back(map[at(id)]);
    return result;
}

Model GraphEditor::model(std::span<const ValueId> of, const ExportOptions& options) {
    infer_again(order(of), {});
    Extract part = extract(of);
    Model model;
    for (ValueId input : part.inputs) {
        const EditedNode& maker = node(value(input).producer);
        model.input_names.push_back(maker.is_renamed ? maker.name : value(input).name);
    }
    for (size_t i = 0; i < of.size(); ++i)
        model.output_names.push_back(options.keep_value_names == 0 ? cat("output_", i)
                                                                   : value(of[i]).name);
    model.graph = std::move(part.graph);
    model.follows_batch = follows_batch(order(of));
    return finish_model(std::move(model), options);
}

void GraphEditor::rename(NodeId node, std::string name) {
    EditedNode& renamed = nodes_.at(at(node));
    renamed.name = std::move(name);
    renamed.is_renamed = true;
}

TensorRef GraphEditor::constant_value(ValueId id) const {
    const Extract part = extract({&id, 1});
    if (!part.inputs.empty()) fail_to_read(id);
    return interpret(part.graph, {})[0];
}

// ---- edits

// Casts operands that have other dtypes now, as a call of the op with them would.
void GraphEditor::promote_operands(NodeId id) {
    const OpDef& op = *node(id).node.op;
    const std::vector<ValueId> inputs = node(id).node.inputs;
    if (op.promotion == runtime::Promotion::none || inputs.empty()) return;
    std::vector<runtime::DType> dtypes;
    for (ValueId input : inputs) dtypes.push_back(value(input).type.dtype);
    if (std::ranges::equal(dtypes, node(id).operands, {}, {}, &Type::dtype)) return;
    const runtime::DType to = runtime::promoted_dtype(op, dtypes);
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (dtypes[i] == to) continue;
        const ValueId cast =
            add_op(ops::cast(), {std::string(runtime::info(to).name)}, {inputs[i]})[0];
        nodes_[at(id)].node.inputs[i] = cast;
    }
}

bool GraphEditor::follows_batch(std::span<const NodeId> nodes) const {
    return std::ranges::all_of(nodes, [this](NodeId id) { return node(id).follows_batch; });
}

void GraphEditor::check_known(const EditedNode& edited, BatchChange batch) const {
    if (edited.follows_batch || batch.from == batch.to) return;
    if (edited.node.kind == NodeKind::constant && !edited.is_parameter)
        runtime::refuse_unknown(value(edited.node.outputs[0]).type, batch);
    if (edited.node.kind != NodeKind::op) return;
    std::vector<Type> operands;
    for (ValueId input : edited.node.inputs) operands.push_back(value(input).type);
    const runtime::OpCall call{*edited.node.op, edited.node.attrs, edited.operands};
    runtime::refuse_unknown(call, runtime::refit(call, operands, batch), batch);
}

// Infers the types of what `nodes` make, in their order. Other nodes keep their types until they
// belong to the graph.
void GraphEditor::infer_again(std::span<const NodeId> nodes, BatchChange batch) {
    for (NodeId id : nodes) {
        try {
            check_known(node(id), batch);
            if (node(id).node.kind != NodeKind::op) continue;
            promote_operands(id);
        } catch (const runtime::UserError& error) { fail_at(node(id), error); }
        EditedNode& edited = nodes_[at(id)];
        std::vector<Type> operands;
        for (ValueId input : edited.node.inputs) operands.push_back(value(input).type);
        if (operands == edited.operands) continue;
        try {
            edited.node.attrs = runtime::refit(
                {*edited.node.op, edited.node.attrs, edited.operands}, operands, batch);
            const std::vector<Type> results =
                runtime::infer({*edited.node.op, edited.node.attrs, operands});
            for (size_t i = 0; i < results.size(); ++i)
                values_[at(edited.node.outputs[i])].type = results[i];
        } catch (const runtime::UserError& error) { fail_at(edited, error); }
        edited.operands = std::move(operands);
    }
}

template <class Edit>
void GraphEditor::all_or_nothing(Edit&& edit, BatchChange batch) {
    auto nodes = nodes_;
    auto values = values_;
    auto outputs = outputs_;
    try {
        edit();
        infer_again(order(), batch);
    } catch (...) {
        nodes_ = std::move(nodes);
        values_ = std::move(values);
        outputs_ = std::move(outputs);
        throw;
    }
}

void GraphEditor::set_outputs(std::vector<ValueId> outputs) {
    all_or_nothing([&] { outputs_ = std::move(outputs); });
}

void GraphEditor::replace(const Replacements& replaced) {
    std::map<ValueId, std::vector<bool>> makes;  // nodes that a new value is made from
    for (const auto& [old, fresh] : replaced) makes.try_emplace(fresh, ancestors({&fresh, 1}));
    all_or_nothing([&] {
        for (size_t i = 0; i < nodes_.size(); ++i)
            for (ValueId& input : nodes_[i].node.inputs)
                if (auto found = replaced.find(input);
                    found != replaced.end() && !makes[found->second][i])
                    input = found->second;
        for (ValueId& output : outputs_)
            if (auto found = replaced.find(output); found != replaced.end()) output = found->second;
    });
}

void GraphEditor::set_operand(NodeId node, size_t operand, ValueId value) {
    all_or_nothing([&] { nodes_.at(at(node)).node.inputs.at(operand) = value; });
}

void GraphEditor::set_constant(NodeId id, TensorRef tensor) {
    check_constant(*tensor);
    if (node(id).node.kind != NodeKind::constant)
        runtime::user_error(
            {.what = cat("network: node ", quoted(node(id)), " is not a constant")});
    runtime::Rematerializer::instance().keep(*tensor);
    all_or_nothing([&] {
        Node& node = nodes_.at(at(id)).node;
        values_[at(node.outputs[0])].type = tensor->type();
        node.constant = std::move(tensor);
    });
}

void GraphEditor::reset_batch(std::span<const ValueId> inputs, BatchChange batch) {
    if (batch.to < 1)
        runtime::user_error({.what = cat("network: a batch of ", batch.to, " samples"),
                             .fix = "at least one is needed"});
    if (batch.from != batch.to && !follows_batch(order())) runtime::refuse_unknown_function(batch);
    all_or_nothing([&] {
        for (ValueId input : inputs) values_.at(at(input)).type.shape[0] = batch.to;
    }, batch);
}

std::vector<ValueId> GraphEditor::copy_with(std::span<const ValueId> of,
                                            const Replacements& replaced) {
    std::map<ValueId, ValueId> map(replaced.begin(), replaced.end());
    const auto mapped = [&](ValueId id) {
        const auto found = map.find(id);
        return found == map.end() ? id : found->second;
    };
    for (NodeId id : order(of)) {
        EditedNode copy = node(id);
        bool changes = false;
        for (ValueId& input : copy.node.inputs) {
            changes = changes || mapped(input) != input;
            input = mapped(input);
        }
        if (!changes) continue;
        const std::vector<ValueId> old = copy.node.outputs;
        std::vector<Type> types;
        for (ValueId output : old) types.push_back(value(output).type);
        copy.name = fresh_name(copy.name);
        const std::vector<ValueId> fresh = append(std::move(copy), types);
        infer_again({{value(fresh[0]).producer}}, {});
        for (size_t i = 0; i < old.size(); ++i) map.try_emplace(old[i], fresh[i]);
    }
    std::vector<ValueId> results;
    for (ValueId id : of) results.push_back(mapped(id));
    return results;
}

std::vector<ValueId> GraphEditor::add_optimized(std::span<const ValueId> of) {
    const std::vector<NodeId> nodes = order(of);
    infer_again(nodes, {});
    const Extract part = extract(of);
    return add_graph(run_pipeline(part.graph, {.opt_level = 2}), part.inputs, follows_batch(nodes));
}

}  // namespace megjit::jit
