#include "jit/trace/replayer.h"

#include <algorithm>
#include <cstring>

#include "jit/trace/recorder.h"
#include "runtime/core/host_view.h"
#include "runtime/host/error.h"

namespace megjit::jit {

using runtime::cat;
using runtime::Results;
using runtime::Tensor;
using runtime::Tensors;

Replayer::Replayer(TraceFunction& function, std::shared_ptr<Version> version, CallKey key,
                   std::span<const TensorRef> arguments, std::function<std::string()> where)
    : Session(function, std::move(version), std::move(key), std::move(where)) {
    values_.resize(record().values.size());
    bound_.resize(record().inputs.size());
    size_t slot = 0;
    for (size_t i = 0; i < arguments.size(); ++i)
        if (key_.arguments[i].same_as == i) bound_[slot++] = arguments[i];
}

const Event* Replayer::event_of(const Record& record) const {
    return cursor_ < record.events.size() ? &record.events[cursor_] : nullptr;
}

// ---- matching

namespace {

constexpr size_t kMostMismatches = 16;  // versions for calls of the same types

constexpr std::string_view kOtherOp = "operator mismatch", kOtherInput = "input id mismatch",
                           kUnreadable = "data unreadable";

std::string recorded_at(const Node& recorded) {
    return recorded.where.empty() ? std::string() : cat(" (recorded at ", recorded.where, ")");
}

}  // namespace

Replayer::Fit Replayer::fit_of_other(const Record& rec, RecordId expected,
                                     const TensorRef& tensor) const {
    const RecordedValue& value = rec[expected];
    const Type& type = rec.graph.type(expected);
    if (is_placeholder(*tensor))
        return rec.is_computed(expected) ? Fit::other_intermediate : Fit::outside_now_intermediate;
    if (value.slot == kNoSlot) {
        if (rec.is_computed(expected)) return Fit::intermediate_now_outside;
        if (value.tensor == tensor) return Fit::yes;
        if (!(tensor->is_constant || function_.options.capture_as_const) ||
            !(tensor->type() == type) || !tensor->has_data())
            return Fit::other_constant;
        const TensorRef held = tensor;  // its elements may have to be waited for
        return std::memcmp(runtime::HostView(held).data(), runtime::HostView(value.tensor).data(),
                           type.bytes()) == 0
                   ? Fit::yes
                   : Fit::other_constant;
    }
    if (tensor->is_constant) return Fit::other_constant;
    if (tensor->trace.is_edited()) return Fit::other_tensor;  // its graph records the op
    if (!(tensor->type() == type) || &tensor->device() != value.device) return Fit::other_type;
    // The version that was followed so far may lack this slot of another version.
    if (value.slot >= bound_.size() || !bound_[value.slot]) return Fit::yes;
    return bound_[value.slot]->id() == tensor->id() ? Fit::yes : Fit::other_tensor;
}

Replayer::Difference Replayer::difference(const Record& rec, const OpDef& op, const Attrs& attrs,
                                          std::span<const TensorRef> inputs,
                                          const runtime::Device* device) const {
    const Event* event = event_of(rec);
    if (!event) return {Fit::no_event};
    if (event->kind == EventKind::barrier) return {Fit::barrier};
    if (event->kind == EventKind::backward) return {Fit::backward};
    if (event->kind == EventKind::variant) return {Fit::variant};
    const Node& recorded = rec.op_of(*event);
    if (recorded.op != &op) return {Fit::other_op};
    if (device && rec[recorded.outputs[0]].device != device) return {Fit::other_device};
    if (recorded.inputs.size() != inputs.size()) return {Fit::other_count};
    Difference found;
    for (size_t i = 0; i < inputs.size() && found.how != Fit::other_type; ++i)
        if (const Fit how = fit(rec, recorded.inputs[i], inputs[i]);
            how == Fit::other_type || (how != Fit::yes && found.how == Fit::yes))
            found = {how, i};
    if (found.how == Fit::other_type) return found;  // attributes may follow from the type
    for (size_t i = 0; i < attrs.size(); ++i)
        if (!runtime::same(attrs[i], recorded.attrs[i])) return {Fit::other_attribute, i};
    return found;
}

Replayer::Mismatch Replayer::in_words(Difference difference, const OpDef& op, const Attrs& attrs,
                                      std::span<const TensorRef> inputs,
                                      const runtime::Device& device) const {
    const auto [how, i] = difference;
    if (how == Fit::no_event)
        return {"too many instructions", cat("one more op, ", op.name, ", than was recorded")};
    if (how == Fit::barrier)
        return {kOtherOp, cat("op ", op.name, " comes where the host read a value")};
    if (how == Fit::backward)
        return {kOtherOp, cat("op ", op.name, " comes where a backward pass began")};
    if (how == Fit::variant)
        return {kOtherOp, cat("op ", op.name, " comes where an optimizer updated its parameters")};
    const Node& recorded = record().op_of(*next_event());
    const std::string at = recorded_at(recorded);
    if (how == Fit::other_op)
        return {kOtherOp, cat("op ", op.name, " in place of ", recorded.op->name, at)};
    if (how == Fit::other_device)
        return {kOtherOp,
                cat("op ", op.name, " computes on ", device.name(), ", not ",
                    record()[recorded.outputs[0]].device->name(), at),
                true};
    if (how == Fit::other_count)
        return {kOtherOp, cat("op ", op.name, " has ", inputs.size(), " inputs, not ",
                              recorded.inputs.size(), at)};
    if (how == Fit::other_attribute && op.attrs[i].kind == runtime::AttrKind::graph)
        return {kOtherOp,
                cat("the ", op.attrs[i].name, " of op ", op.name, " does something else", at)};
    if (how == Fit::other_attribute)
        return {kOtherOp,
                cat("op ", op.name, " has ", op.attrs[i].name, " = ", runtime::to_string(attrs[i]),
                    ", not ", runtime::to_string(recorded.attrs[i]), at)};
    const RecordId operand = recorded.inputs[i];
    if (how == Fit::other_type)
        return {
            kOtherInput,
            cat("an outside tensor of op ", op.name, " is ", to_string(inputs[i]->type()), " on ",
                inputs[i]->device().name(), ", not ", to_string(record().graph.type(operand)),
                " on ", record()[operand].device->name(), at),
            true};
    if (how == Fit::other_tensor)
        return {kOtherInput,
                cat("two operands of op ", op.name, " that were one tensor are two now", at), true};
    if (how == Fit::other_constant)
        return {"tensors not equals",
                cat("a constant of op ", op.name, " has another value", at,
                    record().is_from_outside(operand) ? "; it was a tensor" : "")};
    if (how == Fit::other_intermediate)
        return {kOtherInput,
                cat("input ", i, " of op ", op.name, " is another intermediate value", at)};
    // Code outside of the trace may have replaced the operand.
    return {
        how == Fit::intermediate_now_outside ? "expect internal node, got external"
                                             : "expect external node, got internal",
        cat("input ", i, " of op ", op.name,
            how == Fit::intermediate_now_outside ? " comes from outside now, it was computed inside"
                                                 : " is computed inside now, it came from outside",
            at),
        segment_ > 0};
}

void Replayer::raise_mismatch(std::string_view kind, const std::string& why,
                              const std::string& fix) {
    failure_ = kind;
    runtime::user_error(
        {.what = cat("trace error because ", kind),
         .why = cat(
             "this call does not follow the recorded one: ", why,
             function_.options.records_mismatches && function_.count_like(key_) >= kMostMismatches
                 ? cat("; ", kMostMismatches, " versions were recorded already")
                 : "",
             read_at_.empty() ? "" : cat("; the body reads a value at ", read_at_)),
         .fix =
             !fix.empty()
                 ? fix
                 : "make the body do the same in every call, put what varies under exclude_from_trace(), or trace each variant on its own",
         .at = where_()},
        runtime::ErrorKind::trace);
}

// ---- ops

void Replayer::bind(RecordId expected, const TensorRef& tensor) {
    const uint32_t slot = record()[expected].slot;
    if (slot != kNoSlot && !bound_[slot]) bound_[slot] = tensor;
}

TensorRef Replayer::placeholder(RecordId id) {
    const Record& rec = record();
    const RecordedValue& value = rec[id];
    const Type& type = rec.graph.type(id);
    TensorRef tensor = value.tensor ? runtime::make_tensor(type, value.tensor->storage())
                                    : runtime::make_placeholder(type, *value.device);
    tensor->trace = {id_, static_cast<uint32_t>(id)};
    values_[at(id)] = tensor.share_new();
    return tensor;
}

bool Replayer::follow_another(const std::function<bool(const Record&)>& fits) {
    auto other = function_.find_alternative(
        *version_, cursor_, [&](const Version& version) { return fits(version.record); });
    if (!other) return false;
    version_ = std::move(other);
    values_.resize(record().values.size());
    bound_.resize(record().inputs.size());
    return true;
}

Session& Replayer::go_on_recording(std::string reason) {
    auto recorder = std::make_unique<Recorder>(std::move(*this), cursor_, std::move(reason));
    Recorder& now = *recorder;
    runtime::context().tracer = &now;
    successor_ = std::move(recorder);
    now.catch_up();  // which may raise: this session has given all that it has to the recorder
    return now;
}

// Operands have the recorded types and devices: ops that prepare operands were recorded by
// themselves. Where constants alone are operands, the device depends on the caller.
Results Replayer::follow(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs) {
    const auto is_constant = [](const TensorRef& input) { return input->is_constant; };
    // A capture for dump notes operands before they are matched.
    if (!failure_.empty() || function_.options.capture_as_const ||
        std::ranges::all_of(inputs, is_constant) ||
        difference(record(), op, attrs, inputs, nullptr).how != Fit::yes)
        return {};
    return advance(inputs);
}

Results Replayer::on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                        runtime::Device& device) {
    if (op.is_data_dependent()) return compute_outside(op, attrs, inputs, device);
    if (!failure_.empty()) raise_mismatch(failure_, "an earlier op of this call already differed");
    const auto fits = [&](const Record& other) {
        return difference(other, op, attrs, inputs, &device).how == Fit::yes;
    };
    if (const Difference found = difference(record(), op, attrs, inputs, &device);
        found.how != Fit::yes && !follow_another(fits)) {
        const Mismatch mismatch = in_words(found, op, attrs, inputs, device);
        if (mismatch.retypes || may_record() || takes_other_type(inputs) || casts_otherwise(op))
            return go_on_recording(mismatch.why).on_op(op, attrs, inputs, device);
        // An op that cannot run is the user's error, as without a trace; the body may expect it.
        std::vector<Type> types;
        for (const TensorRef& input : inputs) types.push_back(input->type());
        runtime::infer({op, attrs, types});
        raise_mismatch(mismatch.kind, mismatch.why);
    }
    return advance(inputs);
}

