#include "jit/session.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/error.h"
#include "runtime/random.h"
#include "runtime/rematerializer.h"
#include "runtime/user_line.h"

namespace megjit::jit {

using runtime::cat;
using runtime::ErrorKind;
using runtime::Tensor;
using runtime::Tensors;

namespace {

constexpr std::string_view kPrefix = "trace: this call does not follow the recorded one";

uint64_t next_session_id() {
    static std::atomic<uint64_t> next{1};
    return next++;
}

}  // namespace

Session::Session(TraceFunction& function, std::shared_ptr<Version> version, CallKey key,
                 std::string reason, std::function<std::string()> where)
    : function_(function),
      version_(std::move(version)),
      key_(std::move(key)),
      where_(std::move(where)),
      id_(next_session_id()) {
    if (version_) {
        mode_ = Mode::replay;
        values_.resize(record().values.size());
        bound_.resize(record().outside.size());
    } else {
        mode_ = function.options.symbolic ? Mode::record_symbolic : Mode::record_value;
        version_ = std::make_shared<Version>();
        version_->key = key_;
        version_->reason = std::move(reason);
    }
}

Session::~Session() = default;

Tensors Session::on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs) {
    if (op.is_data_dependent()) {
        // Its result has a shape that only data can tell: it runs now, and comes back from outside.
        bool any = false;
        for (const TensorRef& input : inputs) any = any || is_placeholder(*input);
        if (any) enter_excluded();
        if (!runtime::context().tapes.empty()) note_open_backward();
        return runtime::compute(op, attrs, inputs);
    }
    return mode_ == Mode::replay ? replay_op(op, attrs, inputs) : record_op(op, attrs, inputs);
}

void Session::bind_arguments(std::span<const TensorRef> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
        if (is_recording())
            version_->argument_slots.push_back(record().values[record_id_of(arguments[i])].slot);
        else bound_[version_->argument_slots[i]] = arguments[i];
    }
    captures_ = function_.options.capture_as_const;
}

const Event* Session::next_event() const {
    const auto& events = version_->record.events;
    return cursor_ < events.size() ? &events[cursor_] : nullptr;
}

// ---- recording

RecordId Session::record_id_of(const TensorRef& tensor) {
    if (is_placeholder(*tensor)) return tensor->trace.value;
    if (auto found = outside_ids_.find(tensor->id()); found != outside_ids_.end())
        return found->second;
    Record& rec = record();
    const auto id = static_cast<RecordId>(rec.values.size());
    RecordedValue value{.type = tensor->type()};
    // Random keys differ from call to call: they stay inputs, and only a dump bakes them in.
    if (tensor->is_constant || (captures_ && tensor->has_data() && !runtime::stream_of(*tensor))) {
        value.origin = Origin::constant;
        value.tensor = tensor;
        runtime::Rematerializer::instance().keep(*tensor);
    } else {
        value.origin = Origin::outside;
        value.slot = static_cast<uint32_t>(rec.outside.size());
        rec.outside.push_back(id);
        bound_.push_back(tensor);
    }
    rec.values.push_back(std::move(value));
    values_.emplace_back();
    outside_ids_.emplace(tensor->id(), id);
    return id;
}

Tensors Session::record_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs) {
    RecordedOp recorded{.op = &op,
                        .attrs = attrs,
                        .where = where_(),
                        .role = {.is_backward = !open_backwards_.empty()},
                        .scope = scope_};
    if (recompute_depth_) recorded.marks.region = recompute_calls_;
    bool is_static = true;  // follows from constants alone
    size_t small = 0;
    for (const TensorRef& input : inputs) {
        const RecordId id = record_id_of(input);
        recorded.inputs.push_back(id);
        is_static = is_static && record().values[id].tensor;
        small += input->type().bytes();
    }
    is_static = is_static && !inputs.empty() && small <= 4096;
    Tensors outputs;
    if (mode_ == Mode::record_value || is_static) {
        outputs = runtime::compute(op, attrs, inputs);
        for (TensorRef& output : outputs)
            if (is_placeholder(*output) || output->is_constant || output->use_count() > 1)
                output = runtime::make_tensor(output->type(), output->storage());
    } else {
        std::vector<Type> types;
        for (const TensorRef& input : inputs) types.push_back(input->type());
        for (const Type& type : runtime::infer({op, attrs, types}))
            outputs.push_back(runtime::make_tensor(type));
    }
    Record& rec = record();
    for (const TensorRef& output : outputs) {
        const auto id = static_cast<RecordId>(rec.values.size());
        recorded.outputs.push_back(id);
        rec.values.push_back(
            {.type = output->type(),
             .origin = Origin::op,
             .segment = segment_,
             .tensor = is_static ? runtime::make_tensor(output->type(), output->storage())
                                 : TensorRef{}});
        values_.push_back(output);
        output->trace = {id_, id};
    }
    rec.events.push_back({EventKind::op, static_cast<uint32_t>(rec.ops.size()), {}});
    rec.ops.push_back(std::move(recorded));
    ++cursor_;
    return outputs;
}

