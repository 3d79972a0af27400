#include "jit/file/export.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <ranges>
#include <unordered_map>

#include "jit/file/batch_flow.h"
#include "jit/file/bounded_rows.h"
#include "jit/plan/passes/passes.h"
#include "jit/plan/pipeline.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::cat;
using runtime::DType;
using Names = std::vector<std::string>;

constexpr char kParam = '*', kNoParam = ' ';
constexpr const char* kSelectOutside =
    "return the mask, or what else has a fixed shape, and select from it outside";
constexpr char kSeparator = '\n';

// Equal names get suffixes [0], [1], ... ; unnamed entries stay.
void make_unique(Names& names) {
    std::unordered_map<std::string, int> count, next;
    for (const std::string& name : names) ++count[name];
    for (std::string& name : names)
        if (!name.empty() && count[name] > 1) name += cat("[", next[name]++, "]");
}

class Exporter {
public:
    Exporter(const Version& version, const ExportOptions& options)
        : version_(version),
          record_(version.record),
          notes_(version.notes),
          options_(options),
          arguments_(version.arguments()) {
        for (const Held& held : notes_.held)
            if (const auto state = options.states ? options.states->find(held) : std::nullopt)
                states_.emplace_back(*state, &held);
    }

    Model run() {
        find_live_ops();
        refuse_what_would_not_follow();
        add_inputs(options_.allows_effects ? Names() : fixed_batches(version_, live_));
        Model model;
        model.follows_batch = true;
        model.opt_level = options_.opt_level;
        model.exact = options_.exact;
        model.input_names = options_.inputs;
        model.inputs.resize(arguments_.size());
        add_states(model);
        for (size_t i = 0; i < live_.size(); ++i)
            add_op(record_.graph.node(live_[i]), op_names_[i]);
        for (size_t i = 0; i < notes_.results.size(); ++i) {
            const RecordId id = notes_.results[i];
            model.output_names.push_back(output_name(id, i));
            ValueId value = id_of(id);
            if (has_scalar_input_ && graph_.type(value).rank() == 0) value = reshaped(value, {1});
            graph_.outputs.push_back(value);
        }
        add_counts(model);
        for (const auto& [state, held] : states_)
            if (held->becomes != kNoValue) graph_.outputs.push_back(next_of(held->becomes));
        model.outputs.resize(graph_.outputs.size(), {.kind = Output::Kind::state});
        model.graph = std::move(graph_);
        return model;
    }

private:
    // Values that are computed from extents or states: the record has their numbers, a file the
    // ops, since the extents of its inputs, and states, may change.
    std::vector<bool> made_of_what_changes() const {
        std::vector<bool> result(record_.values.size());
        for (const auto& [id, of] : notes_.of_extents) result[at(id)] = of.shape_of.has_value();
        mark_states(result);
        for (const auto& [id, value] : notes_.computed_outside) result[at(id)] = true;
        spread(result);
        for (const OutsideOp& op : notes_.constant_selections)
            if (std::ranges::any_of(op.inputs, [&](RecordId id) { return result[at(id)]; })) {
                for (const RecordId id : op.results) result[at(id)] = true;
                spread(result);
            }
        return result;
    }

    // The op that selected this constant of the record by what changes in a file; null: none.
    const OutsideOp* selection_of_states(RecordId id, const std::vector<bool>& changes) const {
        const auto found = std::ranges::find_if(notes_.constant_selections, [&](auto& op) {
            return std::ranges::find(op.results, id) != op.results.end();
        });
        return found != notes_.constant_selections.end() && changes[at(id)] ? &*found : nullptr;
    }

