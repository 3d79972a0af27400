#include "jit/trace/recorder.h"

#include <algorithm>

#include "jit/step/body_recorder.h"
#include "runtime/core/random.h"
#include "runtime/core/rematerializer.h"
#include "runtime/host/error.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {

using runtime::cat;
using runtime::Tensor;
using runtime::Tensors;

namespace {

// A result that follows from constants alone, and is no larger, is computed while recording.
constexpr size_t kMostStaticBytes = 4096;

}  // namespace

Recorder::Recorder(TraceFunction& function, CallKey key, std::span<const TensorRef> arguments,
                   std::function<std::string()> where)
    : Session(function, std::make_shared<Version>(), std::move(key), std::move(where)),
      GraphTracer(Session::id_) {
    version_->key = key_;
    version_->reason = function.reason_for(key_);
    function.lend_memory(*version_);
    values_of(arguments);
    for (Input& input : record().inputs) input.kind = Input::Kind::argument;
    captures_ = function.options.capture_as_const;
}

Recorder::Recorder(Session&& begun, uint32_t events, std::string reason)
    : Session(std::move(begun)),
      GraphTracer(Session::id_),
      captures_(function_.options.capture_as_const) {
    auto fresh = std::make_shared<Version>();
    fresh->record = version_->prefix(events);
    fresh->key = key_;
    fresh->reason = std::move(reason);
    function_.lend_memory(*fresh);
    fresh->notes = notes().prefix(fresh->record);
    version_ = std::move(fresh);
    values_.resize(record().values.size());
    bound_.resize(record().inputs.size());
    for (const Node& node : record().graph.nodes()) {
        if (node.kind == NodeKind::op) continue;
        const RecordedValue& value = record()[node.outputs[0]];
        const TensorRef& tensor = value.slot == kNoSlot ? value.tensor : bound_[value.slot];
        if (tensor) know(tensor, node.outputs[0]);
    }
}

// An op that the body issued long before may fail here: where the body expects an error of the op
// at hand and catches this one, the end of the call raises it again.
void Recorder::catch_up() {
    if (function_.options.symbolic) return;
    try {
        compute_now(live_values());
    } catch (const runtime::UserError& error) {
        note_refusal(error);
        throw;
    }
}

// ---- ops

RecordId Recorder::capture(const TensorRef& tensor) {
    if (tensor->trace.is_of_body())
        refuse(BodyRecorder::leak_of(*tensor, where_()), runtime::ErrorKind::runtime);
    if (is_excluded(tensor->id()) && notes().left_trace_at.empty())
        notes().left_trace_at = where_();
    Record& rec = record();
    const RecordId id =
        rec.graph.add_input(tensor->type(), static_cast<int>(rec.graph.value_count()));
    RecordedValue value{.device = &tensor->device()};
    // Random keys differ from call to call: they stay inputs.
    if (tensor->is_constant || (captures_ && tensor->has_data() && !runtime::state_of(*tensor) &&
                                !varying_.contains(tensor->id()))) {
        value.tensor = tensor;
        if (const auto found = extents_.find(tensor->id()); found != extents_.end())
            notes().of_extents.emplace(
                id, OfExtents{.shape_of = found->second, .extents = all_extents(found->second)});
        runtime::Rematerializer::instance().keep(*tensor);
    } else {
        value.slot = static_cast<uint32_t>(rec.inputs.size());
        rec.inputs.push_back({.kind = kind_of(*tensor), .value = id});
        bound_.push_back(tensor);
    }
    rec.values.push_back(std::move(value));
    values_.emplace_back();
    if (const auto found = computed_outside_.find(tensor->id()); found != computed_outside_.end())
        notes().computed_outside.emplace(id, found->second);
    return id;
}