std::vector<RecordId> Session::live_values() const {
    std::vector<RecordId> live;
    for (size_t id = 0; id < values_.size(); ++id)
        if (values_[id] && values_[id]->use_count() > 1) live.push_back(static_cast<RecordId>(id));
    return live;
}

void Session::add_barrier(const std::string& where) {
    Record& rec = record();
    rec.events.push_back({EventKind::barrier, segment_, where});
    rec.segment_end_op.push_back(static_cast<uint32_t>(rec.ops.size()));
    ++rec.segments;
    ++segment_;
    ++cursor_;
}

void Session::begin_backward(std::span<const TensorRef> ys, std::span<const TensorRef> dys,
                             std::span<const TensorRef> wanted) {
    RecordedBackward backward;
    for (const TensorRef& y : ys) backward.ys.push_back(record_id_of(y));
    for (const TensorRef& dy : dys) backward.dys.push_back(record_id_of(dy));
    for (const TensorRef& tensor : wanted) backward.wanted.push_back(record_id_of(tensor));
    Record& rec = record();
    open_backwards_.emplace_back(static_cast<uint32_t>(rec.backwards.size()), rec.outside.size());
    rec.events.push_back(
        {EventKind::backward, static_cast<uint32_t>(rec.backwards.size()), where_()});
    ++cursor_;
    rec.backwards.push_back(std::move(backward));
}

void Session::end_backward(std::span<const TensorRef> grads) {
    if (!is_recording() || open_backwards_.empty()) return;
    Record& rec = record();
    const auto [index, known_slots] = open_backwards_.back();
    open_backwards_.pop_back();
    RecordedBackward& backward = rec.backwards[index];
    for (const TensorRef& grad : grads)
        backward.grads.push_back(grad ? static_cast<int64_t>(record_id_of(grad)) : -1);
    backward.end_event = static_cast<uint32_t>(rec.events.size());
    backward.end_op = static_cast<uint32_t>(rec.ops.size());
    // Tensors that only backward reads cannot be bound again without running it.
    if (rec.outside.size() != known_slots) rec.needs_tapes = true;
}

// ---- replaying

Session::Fit Session::fit(const Record& rec, RecordId expected, const TensorRef& tensor) const {
    const RecordedValue& value = rec.values[expected];
    if (is_placeholder(*tensor)) {
        if (value.origin != Origin::op) return Fit::outside_now_intermediate;
        return tensor->trace.value == expected ? Fit::yes : Fit::other_intermediate;
    }
    if (value.origin == Origin::op) return Fit::intermediate_now_outside;
    if (value.origin == Origin::constant) {
        if (value.tensor == tensor) return Fit::yes;
        if (!(tensor->is_constant || captures_) || !(tensor->type() == value.type) ||
            !tensor->has_data())
            return Fit::other_constant;
        const runtime::Pins pins({&tensor, 1});
        return std::memcmp(tensor->data(), value.tensor->data(), value.type.bytes()) == 0
                   ? Fit::yes
                   : Fit::other_constant;
    }
    if (tensor->is_constant) return Fit::other_constant;
    if (!(tensor->type() == value.type)) return Fit::other_type;
    const TensorRef& bound = value.slot < bound_.size() ? bound_[value.slot] : TensorRef{};
    if (bound && bound->id() != tensor->id()) return Fit::other_tensor;
    return Fit::yes;
}