    void find_live_ops() {
        const std::vector<bool> varies = made_of_what_changes();
        std::vector<bool> needed(record_.values.size());
        const std::function<void(RecordId)> need = [&](RecordId id) {
            needed[at(id)] = true;
            if (const auto& of = notes_.of_extents_of(id).shape_of) needed[at(*of)] = true;
            if (const OutsideOp* made = outside_op(id))
                for (const RecordId input : made->inputs) need(input);
        };
        for (RecordId id : notes_.results) need(id);
        for (const auto& [state, held] : states_)
            if (held->becomes != kNoValue) need(held->becomes);
        for (const Node& node : std::views::reverse(record_.graph.nodes())) {
            const bool live = std::ranges::any_of(node.outputs, [&](RecordId id) {
                return needed[at(id)] && (!record_[id].tensor || varies[at(id)]);
            });
            if (!live || node.kind != NodeKind::op) continue;
            live_.push_back(record_.graph.value(node.outputs[0]).producer);
            for (RecordId input : node.inputs) need(input);
        }
        std::ranges::reverse(live_);
        for (NodeId id : live_) {
            const std::string& scope = notes_.call(id).scope;
            op_names_.push_back((scope.empty() ? "" : scope + ".") +
                                type_name_of(*record_.graph.node(id).op));
        }
        make_unique(op_names_);
        for (size_t i = 0; i < live_.size(); ++i) {
            const auto& outputs = record_.graph.node(live_[i]).outputs;
            for (size_t o = 0; o < outputs.size(); ++o)
                names_[outputs[o]] =
                    outputs.size() == 1 ? op_names_[i] : cat(op_names_[i], ":o", o);
        }
        for (const Node& node : record_.graph.nodes())
            for (size_t o = 0; o < node.names.size(); ++o)
                if (!node.names[o].empty()) names_[node.outputs[o]] = node.names[o];
    }

    // A dumped model has its inputs and states alone: an error tells of any value that would stand
    // still or be lost.
    void refuse_what_would_not_follow() const {
        if (!options_.allows_effects && !notes_.updates.empty())
            refuse(cat("updates ", notes_.updates),
                   "the updates would be lost: a file keeps what the function takes from outside",
                   "return the new value, or take the tensor from outside in place of an argument");
        if (!options_.allows_effects && !notes_.bound_anew.empty())
            refuse(cat("reads and binds anew ", notes_.bound_anew),
                   "a file would read the first value in each run: its states are tensors that are "
                   "written into",
                   "write into the tensor, as in state[...] = value, or return the new value");
        if (!notes_.outside_read_at.empty())
            refuse(cat("takes, at ", notes_.outside_read_at,
                       ", how much it has selected for a number"),
                   "the file would hold that of the recorded call", kSelectOutside);
        if (!notes_.left_trace_at.empty())
            refuse(cat("takes, at ", notes_.left_trace_at,
                       ", a value that was computed under exclude_from_trace()"),
                   "the file would hold that of the recorded call",
                   "compute it inside of the trace, or pass it as an argument");
        refuse_frozen_reads();
        refuse_other_types();
        const std::vector<bool> changes = made_of_what_changes();
        const auto check = [&](RecordId id, const std::string& reader) {
            if (const OutsideOp* made = selection_of_states(id, changes))
                refuse_selection(*made,
                                 "it selects by a state, and the file would hold the result "
                                 "of the recorded call");
            if (const OutsideOp* made = outside_op(id);
                made && (options_.allows_effects || !made->op->bounded))
                refuse_selection(*made, "the file would hold the result of the recorded call");
            if (const auto& of = notes_.of_extents_of(id).shape_of; of && outside_op(*of))
                refuse_selection(*outside_op(*of), cat("its shape is computed with at ", reader));
            if (!options_.allows_effects && !is_state(id) && is_random(id))
                refuse(cat("draws random numbers at ", reader), "each run would draw the same ones",
                       "call eval() of the module, or pass random tensors as arguments");
        };
        for (NodeId id : live_)
            for (RecordId input : record_.graph.node(id).inputs)
                check(input, record_.graph.node(id).where);
        for (RecordId result : notes_.results) check(result, {});
    }

    // Refuses a number that the host has read of an input or a state, or of values made of them.
    void refuse_frozen_reads() const {
        if (notes_.value_reads.empty()) return;
        std::vector<bool> follows(record_.values.size());
        for (const Input& input : record_.inputs)
            if (input.kind == Input::Kind::argument || input.kind == Input::Kind::key)
                follows[at(input.value)] = true;
        for (const auto& [id, value] : notes_.computed_outside) follows[at(id)] = true;
        mark_states(follows);
        spread(follows);
        for (const auto& [id, where] : notes_.value_reads)
            if (follows[at(id)])
                refuse(cat("reads, at ", where, ", the value of ", read_name(id)),
                       "the file would hold what was read in the recorded call",
                       "compute with the tensor (F.where, F.cond, F.gather), or read the value "
                       "outside and record one function for each");
    }

    void refuse_other_types() const {
        for (const auto& [state, held] : states_) {
            if (held->becomes == kNoValue) continue;
            const Type &next = record_.graph.type(held->becomes), &now = type_of(*held);
            if (next.dtype == now.dtype && next.shape == now.shape) continue;
            const std::string& line = record_.graph.producer(held->becomes).where;
            refuse(cat("makes a ", to_string(next), " tensor of its state, a ", to_string(now),
                       record_.is_computed(held->becomes) ? cat(", at ", line) : ""),
                   "a state of a file has one dtype and one shape",
                   "convert the new value: state[...] = value.astype(state.dtype)");
        }
    }