// Does the op at hand read a tensor from outside, as the first of this call, that has another dtype
// than the record knows there? The ops that come, such as casts, follow from it.
bool Replayer::takes_other_type(std::span<const TensorRef> inputs) const {
    if (function_.options.capture_as_const) return false;  // they are constants
    const auto is_new = [&](const TensorRef& tensor) {
        return !is_placeholder(*tensor) && !tensor->is_constant && !tensor->trace.is_edited() &&
               std::ranges::find(bound_, tensor) == bound_.end();
    };
    const auto found = std::ranges::find_if(inputs, is_new);
    if (found == inputs.end()) return false;
    const Record& rec = record();
    const auto is_unread = [&](RecordId id) {
        return rec.is_from_outside(id) && !bound_[rec[id].slot];
    };
    const Event* event = next_event();
    const bool is_first = event && event->kind == EventKind::op &&
                          std::ranges::any_of(rec.op_of(*event).inputs, is_unread);
    std::vector<RecordId> outside;
    for (const Input& input : rec.inputs) outside.push_back(input.value);
    bool has_other = false;
    for (const RecordId id : is_first ? rec.op_of(*event).inputs : outside) {
        const Type &then = rec.graph.type(id), &now = (*found)->type();
        if (!is_unread(id) || !(then.shape == now.shape)) continue;
        if (then.dtype == now.dtype) return false;
        has_other = true;
    }
    return has_other;
}