// "" when the op fits the event. `retypes`: only types or identities of outside tensors differ, for
// which a further version is recorded.
std::string Session::mismatch(const Record& rec, const Event* event, const OpDef& op,
                              const Attrs& attrs, std::span<const TensorRef> inputs,
                              bool& retypes) const {
    retypes = false;
    if (!event) return cat("one more op, ", op.name, ", than was recorded");
    if (event->kind == EventKind::barrier)
        return cat("op ", op.name, " comes where the host read a value");
    if (event->kind == EventKind::backward)
        return cat("op ", op.name, " comes where a backward pass began");
    const RecordedOp& recorded = rec.ops[event->index];
    const auto at = [&] {
        return recorded.where.empty() ? std::string() : cat(" (recorded at ", recorded.where, ")");
    };
    if (recorded.op != &op) return cat("op ", op.name, " in place of ", recorded.op->name, at());
    if (recorded.inputs.size() != inputs.size())
        return cat("op ", op.name, " has ", inputs.size(), " inputs, not ", recorded.inputs.size(),
                   at());
    if (!runtime::same(recorded.attrs, attrs)) {
        for (size_t i = 0; i < attrs.size(); ++i)
            if (!runtime::same(attrs[i], recorded.attrs[i]))
                return cat("op ", op.name, " has ", op.attrs[i].name, " = ",
                           runtime::to_string(attrs[i]), ", not ",
                           runtime::to_string(recorded.attrs[i]), at());
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
        const RecordedValue& value = rec.values[recorded.inputs[i]];
        switch (fit(rec, recorded.inputs[i], inputs[i])) {
            case Fit::yes: break;
            case Fit::other_type:
                retypes = true;
                return cat("an outside tensor of op ", op.name, " is ",
                           to_string(inputs[i]->type()), ", not ", to_string(value.type), at());
            case Fit::other_tensor:
                retypes = true;
                return cat("two operands of op ", op.name, " that were one tensor are two now",
                           at());
            case Fit::other_constant:
                return cat("a constant of op ", op.name, " has another value", at(),
                           value.origin == Origin::outside ? "; it was a tensor" : "");
            case Fit::intermediate_now_outside:
                retypes = segment_ > 0;  // code outside of the trace may have replaced it
                return cat("input ", i, " of op ", op.name,
                           " comes from outside now, it was computed inside", at());
            case Fit::outside_now_intermediate:
                retypes = segment_ > 0;
                return cat("input ", i, " of op ", op.name,
                           " is computed inside now, it came from outside", at());
            case Fit::other_intermediate:
                return cat("input ", i, " of op ", op.name, " is another intermediate value", at());
        }
    }
    return "";
}

void Session::bind(RecordId expected, const TensorRef& tensor) {
    const RecordedValue& value = record().values[expected];
    if (value.origin == Origin::outside && !bound_[value.slot]) bound_[value.slot] = tensor;
}

TensorRef Session::placeholder(RecordId id) {
    const RecordedValue& value = record().values[id];
    TensorRef tensor = runtime::make_tensor(
        value.type, value.tensor ? value.tensor->storage() : runtime::Ref<runtime::Storage>{});
    tensor->trace = {id_, id};
    values_[id] = tensor;
    return tensor;
}

Tensors Session::replay_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs) {
    if (failed_) raise_mismatch("an earlier op of this call already differed");
    bool retypes = false;
    std::string why = mismatch(record(), next_event(), op, attrs, inputs, retypes);
    if (!why.empty()) {
        const auto fits = [&](const Version& other) {
            bool ignored = false;
            const auto& events = other.record.events;
            return mismatch(other.record, cursor_ < events.size() ? &events[cursor_] : nullptr, op,
                            attrs, inputs, ignored)
                .empty();
        };
        if (auto other = function_.find_alternative(*version_, cursor_, fits)) {
            version_ = other;
            values_.resize(record().values.size());
            bound_.resize(record().outside.size());
        } else if (retypes) {
            fork(why);
            return record_op(op, attrs, inputs);
        } else {
            // An op that cannot be is the user's error, as without a trace; the body may expect it.
            std::vector<Type> types;
            for (const TensorRef& input : inputs) types.push_back(input->type());
            runtime::infer({op, attrs, types});
            failed_ = true;
            raise_mismatch(why);
        }
    }
    const RecordedOp& recorded = record().ops[next_event()->index];
    ++cursor_;
    for (size_t i = 0; i < inputs.size(); ++i) bind(recorded.inputs[i], inputs[i]);
    Tensors outputs;
    outputs.reserve(recorded.outputs.size());
    for (RecordId id : recorded.outputs) outputs.push_back(placeholder(id));
    return outputs;
}