    std::string read_name(RecordId id) const {
        const std::string type = to_string(record_.graph.type(id));
        for (size_t i = 0; i < arguments_.size(); ++i)
            if (arguments_[i] == id) return cat("its input ", options_.inputs[i], " ", type);
        return cat(is_state(id) ? "its state, a " : "what follows from its inputs or states, a ",
                   type, " tensor");
    }

    // Marks what is computed of these values.
    void spread(std::vector<bool>& values) const {
        for (const Node& node : record_.graph.nodes())
            if (std::ranges::any_of(node.inputs, [&](RecordId id) { return values[at(id)]; }))
                for (RecordId output : node.outputs) values[at(output)] = true;
    }

    // Is the value a key? A generator gives another one in each call.
    bool is_random(RecordId id) const {
        return record_.is_from_outside(id) && record_.input(id).kind == Input::Kind::key;
    }

    // The op that the host computed, which gave the value or what it was computed of; null: none.
    const OutsideOp* outside_op(RecordId id) const {
        const auto found = notes_.computed_outside.find(id);
        return found == notes_.computed_outside.end() ? nullptr
                                                      : &notes_.outside_ops[found->second.op];
    }

    [[noreturn]] static void refuse_selection(const OutsideOp& made, std::string why) {
        refuse(cat("computes ", made.op->name, " at ", made.where,
                   ", whose shape follows from the data"),
               std::move(why), kSelectOutside);
    }

    bool is_state(RecordId id) const {
        return std::ranges::any_of(states_, [id](auto& use) { return use.second->value == id; });
    }

    void mark_states(std::vector<bool>& values) const {
        for (const auto& [state, held] : states_)
            if (held->value != kNoValue) values[at(held->value)] = true;
    }

    const Type& type_of(const Held& held) const {
        return record_.graph.type(held.value != kNoValue ? held.value : held.becomes);
    }

    [[noreturn]] static void refuse(std::string what, std::string why, std::string fix) {
        runtime::user_error({.what = cat("dump: the function ", what),
                             .why = std::move(why),
                             .fix = std::move(fix)},
                            runtime::ErrorKind::runtime);
    }

    void add_inputs(std::span<const std::string> fixed) {
        for (size_t i = 0; i < arguments_.size(); ++i) {
            const RecordId id = arguments_[i];
            Type type = record_.graph.type(id);
            type.layout = runtime::Layout::row_major;
            const bool is_scalar = type.rank() == 0;
            if (is_scalar) type.shape.push_back(1);
            ValueId input = graph_.add_input(type, static_cast<int>(i));
            has_scalar_input_ = has_scalar_input_ || is_scalar;
            if (is_scalar) input = reshaped(input, {});
            else if (!fixed.empty() && !fixed[i].empty()) input = with_fixed_batch(input, fixed[i]);
            if (!ids_.emplace(id, input).second)
                refuse(cat("was recorded with one tensor as ", names_[id], " and ",
                           options_.inputs[i]),
                       "the file would read the first for both",
                       "call it once with a tensor for each argument");
            names_[id] = options_.inputs[i];
        }
    }

    void add_states(Model& model) {
        for (const auto& [state, held] : states_) {
            Type type = type_of(*held);
            type.layout = runtime::Layout::row_major;
            const ValueId input = graph_.add_input(type, static_cast<int>(model.inputs.size()));
            if (held->value != kNoValue && !ids_.emplace(held->value, input).second)
                refuse("was recorded with one value as an argument and as a state",
                       "the file would read the argument for both",
                       "call it once with another tensor as the argument");
            model.inputs.push_back({.kind = held->becomes != kNoValue ? Input::Kind::state
                                            : held->kind == Input::Kind::key
                                                ? Input::Kind::key
                                                : Input::Kind::captured,
                                    .state = state});
        }
    }

    ValueId reshaped(ValueId value, const std::vector<int64_t>& shape) {
        return graph_.make(ops::reshape(), {value}, {shape}, {});
    }

    // An op that stands in no record.
    ValueId added(const OpDef& op, Attrs attrs, ValueId input, std::string line = {}) {
        const Node like{.where =
                            NotedName{.node = type_name_of(op), .line = std::move(line)}.where()};
        return graph_.make(op, {input}, std::move(attrs), like);
    }