// Says what a tensor from outside is that is no argument; the end of the call tells which of these
// the body replaces.
Input::Kind Recorder::kind_of(const Tensor& tensor) const {
    if (runtime::state_of(tensor)) return Input::Kind::key;
    if (varying_.contains(tensor.id())) return Input::Kind::option;
    return is_made_of_host_data(tensor) ? Input::Kind::constant : Input::Kind::captured;
}

// Computes the op's results while recording.
Tensors Recorder::computed(const Node& op, std::span<const TensorRef> inputs,
                           runtime::Device& device, bool is_static) const {
    Tensors results = runtime::compute(*op.op, op.attrs, inputs, &device);
    if (is_static) device.stream().synchronize();  // every later call uses the results
    for (TensorRef& result : results)
        if (is_placeholder(*result) || result->is_constant || result->use_count() > 1)
            result = runtime::make_tensor(result->type(), result->storage());
    return results;
}

std::vector<ExtentOf> Recorder::all_extents(RecordId value) const {
    std::vector<ExtentOf> extents;
    for (int axis = 0; axis < record().graph.type(value).rank(); ++axis)
        extents.push_back({value, axis});
    return extents;
}

// Tells which extents the results of an op are computed of: x.shape[1:] has those after the first.
OfExtents Recorder::of_extents(const Node& node) const {
    const OfExtents& first = notes().of_extents_of(node.inputs[0]);
    const bool takes_part = node.op == &ops::slice() && first.shape_of;
    OfExtents result;
    if (takes_part) {
        const auto number = [&](size_t attr) {
            return static_cast<size_t>(std::get<std::vector<int64_t>>(node.attrs[attr])[0]);
        };
        for (size_t i = number(0); i < first.extents.size() && i != number(1); i += number(2))
            result.extents.push_back(first.extents[i]);
    } else {
        for (RecordId input : node.inputs)
            std::ranges::copy(notes().of_extents_of(input).extents,
                              std::back_inserter(result.extents));
    }
    result.is_itself = result.extents.size() == 1 &&
                       (takes_part || (node.op->is_view && first.is_itself)) &&
                       record().graph.type(node.outputs[0]).numel() == 1;
    return result;
}

// Ops between two reads are one graph, which runs on one device.
void Recorder::check_device(const OpDef& op, const runtime::Device& device) {
    const std::span<const Node> nodes = record().segment(segment_);
    const auto first = std::ranges::find(nodes, NodeKind::op, &Node::kind);
    if (first == nodes.end()) return;
    const runtime::Device& graph = *record()[first->outputs[0]].device;
    if (&graph != &device)
        refuse({.what = cat("a traced function computes on ", graph.name(), ", and ", op.name,
                            " on ", device.name()),
                .fix = "move tensors with .to(device) before that",
                .at = where_()});
}

// Tells whether the tensor is a result of an op that the host computes, or computed of one.
bool Recorder::is_of_outside(const Tensor& tensor) const {
    return is_placeholder(tensor) ? notes().computed_outside.contains(RecordId{tensor.trace.value})
                                  : computed_outside_.contains(tensor.id());
}

bool Recorder::follows_from_arguments(const TensorRef& tensor) const {
    if (is_of_outside(*tensor)) return true;
    if (is_placeholder(*tensor)) return !record()[RecordId{tensor->trace.value}].tensor;
    const auto id = find(tensor->id());
    return id && is_argument(*id);
}

bool Recorder::is_argument(RecordId value) const {
    return record().is_from_outside(value) && record().input(value).kind == Input::Kind::argument;
}