// Does a cast come or go where a tensor from outside was read that this call has not read? It may
// have another dtype by now. The ops that come read it, and are recorded.
bool Replayer::casts_otherwise(const OpDef& op) const {
    const Event* event = next_event();
    if (!event || event->kind != EventKind::op || function_.options.capture_as_const) return false;
    const Node& recorded = record().op_of(*event);
    const auto is_cast = [](const OpDef* one) { return one == &runtime::ops::cast(); };
    if ((!is_cast(&op) && !is_cast(recorded.op)) || function_.count_like(key_) >= kMostMismatches)
        return false;
    return std::ranges::any_of(recorded.inputs, [&](RecordId id) {
        return record().is_from_outside(id) && !bound_[record()[id].slot];
    });
}

void Replayer::note_variant(const std::string& what) {
    if (!failure_.empty()) return;  // the end of the call says so
    const auto fits = [&](const Record& other) {
        const Event* event = event_of(other);
        return event && event->kind == EventKind::variant && event->text == what;
    };
    if (!fits(record()) && !follow_another(fits)) {
        if (const Event* event = next_event();
            !may_record() && (!event || event->kind != EventKind::variant))
            raise_mismatch(kOtherOp, "an optimizer updates its parameters where it did not");
        return go_on_recording("an optimizer updates other parameters together").note_variant(what);
    }
    ++cursor_;
}

