#include "jit/trace/session.h"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <unordered_map>

#include "jit/plan/over_limit.h"
#include "jit/trace/recorder.h"
#include "jit/trace/replayer.h"
#include "runtime/core/random.h"
#include "runtime/host/error.h"
#include "runtime/host/host_lock.h"
#include "runtime/host/size_text.h"
#include "runtime/host/user_line.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {

using runtime::Tensor;
using runtime::Tensors;

std::unique_ptr<Session> Session::begin(TraceFunction& function,
                                        std::span<const TensorRef> arguments,
                                        std::function<std::string()> where, bool may_record) {
    CallKey key = key_of(arguments);
    std::shared_ptr<Version> version;
    if (!function.options.record_only) version = function.find(key);  // else no version runs
    if (version)
        return std::make_unique<Replayer>(function, std::move(version), std::move(key), arguments,
                                          std::move(where));
    if (!may_record) return nullptr;
    return std::make_unique<Recorder>(function, std::move(key), arguments, std::move(where));
}

Session::Session(TraceFunction& function, std::shared_ptr<Version> version, CallKey key,
                 std::function<std::string()> where)
    : function_(function),
      version_(std::move(version)),
      key_(std::move(key)),
      where_(std::move(where)),
      id_(next_trace_id()) {}

void Session::begin_recompute() {
    if (recompute_.depth++) return;
    ++recompute_.calls;
    recompute_.segment = segment_;
}

std::vector<RecordId> Session::live_values() const {
    std::vector<RecordId> live;
    for (size_t id = 0; id < values_.size(); ++id)
        if (values_[id] && values_[id]->use_count() > 1)
            live.push_back(RecordId{static_cast<uint32_t>(id)});
    return live;
}

runtime::Results Session::compute_outside(const OpDef& op, const Attrs& attrs,
                                          std::span<const TensorRef> inputs,
                                          runtime::Device& device) {
    bool any = false;
    for (const TensorRef& input : inputs) any = any || is_placeholder(*input);
    if (any) enter_excluded();
    if (!runtime::context().tapes.empty()) note_open_backward();
    return runtime::compute(op, attrs, inputs, &device);
}

size_t Session::held_bytes() const {
    std::unordered_map<const runtime::Storage*, size_t> held;
    for (const std::vector<TensorRef>* tensors : {&bound_, &values_})
        for (const TensorRef& tensor : *tensors)
            if (tensor && tensor->has_data())
                held[tensor->storage().get()] = tensor->storage()->bytes();
    const auto sizes = std::views::values(held);
    return std::accumulate(sizes.begin(), sizes.end(), size_t{0});
}

void Session::on_results_of_data(std::string_view op, size_t bytes) {
    const size_t limit = function_.options.pipeline.memory.limit;
    if (!limit) return;
    const size_t held = held_bytes();
    if (held + bytes <= limit) {
        version_->arenas->keep_idle_within(limit - held - bytes);
        return;
    }
    const LimitFigures figures{.limit = limit, .needed = held + bytes, .bound = held + bytes};
    const std::string why =
        runtime::cat("beside ", runtime::size_text(held), " of inputs, parameters and values, ", op,
                     " gives ", runtime::size_text(bytes), ": as much as the data selects");
    const OverLimit error(figures, why,
                          {.what = told(figures),
                           .why = why,
                           .fix = runtime::cat("raise the limit to ", figures.needed),
                           .at = where_()});
    is_refused_ = true;
    refusal_.note(error);
    throw error;
}

void Session::run_segment(uint32_t index) {
    // Op by op, a function that spills would take memory that the device does not have.
    const bool spills = !function_.options.pipeline.memory.spill.empty();
    CompiledSegment compiled;
    try {
        compiled = version_->compiled_before(index);
        if (!compiled.program) {
            const runtime::WithoutHostLock release;
            compiled = version_->compiled(index, function_.options);
        }
    } catch (OverLimit& error) {
        if (record().segments() > 1)  // nobody knows how much of a smaller batch is selected
            error.message.fix = runtime::cat("raise the limit to ", error.figures.needed);
        is_refused_ = true;
        refusal_.note(error);  // a body may catch it: a segment before a read is planned alone
        throw;
    } catch (const runtime::Error&) {
        is_refused_ = is_refused_ || spills;
        throw;
    } catch (const std::bad_alloc&) {
        throw;
    } catch (...) {  // Ctrl-C: a user who stops a plan does not wait for a run op by op
        is_refused_ = true;
        throw;
    }
    // An earlier segment had no reason to give some values: this call began by another version,
    // which ended differently.
    std::vector<RecordId> missing;
    for (const Input& input : compiled.step->inputs)
        if (const TensorRef& value = values_[at(input.value)];
            input.kind == Input::Kind::made && value && !value->has_data())
            missing.push_back(input.value);
    if (!missing.empty()) compute_now(missing);
    const bool is_last = index + 1 == record().segments();
    Tensors read_again = is_last ? Tensors() : bound_;  // by the segments after this one
    Tensors outputs;
    try {
        // Others need the lock to tell why they fail.
        const runtime::WithoutHostLock release(compiled.program->takes_a_while());
        outputs = compiled.run(record(), is_last ? bound_ : read_again, values_);
    } catch (...) {
        run_has_failed_ = true;
        is_refused_ = is_refused_ || spills;
        throw;
    }
    for (size_t i = 0; i < outputs.size(); ++i)
        if (const TensorRef& tensor = values_[at(compiled.step->outputs[i].value)])
            tensor->materialize(*outputs[i]);
}