// The record does not hold the op's results. Later ops read them as constants; a dump puts the op
// in their place (OpDef::bounded).
runtime::Results Recorder::compute_data_dependent(const OpDef& op, const Attrs& attrs,
                                                  std::span<const TensorRef> inputs,
                                                  runtime::Device& device) {
    const bool varies = captures_ && std::ranges::any_of(inputs, [this](const TensorRef& input) {
        return follows_from_arguments(input);
    });
    runtime::Results results = compute_outside(op, attrs, inputs, device);
    if (!captures_) return results;
    OutsideOp made{.op = &op, .attrs = attrs, .where = where_()};
    made.inputs = values_of(inputs);
    if (!varies) {
        made.results = values_of({results.begin(), results.size()});
        notes().constant_selections.push_back(std::move(made));
        return results;
    }
    const auto index = static_cast<uint32_t>(notes().outside_ops.size());
    notes().outside_ops.push_back(std::move(made));
    for (size_t i = 0; i < results.size(); ++i) {
        computed_outside_.emplace(results[i]->id(), OutsideValue{index, static_cast<int>(i)});
        value_of(results[i]);  // the result may become a state that nobody reads
    }
    return results;
}

runtime::Results Recorder::on_op(const OpDef& op, const Attrs& attrs,
                                 std::span<const TensorRef> inputs, runtime::Device& device) {
    if (op.is_data_dependent()) return compute_data_dependent(op, attrs, inputs, device);
    check_device(op, device);
    Node node{.op = &op,
              .attrs = attrs,
              .where = where_(),
              .role = {.is_backward = !open_backwards_.empty()}};
    if (recompute_.depth) node.marks.region = recompute_.calls;
    CallNotes call;
    if (captures_) call = {.given = std::exchange(given_, {}), .scope = scope_};
    bool is_static = !inputs.empty() && !runtime::is_ordered(op);
    size_t small = 0;
    std::optional<OutsideValue> of_outside;
    for (const TensorRef& input : inputs) {
        const RecordId id = value_of(input);
        if (const auto found = notes().computed_outside.find(id);
            found != notes().computed_outside.end())
            of_outside = OutsideValue{found->second.op};
        node.inputs.push_back(id);
        is_static = is_static && record()[id].tensor;
        small += input->type().bytes();
    }
    is_static = is_static && small <= kMostStaticBytes;
    const NodeId id{static_cast<uint32_t>(record().graph.nodes().size())};
    runtime::Results outputs;
    try {
        outputs = add(std::move(node), inputs, device, is_static);
    } catch (const runtime::UserError& error) {  // the body may catch it
        for (const TensorRef& input : inputs)
            note_caught(input, error.kind == runtime::ErrorKind::index);
        throw;
    }
    if (captures_) note_call(id, std::move(call), is_static);
    if (of_outside)
        for (const TensorRef& output : outputs)
            notes().computed_outside.emplace(RecordId{output->trace.value}, *of_outside);
    return outputs;
}

// Adds an op, whose results stand for values of the record from here on.
runtime::Results Recorder::add(Node op, std::span<const TensorRef> inputs, runtime::Device& device,
                               bool is_static) {
    Record& rec = record();
    const bool is_computed = is_static || !function_.options.symbolic;
    const Tensors results = is_computed ? computed(op, inputs, device, is_static) : Tensors();
    std::vector<Type> types;
    for (const TensorRef& result : results) types.push_back(result->type());
    const std::vector<RecordId> values =
        is_computed ? rec.graph.add(std::move(op), types) : rec.graph.add(std::move(op));
    runtime::Results outputs;
    for (size_t i = 0; i < values.size(); ++i) {
        const Type& type = rec.graph.type(values[i]);
        TensorRef output = is_computed ? results[i] : placeholder(values[i], type, device);
        link(*output, values[i]);
        rec.values.push_back(
            {.device = &output->device(),
             .tensor = is_static ? runtime::make_tensor(type, output->storage()) : TensorRef{}});
        values_.push_back(output);
        outputs.push_back(std::move(output));
    }
    rec.events.push_back({EventKind::op, static_cast<uint32_t>(rec.graph.nodes().size()) - 1});
    return outputs;
}

// What a dump needs to know of the call.
void Recorder::note_call(NodeId node, CallNotes call, bool is_static) {
    if (is_static) {
        for (const GivenExtent& given : call.given) note_extent_reads(given.of);
        const Node& op = record().graph.node(node);
        if (const OfExtents of = of_extents(op); !of.extents.empty())
            for (const RecordId value : op.outputs) notes().of_extents.emplace(value, of);
    }
    notes().calls.emplace(node, std::move(call));
}