// The call goes on as a recording of a further version that begins like the one followed so far.
void Session::fork(const std::string& reason) {
    auto fresh = std::make_shared<Version>();
    fresh->record = version_->prefix(cursor_);
    fresh->argument_slots = version_->argument_slots;
    fresh->key = key_;
    fresh->reason = reason;
    version_ = std::move(fresh);
    values_.resize(record().values.size());
    bound_.resize(record().outside.size());
    for (RecordId id = 0; id < record().values.size(); ++id) {
        const RecordedValue& value = record().values[id];
        if (value.origin == Origin::op) continue;
        const TensorRef& tensor =
            value.origin == Origin::constant ? value.tensor : bound_[value.slot];
        if (tensor) outside_ids_.emplace(tensor->id(), id);
    }
    mode_ = function_.options.symbolic ? Mode::record_symbolic : Mode::record_value;
    if (mode_ == Mode::record_value) compute_now(live_values());
}

void Session::raise_mismatch(const std::string& what, const std::string& fix) {
    failed_ = true;
    runtime::user_error(
        {.what = std::string(kPrefix),
         .why = what,
         .fix =
             !fix.empty()
                 ? fix
                 : "make the body do the same in every call, put what varies under exclude_from_trace(), or trace each variant on its own",
         .at = where_()},
        ErrorKind::trace);
}

std::optional<Tensors> Session::replay_backward(std::span<const TensorRef> ys,
                                                std::span<const TensorRef> dys,
                                                std::span<const TensorRef> wanted) {
    if (is_recording()) return std::nullopt;
    const Event* event = next_event();
    if (!event || event->kind != EventKind::backward)
        raise_mismatch("a backward pass begins where none was recorded");
    const uint32_t index = event->index;
    const RecordedBackward& recorded = record().backwards[index];
    const auto check = [&](const std::vector<RecordId>& expected,
                           std::span<const TensorRef> tensors, std::string_view what) {
        bool same = expected.size() == tensors.size();
        for (size_t i = 0; same && i < tensors.size(); ++i) {
            // Types and identities of leaves were checked where forward read them; unread ones may
            // differ.
            const Fit how = fit(record(), expected[i], tensors[i]);
            same = how == Fit::yes;
        }
        if (!same) raise_mismatch(cat("backward has other ", what, " than recorded"));
    };
    check(recorded.ys, ys, "results");
    check(recorded.dys, dys, "gradients of results");
    check(recorded.wanted, wanted, "attached tensors");
    for (size_t i = 0; i < ys.size(); ++i) bind(recorded.ys[i], ys[i]);
    for (size_t i = 0; i < dys.size(); ++i) bind(recorded.dys[i], dys[i]);
    for (size_t i = 0; i < wanted.size(); ++i) bind(recorded.wanted[i], wanted[i]);
    ++cursor_;
    if (record().needs_tapes) return std::nullopt;
    Tensors grads;
    for (int64_t id : recorded.grads) {
        if (id < 0) {
            grads.emplace_back();
            continue;
        }
        const RecordedValue& value = record().values[static_cast<RecordId>(id)];
        if (value.origin == Origin::op) {
            TensorRef& known = values_[static_cast<RecordId>(id)];
            grads.push_back(known ? known : placeholder(static_cast<RecordId>(id)));
        } else {
            grads.push_back(value.origin == Origin::constant ? value.tensor : bound_[value.slot]);
        }
    }
    cursor_ = recorded.end_event;
    return grads;
}

// ---- values on the host

void Session::on_read(Tensor& tensor) {
    if (!is_placeholder(tensor)) return;
    const RecordId id = tensor.trace.value;
    if (mode_ == Mode::replay) {
        if (tensor.has_data()) return;
        const Event* event = next_event();
        if (event && event->kind == EventKind::barrier) run_segment(segment_);
        if (!tensor.has_data())
            raise_mismatch("a value is read that was not read when the function was recorded",
                           "return the tensor and read it outside, or read it in every call");
        return;
    }
    RecordedValue& value = record().values[id];
    if (value.tensor) return;  // static: equal in every call
    if (mode_ == Mode::record_symbolic) {
        if (tensor.has_data()) return;  // a barrier has computed it
        runtime::user_error(
            {.what = cat("the value of a ", to_string(tensor.type()),
                         " tensor is read inside a function traced with symbolic=True"),
             .why = "with symbolic=True tensors are placeholders: nothing has been computed yet",
             .fix =
                 "use symbolic=False, put this code under exclude_from_trace(), or return the tensor and read it outside",
             .at = where_()},
            ErrorKind::value);
    }
    const bool known = value.is_output && value.segment < segment_;
    value.is_output = true;
    if (!known && value.segment == segment_) add_barrier(where_());
}