    ValueId extents_of(RecordId id) { return added(ops::shape_of(), {}, id_of(id)); }

    ValueId with_fixed_batch(ValueId input, const std::string& line) {
        return added(ops::fixed_batch(), {graph_.type(input).shape[0], line}, input, line);
    }

    // Constants, and tensors from outside that are baked in.
    ValueId id_of(RecordId id) {
        if (auto found = ids_.find(id); found != ids_.end()) return found->second;
        if (const auto& of = notes_.of_extents_of(id).shape_of) return ids_[id] = extents_of(*of);
        if (const auto found = notes_.computed_outside.find(id);
            found != notes_.computed_outside.end())
            return ids_[id] = selected(found->second);
        TensorRef tensor =
            record_.is_from_outside(id) ? record_.input(id).held : record_[id].tensor;
        if (!tensor || !tensor->has_data())
            runtime::user_error(
                {.what = cat("dump: the value of a ", to_string(record_.graph.type(id)),
                             " tensor from outside is not known"),
                 .fix = "pass it as an argument"},
                runtime::ErrorKind::runtime);
        tensor = runtime::row_major(tensor);
        Node node{.kind = NodeKind::constant, .constant = tensor};
        if (!record_.is_computed(id) && !tensor->is_constant) {
            const std::string given = record_.graph.name(id);
            names_[id] = given.empty() ? cat("param_", next_param_) : given;
            node.where =
                NotedName{.node = names_[id], .variable = names_[id], .is_parameter = true}.where();
            ++next_param_;
        }
        return ids_[id] = graph_.add(std::move(node), {&tensor->type(), 1})[0];
    }

    ValueId selected(const OutsideValue& value) {
        const OutsideOp& made = notes_.outside_ops[value.op];
        std::vector<ValueId> inputs;
        for (const RecordId input : made.inputs) inputs.push_back(id_of(input));
        if (rows_.count_of(inputs))
            refuse_selection(made, "it selects from what was selected before");
        const std::string where =
            NotedName{.node = type_name_of(*made.op), .line = made.where}.where();
        return rows_.select(made, std::move(inputs), where)[static_cast<size_t>(value.output)];
    }

    ValueId next_of(RecordId becomes) {
        const ValueId value = id_of(becomes);
        if (rows_.count_of({&value, 1}))
            refuse("keeps what it has selected as its state",
                   "how many rows that has follows from the data, and a state has one shape",
                   kSelectOutside);
        return value;
    }

    // Notes which outputs have as many rows as a number beside them tells.
    void add_counts(Model& model) {
        std::vector<ValueId> counts;
        for (ValueId output : graph_.outputs) {
            model.outputs.emplace_back();
            const auto count = rows_.count_of({&output, 1});
            if (!count) continue;
            const auto place = std::ranges::find(counts, *count);
            model.outputs.back().counted_by = static_cast<int>(place - counts.begin());
            if (place == counts.end()) counts.push_back(*count);
        }
        graph_.outputs.insert(graph_.outputs.end(), counts.begin(), counts.end());
        model.outputs.resize(graph_.outputs.size(), {.kind = Output::Kind::count});
    }

    // All values are row-major in a file: programs choose layouts when it is loaded.
    void add_op(const Node& op, const std::string& name) {
        if (op.op == &ops::relayout()) {
            ids_[op.outputs[0]] = id_of(op.inputs[0]);
            return;
        }
        Node node{.op = op.op, .attrs = op.attrs};
        const std::string given = record_.graph.name(op.outputs[0]);
        node.where =
            NotedName{.node = name, .variable = given.empty() ? name : given, .line = op.where}
                .where();
        std::vector<Type> recorded, types;
        for (RecordId input : op.inputs) {
            node.inputs.push_back(id_of(input));
            recorded.push_back(record_.graph.type(input));
        }
        for (const Type& type : record_.graph.types(op.outputs))
            types.push_back({type.dtype, type.shape});
        const std::optional<ValueId> count = rows_.count_of(node.inputs);
        if (count) {
            if (!rows_.fit(node, recorded, types[0]))
                refuse(
                    cat("computes ", op.op->name, " at ", op.where, " of what it has selected"),
                    "how many rows these are follows from the data: a file can only compute what keeps rows apart",
                    kSelectOutside);
            types = runtime::infer({*op.op, node.attrs, graph_.types(node.inputs)});
        }
        const std::vector<ValueId> outputs = graph_.add(std::move(node), types);
        if (count) rows_.note(outputs, *count);
        for (size_t o = 0; o < outputs.size(); ++o) ids_[op.outputs[o]] = outputs[o];
    }