void Recorder::note_variant(const std::string& what) {
    record().events.push_back({.kind = EventKind::variant, .text = what});
}

std::optional<Tensors> Recorder::begin_backward(std::span<const TensorRef> ys,
                                                std::span<const TensorRef> dys,
                                                std::span<const TensorRef> wanted,
                                                const std::vector<std::string>& groups) {
    RecordedBackward backward{
        .ys = values_of(ys), .dys = values_of(dys), .wanted = values_of(wanted), .groups = groups};
    Record& rec = record();
    const auto index = static_cast<uint32_t>(rec.backwards.size());
    open_backwards_.emplace_back(index, rec.inputs.size());
    rec.events.push_back({EventKind::backward, index});
    rec.backwards.push_back(std::move(backward));
    return std::nullopt;
}

void Recorder::end_backward(std::span<const TensorRef> grads) {
    if (open_backwards_.empty()) return;  // the pass began before the call became a recording
    Record& rec = record();
    const auto [index, known_slots] = open_backwards_.back();
    open_backwards_.pop_back();
    RecordedBackward& backward = rec.backwards[index];
    for (const TensorRef& grad : grads) backward.grads.push_back(grad ? value_of(grad) : kNoValue);
    backward.end_event = static_cast<uint32_t>(rec.events.size());
    // Only a run of backward can bind tensors again that only backward reads.
    if (rec.inputs.size() != known_slots) rec.needs_tapes = true;
}

// ---- values on the host

void Recorder::add_barrier() {
    Record& rec = record();
    rec.events.push_back({EventKind::barrier, segment_, where_()});
    rec.segment_ends.push_back(static_cast<uint32_t>(rec.graph.nodes().size()));
    ++segment_;
}

void Recorder::on_read(Tensor& tensor) {
    note_read(tensor);
    if (captures_) note_value_read(tensor, where_());
    if (is_of_outside(tensor)) note_outside_read();
    if (!is_placeholder(tensor)) {
        if (const auto extents = extents_.find(tensor.id()); extents != extents_.end())
            note_extent_reads(all_extents(extents->second));
        return;
    }
    const RecordId id{tensor.trace.value};
    RecordedValue& value = record()[id];
    note_extent_reads(notes().of_extents_of(id).extents);
    if (value.tensor) return;  // static: equal in every call
    if (read_host_value(tensor)) return;
    if (function_.options.symbolic) {
        if (tensor.has_data()) return;  // a barrier has computed it
        refuse(
            {.what = cat("the value of a ", to_string(tensor.type()),
                         " tensor is read inside a function traced with symbolic=True"),
             .why = "with symbolic=True tensors are placeholders: nothing has been computed yet",
             .fix = cat(
                 "write F.cond for an if on it, F.while_loop for a while; or use symbolic=False",
                 function_.options.pipeline.memory.limit
                     ? " without memory_limit, which implies symbolic=True"
                     : "",
                 ", put this code under exclude_from_trace(), or return the tensor and read it outside"),
             .at = where_()},
            runtime::ErrorKind::value);
    }
    value.is_output = true;
    if (record().segment_of(id) == segment_) add_barrier();
}

bool Recorder::can_read(const Tensor& tensor) const {
    return is_placeholder(tensor) && !function_.options.symbolic;
}

void Recorder::enter_excluded() {
    const std::span<const Node> nodes = record().segment(segment_);
    if (std::ranges::find(nodes, NodeKind::op, &Node::kind) == nodes.end()) return;
    const std::vector<RecordId> live = live_values();
    for (RecordId id : live) record()[id].is_output = true;
    const bool has_limit = function_.options.pipeline.memory.limit != 0;
    if (function_.options.symbolic && !has_limit) {
        std::vector<RecordId> wanted = live;
        for (const Node& node : nodes)
            if (node.op && runtime::is_ordered(*node.op)) wanted.push_back(node.outputs.back());
        compute_now(wanted);
    }
    add_barrier();
    if (has_limit) run_segment(segment_ - 1);  // op by op, the segment would take unplanned memory
}