void Session::enter_excluded() {
    if (mode_ == Mode::replay) {
        const Event* event = next_event();
        if (event && event->kind == EventKind::barrier) run_segment(segment_);
        return;
    }
    Record& rec = record();
    const uint32_t first = rec.segment_end_op.empty() ? 0 : rec.segment_end_op.back();
    if (rec.ops.size() == first) return;
    const std::vector<RecordId> live = live_values();
    for (RecordId id : live) rec.values[id].is_output = true;
    if (mode_ == Mode::record_symbolic) compute_now(live);
    add_barrier(where_());
}

void Session::run_segment(uint32_t index) {
    CompiledSegment compiled;
    try {
        compiled = version_->compiled(index, function_.options);
    } catch (const OverLimit&) {
        is_refused_ = true;
        throw;
    } catch (const runtime::Error&) { throw; } catch (const std::bad_alloc&) {
        throw;
    } catch (...) {  // Ctrl-C: whoever does not wait for a plan does not wait for the same op by op
        is_refused_ = true;
        throw;
    }
    // What an earlier segment had no reason to give: this call began by another version, which
    // ended differently.
    std::vector<RecordId> missing;
    for (RecordId id : compiled.segment->inputs)
        if (record().values[id].origin == Origin::op && values_[id] && !values_[id]->has_data())
            missing.push_back(id);
    if (!missing.empty()) compute_now(missing);
    const bool is_last = index + 1 == record().segments;
    Tensors read_again = is_last ? Tensors() : bound_;  // by the segments behind this one
    const Tensors outputs = compiled.run(record(), is_last ? bound_ : read_again, values_);
    for (size_t i = 0; i < outputs.size(); ++i)
        if (const TensorRef& tensor = values_[compiled.segment->outputs[i]])
            tensor->materialize(outputs[i]->storage());
    if (is_last) return;
    ++segment_;
    ++cursor_;
}

void Session::compute_now(const std::vector<RecordId>& wanted) {
    const Record& rec = record();
    std::vector<TensorRef> computed(rec.values.size());
    std::vector<bool> needed(rec.values.size());
    const auto data_of = [&](RecordId id) -> TensorRef {
        const RecordedValue& value = rec.values[id];
        if (value.tensor) return value.tensor;
        if (value.origin == Origin::outside) return bound_[value.slot];
        return values_[id] && values_[id]->has_data() ? values_[id] : computed[id];
    };
    for (RecordId id : wanted) needed[id] = !data_of(id);
    for (size_t i = rec.ops.size(); i-- > 0;) {
        bool any = false;
        for (RecordId output : rec.ops[i].outputs) any = any || needed[output];
        if (!any) continue;
        for (RecordId input : rec.ops[i].inputs)
            if (!data_of(input)) needed[input] = true;
    }
    for (const RecordedOp& op : rec.ops) {
        bool any = false;
        for (RecordId output : op.outputs) any = any || needed[output];
        if (!any) continue;
        Tensors inputs;
        for (RecordId input : op.inputs) {
            inputs.push_back(data_of(input));
            if (!inputs.back())
                throw runtime::InternalError(
                    cat("an operand of ", op.op->name, " is not known in this call"));
        }
        const runtime::AtUserLine at(op.where);
        const Tensors outputs = runtime::compute(*op.op, op.attrs, inputs);
        for (size_t i = 0; i < outputs.size(); ++i) computed[op.outputs[i]] = outputs[i];
    }
    for (RecordId id : wanted)
        if (computed[id]) values_[id]->materialize(computed[id]->storage());
}

// ---- the end of the call