// Goes past the op that the call at hand fits.
Results Replayer::advance(std::span<const TensorRef> inputs) {
    const Node& recorded = record().op_of(*next_event());
    ++cursor_;
    for (size_t i = 0; i < inputs.size(); ++i) bind(recorded.inputs[i], inputs[i]);
    if (recorded.outputs.size() == 1) return placeholder(recorded.outputs[0]);
    Results outputs;
    for (RecordId id : recorded.outputs) outputs.push_back(placeholder(id));
    return outputs;
}

// Types and identities of leaves were checked where forward read them; unread ones may differ.
bool Replayer::are_expected(const Record& rec, const std::vector<RecordId>& expected,
                            std::span<const TensorRef> tensors) const {
    bool same = expected.size() == tensors.size();
    for (size_t i = 0; same && i < tensors.size(); ++i)
        same = fit(rec, expected[i], tensors[i]) == Fit::yes;
    return same;
}

size_t Replayer::other_result(std::span<const TensorRef> results) const {
    const std::vector<RecordId>& recorded = version_->notes.results;
    if (results.size() != recorded.size()) return std::min(results.size(), recorded.size());
    for (size_t i = 0; i < results.size(); ++i)
        if (fit(record(), recorded[i], results[i]) != Fit::yes) return i;
    return kAsRecorded;
}

Replayer::Mismatch Replayer::backward_mismatch(const Record& rec, std::span<const TensorRef> ys,
                                               std::span<const TensorRef> dys,
                                               std::span<const TensorRef> wanted,
                                               const std::vector<std::string>& groups) const {
    const Event* event = event_of(rec);
    if (!event || event->kind != EventKind::backward)
        return {kOtherOp, "a backward pass begins where none was recorded"};
    const RecordedBackward& recorded = rec.backwards[event->index];
    std::string_view what;
    if (!are_expected(rec, recorded.ys, ys)) what = "results";
    else if (!are_expected(rec, recorded.dys, dys)) what = "gradients of results";
    else if (!are_expected(rec, recorded.wanted, wanted)) what = "attached tensors";
    if (!what.empty()) return {kOtherInput, cat("backward has other ", what, " than recorded")};
    if (recorded.groups != groups)
        return {kOtherOp, "backward adds up other gradients over processes than recorded"};
    return {};
}