// ---- the end of the call

void Recorder::complete() {
    Record& rec = record();
    for (RecordId id : live_values()) rec[id].is_output = true;
    rec.mark_crossing_values();
    for (const auto& [id, name] : names_)
        if (const auto found = find(id); found && rec.graph.name(*found).empty())
            rec.graph.set_name(*found, name);
    for (auto& [tensor, where] : outside_reads_)
        if (const auto id = find(tensor)) notes().value_reads.push_back({*id, std::move(where)});
    if (captures_) keep_captured();  // what is held is not given away
    for (size_t slot = 0; slot < bound_.size(); ++slot) {
        const TensorRef& given = bound_[slot];
        rec.inputs[slot].is_released = given && given->unique();
        rec.inputs[slot].is_lent =
            given && given->has_data() && given->storage()->is_borrowed_to_write();
    }
    for (const RecordedBackward& backward : rec.backwards)
        for (const RecordId id : backward.wanted)
            if (rec.is_from_outside(id)) rec.input(id).is_trained = true;
    function_.add(version_);
    is_refused_ = function_.options.only_plan;
    if (function_.options.symbolic && !function_.options.record_only && !is_refused_)
        run_segment(rec.segments() - 1);
}

void Recorder::keep_captured() {
    const bool runs = !function_.options.record_only;  // then it may write over what it replaces
    for (size_t slot = 0; slot < bound_.size(); ++slot)
        if (Input& input = record().inputs[slot];
            input.kind != Input::Kind::argument && !(runs && input.kind == Input::Kind::state))
            input.held = bound_[slot];
}

// Values that were computed of these tensors alone, while recording, follow from them in each call.
void Recorder::make_varying(std::span<const uint64_t> tensors) {
    Record& rec = record();
    std::vector<bool> varies(rec.values.size());
    for (const uint64_t tensor : tensors) {
        const auto id = find(tensor);
        if (!id || !rec.is_constant(*id)) continue;
        RecordedValue& value = rec[*id];
        varies[at(*id)] = true;
        value.slot = static_cast<uint32_t>(rec.inputs.size());
        rec.inputs.push_back({.kind = Input::Kind::state, .value = *id});
        bound_.push_back(std::exchange(value.tensor, {}));
    }
    for (const Node& node : rec.graph.nodes())
        if (std::ranges::any_of(node.inputs, [&](RecordId id) { return varies[at(id)]; }))
            for (RecordId output : node.outputs)
                if (rec[output].tensor) {
                    rec[output].tensor = {};
                    varies[at(output)] = true;
                }
    order_slots();
}

// Slots stand in the order of their values: a prefix of the record has the first of them.
void Recorder::order_slots() {
    Record& rec = record();
    std::vector<std::pair<Input, TensorRef>> ordered;
    for (size_t slot = 0; slot < bound_.size(); ++slot)
        ordered.emplace_back(std::move(rec.inputs[slot]), std::move(bound_[slot]));
    std::ranges::sort(ordered, {}, [](const auto& each) { return each.first.value; });
    std::vector<int> now(ordered.size());
    for (uint32_t slot = 0; slot < ordered.size(); ++slot) {
        rec.inputs[slot] = std::move(ordered[slot].first);
        bound_[slot] = std::move(ordered[slot].second);
        now[std::exchange(rec[rec.inputs[slot].value].slot, slot)] = static_cast<int>(slot);
    }
    for (Output& update : rec.outputs)
        if (update.replaces >= 0) update.replaces = now[static_cast<size_t>(update.replaces)];
}

}  // namespace megjit::jit