void Session::compute_now(const std::vector<RecordId>& wanted, bool waits) {
    const Record& rec = record();
    std::vector<TensorRef> computed(rec.values.size());
    std::vector<bool> needed(rec.values.size());
    const auto data_of = [&](RecordId id) -> TensorRef {
        const RecordedValue& value = rec[id];
        if (value.tensor) return value.tensor;
        if (value.slot != kNoSlot) return bound_[value.slot];
        const TensorRef& made = values_[at(id)];
        return made && made->has_data() ? made : computed[at(id)];
    };
    const auto is_needed = [&](const Node& node) {
        return node.kind == NodeKind::op &&
               std::ranges::any_of(node.outputs, [&](RecordId id) { return needed[at(id)]; });
    };
    for (RecordId id : wanted) needed[at(id)] = !data_of(id);
    for (const Node& node : std::views::reverse(rec.graph.nodes()))
        if (is_needed(node))
            for (RecordId input : node.inputs)
                if (!data_of(input)) needed[at(input)] = true;
    for (const Node& node : rec.graph.nodes()) {
        if (!is_needed(node) || (run_has_failed_ && runtime::is_ordered(*node.op))) continue;
        Tensors inputs;
        for (RecordId input : node.inputs) {
            inputs.push_back(data_of(input));
            if (!inputs.back())
                throw runtime::InternalError(
                    runtime::cat("an operand of ", node.op->name, " is not known in this call"));
        }
        const runtime::AtUserLine line(node.where);
        const Tensors outputs =
            runtime::compute(*node.op, node.attrs, inputs, rec[node.outputs[0]].device);
        for (size_t i = 0; i < outputs.size(); ++i) computed[at(node.outputs[i])] = outputs[i];
    }
    for (RecordId id : wanted)
        if (const TensorRef& tensor = computed[at(id)]; waits && tensor) {
            runtime::Stream& stream = tensor->device().stream();
            stream.synchronize();
            stream.refuse_lost(tensor->storage()->ready());
        }
    for (RecordId id : wanted)
        if (computed[at(id)]) values_[at(id)]->materialize(*computed[at(id)]);
}

void Session::take_back_keys() const {
    for (size_t slot = bound_.size(); slot-- > 0;)  // the first key of a generator last
        if (bound_[slot]) runtime::take_back_key(*bound_[slot]);
}

void Session::note_read(const runtime::Tensor& tensor) {
    const bool is_static = is_placeholder(tensor)
                               ? follows_from_host_data(RecordId{tensor.trace.value})
                               : tensor.is_constant || is_made_of_host_data(tensor);
    if (read_at_.empty() && !is_static) read_at_ = where_();
}

bool Session::follows_from_host_data(RecordId value) const {
    const Record& rec = record();
    std::vector<RecordId> waiting{value};
    std::vector<bool> seen(rec.values.size());
    while (!waiting.empty()) {
        const RecordId id = waiting.back();
        waiting.pop_back();
        if (seen[at(id)] || rec[id].tensor) continue;
        seen[at(id)] = true;
        if (rec.is_from_outside(id)) {
            if (rec.input(id).kind != Input::Kind::constant) return false;
            continue;
        }
        const Node& node = rec.graph.producer(id);
        if (node.kind != NodeKind::op || runtime::is_ordered(*node.op)) return false;
        waiting.insert(waiting.end(), node.inputs.begin(), node.inputs.end());
    }
    return true;
}

bool Session::read_host_value(const Tensor& placeholder) {
    const RecordId id{placeholder.trace.value};
    if (!follows_from_host_data(id)) return false;
    compute_now({id}, true);
    return true;
}

void Session::finish() {
    try {
        refusal_.raise();
        complete();
        function_.note_use(version_);
    } catch (...) {
        const runtime::WithoutHostLock release;
        abort();
        throw;
    }
}

void Session::abort(bool wants_values) noexcept {
    // Running it op by op would take more memory still; and a plan alone leaves all as it was.
    if (!wants_values || is_refused_ || function_.options.only_plan) return;
    const std::vector<RecordId> live = live_values();
    try {
        compute_now(live, true);
        return;
    } catch (const runtime::OutOfMemory&) {
        return;  // one after the other would run out of it as well, and take a step's time for each
    } catch (...) {}
    // One by one: what cannot be computed stays without a value (reading it says so), the rest has
    // one.
    for (RecordId id : live) try {
            compute_now({id}, true);
        } catch (...) {}
}

}  // namespace megjit::jit