std::optional<Tensors> Replayer::begin_backward(std::span<const TensorRef> ys,
                                                std::span<const TensorRef> dys,
                                                std::span<const TensorRef> wanted,
                                                const std::vector<std::string>& groups) {
    const auto mismatch = [&](const Record& rec) {
        return backward_mismatch(rec, ys, dys, wanted, groups);
    };
    if (const Mismatch found = mismatch(record()); !found.kind.empty()) {
        if (!follow_another([&](const Record& rec) { return mismatch(rec).kind.empty(); })) {
            if (!may_record()) raise_mismatch(found.kind, found.why);
            return go_on_recording(found.why).begin_backward(ys, dys, wanted, groups);
        }
    }
    const RecordedBackward& recorded = record().backwards[next_event()->index];
    for (size_t i = 0; i < ys.size(); ++i) bind(recorded.ys[i], ys[i]);
    for (size_t i = 0; i < dys.size(); ++i) bind(recorded.dys[i], dys[i]);
    for (size_t i = 0; i < wanted.size(); ++i) bind(recorded.wanted[i], wanted[i]);
    ++cursor_;
    if (record().needs_tapes) return std::nullopt;
    Tensors grads;
    for (RecordId id : recorded.grads) {
        if (id == kNoValue) grads.emplace_back();
        else if (record().is_from_outside(id)) grads.push_back(bound_[record()[id].slot]);
        else if (record().is_constant(id)) grads.push_back(record()[id].tensor);
        else grads.push_back(values_[at(id)] ? values_[at(id)] : placeholder(id));
    }
    cursor_ = recorded.end_event;
    return grads;
}

// ---- values on the host, and the end of the call

void Replayer::run_to_barrier() {
    const Event* event = next_event();
    if (!event || event->kind != EventKind::barrier) return;
    run_segment(segment_);
    ++segment_;
    ++cursor_;
}

void Replayer::on_read(Tensor& tensor) {
    note_read(tensor);
    if (!is_placeholder(tensor) || tensor.has_data()) return;
    if (read_host_value(tensor)) return;
    const auto fits = [&](const Record& rec) {
        const Event* event = event_of(rec);
        return event && event->kind == EventKind::barrier &&
               rec[RecordId{tensor.trace.value}].is_output;
    };
    if (!fits(record()) && takes_mismatches() && !follow_another(fits) && may_record())
        return go_on_recording("a value is read that was not read").on_read(tensor);
    run_to_barrier();
    if (!tensor.has_data())
        raise_mismatch(kUnreadable,
                       "a value is read that was not read when the function was recorded",
                       "return the tensor and read it outside, or read it in every call");
}

bool Replayer::can_read(const Tensor& tensor) const {
    const Event* event = next_event();
    return is_placeholder(tensor) && event && event->kind == EventKind::barrier &&
           record()[RecordId{tensor.trace.value}].is_output;
}

std::string Replayer::rest_of_record() const {
    const Event& event = *next_event();
    if (event.kind == EventKind::op) {
        const Node& node = record().op_of(event);
        return cat("the recorded op ", node.op->name, " (", node.where, ")");
    }
    if (event.kind == EventKind::backward) return "the recorded backward pass";
    if (event.kind == EventKind::variant) return "the recorded update of parameters";
    return "a recorded read of a value";
}

bool Replayer::takes_mismatches() const {
    return failure_.empty() &&
           (function_.options.records_mismatches || function_.always_retypes(key_));
}

bool Replayer::may_record() const {
    return takes_mismatches() && function_.count_like(key_) < kMostMismatches;
}

void Replayer::settle() {
    if (!next_event() || !takes_mismatches()) return;
    if (!follow_another([&](const Record& rec) { return !event_of(rec); }) && may_record())
        go_on_recording(cat("the body ended before ", rest_of_record()));
}

void Replayer::complete() {
    if (!failure_.empty())
        raise_mismatch(failure_,
                       "an op of this call differed and its error was caught by the body");
    if (next_event())
        raise_mismatch("mismature end", cat("the body ended before ", rest_of_record()));
    // A tensor that this call keeps, and the recorded call did not, is an output from here on.
    std::vector<RecordId> kept = live_values();
    std::erase_if(
        kept, [this](RecordId id) { return record()[id].tensor || values_[at(id)]->has_data(); });
    if (!version_->add_outputs(kept))
        raise_mismatch(kUnreadable,
                       "a tensor is kept that was not kept when the function was recorded",
                       "keep it in every call, or return it");
    run_segment(record().segments() - 1);
    ++version_->calls;
}

}  // namespace megjit::jit