void Session::finish() {
    if (failed_) raise_mismatch("an op of this call differed and its error was caught by the body");
    if (is_recording()) {
        Record& rec = record();
        for (RecordId id : live_values()) rec.values[id].is_output = true;
        rec.mark_crossing_values();
        keep_captured();
        version_->donatable.resize(rec.outside.size());
        for (size_t slot = 0; slot < bound_.size(); ++slot)
            version_->donatable[slot] = bound_[slot] && bound_[slot]->use_count() == 1;
        function_.add(version_);
        is_refused_ = function_.options.only_plan;
        if (mode_ == Mode::record_symbolic && !function_.options.record_only && !is_refused_)
            run_segment(rec.segments - 1);
        function_.note_use(version_);
        return;
    }
    if (const Event* event = next_event()) {
        const std::string what = event->kind == EventKind::op
                                     ? cat("the recorded op ", record().ops[event->index].op->name,
                                           " (", record().ops[event->index].where, ")")
                                 : event->kind == EventKind::backward
                                     ? std::string("the recorded backward pass")
                                     : std::string("a recorded read of a value");
        raise_mismatch(cat("the body ended before ", what));
    }
    // A tensor that this call keeps, and the recorded one did not: one more output from here on.
    std::vector<RecordId> kept = live_values();
    std::erase_if(kept, [this](RecordId id) {
        return record().values[id].tensor || values_[id]->has_data();
    });
    if (!version_->add_outputs(kept))
        raise_mismatch("a tensor is kept that was not kept when the function was recorded",
                       "keep it in every call, or return it");
    run_segment(record().segments - 1);
    ++version_->calls;
    function_.note_use(version_);
}

void Session::note_results(std::span<const TensorRef> results) {
    if (!is_recording()) return;
    version_->results.clear();
    for (const TensorRef& result : results) version_->results.push_back(record_id_of(result));
}

void Session::note_name(const TensorRef& tensor, std::string name) {
    if (!is_recording() || !captures_) return;
    if (is_placeholder(*tensor)) version_->names[tensor->trace.value] = std::move(name);
    else names_.emplace(tensor->id(), std::move(name));
}

RecordedOp* Session::op_that_made(const TensorRef& tensor) {
    if (!is_placeholder(*tensor)) return nullptr;
    std::vector<RecordedOp>& ops = record().ops;
    for (size_t i = ops.size(); i-- > 0;)
        if (std::find(ops[i].outputs.begin(), ops[i].outputs.end(), tensor->trace.value) !=
            ops[i].outputs.end())
            return &ops[i];
    return nullptr;
}

void Session::mark_kept(const TensorRef& tensor) {
    if (is_recording()) marks_of(tensor, "keep").stays = true;
}

void Session::mark_offloaded(const TensorRef& tensor) {
    if (is_recording()) marks_of(tensor, "offload").is_offloaded = true;
}

Marks& Session::marks_of(const TensorRef& tensor, std::string_view mark) {
    if (RecordedOp* op = op_that_made(tensor)) return op->marks;
    runtime::user_error(
        {.what = cat(mark, ": this ", to_string(tensor->type()),
                     " tensor is not computed by the traced function"),
         .why = "inputs, parameters and constants have memory of their own, and stay there anyway",
         .fix = "mark a result of an operation inside the function",
         .at = where_()});
}

void Session::begin_recompute() {
    if (recompute_depth_++) return;
    ++recompute_calls_;
    recompute_segment_ = segment_;
}

void Session::end_recompute(std::span<const TensorRef> results) {
    if (--recompute_depth_ || !is_recording()) return;
    if (segment_ != recompute_segment_)
        runtime::user_error(
            {.what = "recompute: the function reads a value, or leaves the trace",
             .why = "what was computed before that cannot be computed again behind it",
             .fix = "read the value outside of the function that is given to recompute",
             .at = where_()});
    for (const TensorRef& result : results)
        if (RecordedOp* op = op_that_made(result)) op->marks.leaves_region = true;
}

void Session::keep_captured() {
    if (!captures_) return;
    for (auto& [id, name] : names_)
        if (auto found = outside_ids_.find(id); found != outside_ids_.end())
            version_->names.emplace(found->second, std::move(name));
    version_->captured = bound_;
    for (uint32_t slot : version_->argument_slots) version_->captured[slot] = {};
}

void Session::abort() noexcept {
    if (is_refused_) return;  // running it op by op would take more memory still
    const std::vector<RecordId> live = live_values();
    try {
        compute_now(live);
        return;
    } catch (const runtime::OutOfMemory&) {
        return;  // one after the other would run out of it as well, and take a step's time for each
    } catch (...) {}
    // One by one: what cannot be computed stays without a value (reading it says so), the rest has
    // one.
    for (RecordId id : live) try {
            compute_now({id});
        } catch (...) {}
}

}  // namespace megjit::jit