    std::string output_name(RecordId id, size_t index) {
        if (!options_.outputs.empty()) return options_.outputs[index];
        auto found = names_.find(id);
        return options_.keep_value_names == 0 || found == names_.end() || found->second.empty()
                   ? cat("output_", index)
                   : found->second;
    }

    const Version& version_;
    const Record& record_;
    const FileNotes& notes_;
    const ExportOptions& options_;
    const std::vector<RecordId> arguments_;
    std::vector<std::pair<uint32_t, const Held*>> states_;  // those of the file's that it uses
    Graph graph_;
    BoundedRows rows_{graph_};
    std::vector<NodeId> live_;
    Names op_names_;  // by live op
    std::unordered_map<RecordId, ValueId> ids_;
    std::unordered_map<RecordId, std::string> names_;
    bool has_scalar_input_ = false;
    int next_param_ = 0;
};

// Each float32 result of an op is stored as float16; ops that read it compute in float32.
Graph stored_as_half(const Graph& graph) {
    Rewriter rewrite(graph);
    std::vector<std::optional<ValueId>> stored(graph.value_count());
    const auto converted = [&](ValueId value, DType dtype, std::string_view name) {
        Type type = rewrite.to.type(value);
        type.dtype = dtype;
        Node node{.op = &ops::cast(), .attrs = {std::string(name)}, .inputs = {value}};
        return rewrite.to.add(std::move(node), {&type, 1})[0];
    };
    for (const Node& node : graph.nodes()) {
        rewrite.copy(node);
        if (node.kind != NodeKind::op) continue;
        for (ValueId output : node.outputs) {
            if (graph.type(output).dtype != DType::f32) continue;
            stored[at(output)] =
                converted(rewrite.map(output), DType::f16, runtime::info(DType::f16).name);
            rewrite.replace(
                output, converted(*stored[at(output)], DType::f32, runtime::info(DType::f32).name));
        }
    }
    for (ValueId output : graph.outputs)
        if (stored[at(output)]) rewrite.replace(output, *stored[at(output)]);
    return rewrite.finish();
}

// Takes names out of Node::where and keeps those that are asked for.
void collect_names(Model& model, const ExportOptions& options) {
    Rewriter rewrite(model.graph);
    for (const Node& node : model.graph.nodes()) {
        Node bare = node;
        bare.where.clear();
        rewrite.copy(bare);
        auto [name, variable, line, is_parameter] = NotedName::from(node.where);
        if (node.kind == NodeKind::input)
            name = variable = static_cast<size_t>(node.slot) < model.input_names.size()
                                  ? model.input_names[static_cast<size_t>(node.slot)]
                                  : "";
        if (node.kind == NodeKind::constant && is_parameter) {
            variable = name;
            model.params.push_back(node.outputs[0]);
        } else if (node.kind != NodeKind::input && !options.keep_op_names) {
            name.clear();
        }
        model.node_names.push_back(name);
        model.node_lines.push_back(line);
        for (size_t o = 0; o < node.outputs.size(); ++o)
            model.value_names.push_back(
                options.keep_value_names == 2 ? (o ? cat(variable, ":o", o) : variable) : "");
    }
    model.graph = rewrite.finish();
    if (options.keep_value_names > 0)
        for (size_t i = 0; i < model.output_names.size(); ++i)
            if (model.graph.producer(model.graph.outputs[i]).kind == NodeKind::op)
                model.value_names[at(model.graph.outputs[i])] = model.output_names[i];
    make_unique(model.node_names);
    make_unique(model.value_names);
}

}  // namespace

std::string type_name_of(const OpDef& op) {
    if (!op.dumped_as.empty()) return std::string(op.dumped_as);
    std::string name;
    bool upper = true;  // names of element-wise ops are all upper case, others at each word
    for (char c : op.name) {
        if (op.is_elementwise() || (upper && c != '_'))
            name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        else if (c != '_') name += c;
        upper = c == '_';
    }
    return name;
}

std::string NotedName::where() const {
    return (is_parameter ? kParam : kNoParam) + node + kSeparator + variable + kSeparator + line;
}

NotedName NotedName::from(const std::string& where) {
    const size_t variable = where.find(kSeparator),
                 line = variable == std::string::npos ? variable
                                                      : where.find(kSeparator, variable + 1);
    if (line == std::string::npos) return {};
    return {.node = where.substr(1, variable - 1),
            .variable = where.substr(variable + 1, line - variable - 1),
            .line = where.substr(line + 1),
            .is_parameter = where[0] == kParam};
}

Model export_model(const Version& version, const ExportOptions& options) {
    return finish_model(Exporter(version, options).run(), options);
}

Model finish_model(Model model, const ExportOptions& options) {
    make_unique(model.output_names);
    // A function that replaces states is written as it was recorded: a loader runs the passes that
    // the traced function ran, and has its bits.
    const bool is_step = model.replaces_states();
    model.graph =
        options.optimize && !is_step
            ? run_pipeline(std::move(model.graph), {.opt_level = 2, .exact = options.exact})
            : drop_dead(model.graph);
    if (options.half_storage && is_step)
        runtime::user_error(
            {.what = "dump: enable_io16xc32 was given for a function that updates its state",
             .why = "the state would get another dtype",
             .fix = "leave it out, or dump a function that only computes results"},
            runtime::ErrorKind::value);
    if (options.half_storage) model.graph = stored_as_half(model.graph);
    collect_names(model, options);
    return model;
}

Step step_for(const Model& model, runtime::Device& device,
              const std::optional<std::vector<size_t>>& outputs) {
    Step step = model;
    step.inputs.resize(model.input_names.size() + model.states().size());
    step.outputs.resize(model.graph.outputs.size());
    if (outputs) {
        const Step whole = std::move(step);
        step = {.graph = whole.graph, .inputs = whole.inputs};
        step.graph.outputs.clear();
        const auto give = [&](size_t output) {
            step.graph.outputs.push_back(whole.graph.outputs.at(output));
            step.outputs.push_back(whole.outputs[output]);
        };
        std::ranges::for_each(*outputs, give);
        for (size_t i = model.output_names.size(); i < whole.outputs.size(); ++i) give(i);
    }
    const std::vector<Type> types = model.input_types();
    auto output = step.outputs.end() - static_cast<ptrdiff_t>(model.count(Output::Kind::state));
    for (size_t slot = 0; slot < step.inputs.size(); ++slot) {
        if (step.inputs[slot].kind != Input::Kind::state) continue;
        step.inputs[slot].is_released = true;
        (output++)->replaces = types[slot].dtype == DType::c64 ? -1 : static_cast<int>(slot);
    }
    step.graph = drop_dead(std::move(step.graph));
    step.graph.set_device(device);
    return step;
}

void refuse_bounds(const Model& function) {
    const auto bounded = std::ranges::find_if(
        function.outputs, [](const Output& output) { return output.counted_by >= 0; });
    if (bounded == function.outputs.end()) return;
    runtime::user_error(
        {.what = cat("the model gives ",
                     function.output_names[static_cast<size_t>(bounded - function.outputs.begin())],
                     ", whose shape follows from the data"),
         .why = "a network that is edited as a graph, and static code, have fixed shapes",
         .fix = "run it with GraphInference or libmegjit"},
        runtime::ErrorKind::runtime);
}

Model without_states(const ModelFile& file, const Model& function) {
    refuse_bounds(function);
    if (function.states().empty()) return function;
    for (const Input& input : function.states())
        if (input.kind != Input::Kind::captured)
            runtime::user_error(
                {.what = cat("the function ", function.name,
                             input.kind == Input::Kind::state ? " replaces the state "
                                                              : " draws from the state ",
                             file.states[input.state].name),
                 .why = "a network is edited as a graph without state",
                 .fix = "run it with GraphInference, or load another function of the file"},
                runtime::ErrorKind::runtime);
    Model model = function;
    Rewriter rewrite(function.graph);
    for (const Node& node : function.graph.nodes()) {
        const size_t inputs = function.input_names.size();
        if (node.kind != NodeKind::input || static_cast<size_t>(node.slot) < inputs) {
            rewrite.copy(node);
            continue;
        }
        const State& state = file.states[function.inputs[static_cast<size_t>(node.slot)].state];
        const ValueId constant = rewrite.to.add_constant(state.value);
        rewrite.replace(node.outputs[0], constant);  // nodes and values keep their numbers
        model.node_names[at(rewrite.to.value(constant).producer)] = state.name;
        model.params.push_back(constant);
    }
    model.graph = rewrite.finish();
    model.inputs.resize(model.input_names.size());
    return model;
}

}  // namespace megjit::jit
