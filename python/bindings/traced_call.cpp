#include "python/bindings/traced_call.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "jit/plan/failure_rule.h"
#include "jit/step/body_recorder.h"
#include "jit/trace/recorder.h"
#include "python/bindings/loan.h"
#include "runtime/core/random.h"
#include "runtime/host/user_line.h"

namespace megjit::python {
namespace {

using jit::Session;

std::vector<std::unique_ptr<TracedCall>>& calls() {
    thread_local std::vector<std::unique_ptr<TracedCall>> instance;
    return instance;
}

Tensors arguments_from(const nb::list& arguments) {
    Tensors tensors = values_of(arguments);
    for (size_t i = 0; i < tensors.size(); ++i) {
        TensorRef& value = tensors[i];
        // An argument is an input, also one that was made to be a constant elsewhere.
        if (!value->is_constant) continue;
        value = runtime::copied_to(value, default_device());
        value = runtime::make_tensor(value->type(), value->storage());
        handle_of(nb::handle(arguments[i]).ptr()).set(value);
    }
    return tensors;
}

// A generator takes its first key back last.
void take_back_keys(const std::vector<TensorRef>& bound) {
    for (const TensorRef& tensor : std::views::reverse(bound))
        if (tensor) runtime::take_back_key(*tensor);
}

}  // namespace

// ---- what was rebound

void Rebound::note(PyObject* tensor, const Session& session) {
    const TensorRef& old = handle_of(tensor).value();
    if (session.is_placeholder(*old)) return;
    entries_.push_back({nb::borrow(tensor), old, old->id()});
    if (session.function().options.capture_as_const) entries_.back().where = user_location();
}

void Rebound::note_grad(PyObject* tensor, const Session& session) {
    const nb::object grad = nb::getattr(nb::handle(tensor), "grad");
    TensorRef old = grad.is_none() ? TensorRef{} : value_of(parts_of_grad(grad).back().ptr());
    if (old && session.is_placeholder(*old)) return;
    const uint64_t id = old ? old->id() : 0;
    entries_.push_back({nb::borrow(tensor), std::move(old), id, true});
    if (!grad.is_none() && !is_tensor(grad.ptr())) entries_.back().rows = grad;
}

// Returns the first entry of each object, but none for a value that the body has put there: they
// tell what the objects held before the call.
std::vector<const Rebound::Rebinding*> Rebound::before(const Session& session) const {
    std::set<std::pair<PyObject*, bool>> known;
    std::vector<const Rebinding*> result;
    for (const Rebinding& entry : entries_)
        if (entry.id < session.first_inside_id() &&
            known.emplace(entry.object.ptr(), entry.is_grad).second)
            result.push_back(&entry);
    return result;
}

// Objects that the body has made, and that end with a value of no session.
std::set<PyObject*> Rebound::helpers(const Session& session) const {
    std::map<PyObject*, bool> is_made_here;  // by their first entries
    for (const Rebinding& entry : entries_)
        if (!entry.is_grad)
            is_made_here.emplace(entry.object.ptr(), entry.id >= session.first_inside_id());
    std::set<PyObject*> result;
    for (const auto& [object, made_here] : is_made_here)
        if (made_here && !handle_of(object).value()->trace.session) result.insert(object);
    return result;
}

std::vector<Handle*> Rebound::handles() const {
    std::vector<Handle*> result;
    for (const Rebinding& entry : entries_)
        if (!entry.is_grad) result.push_back(&handle_of(entry.object.ptr()));
    return result;
}

std::vector<jit::Output> Rebound::updates(const Session& session) const {
    // Each call of a program runs this, so most tensors are left out early.
    const auto matters = [](const TensorRef& tensor) {
        return tensor && (jit::FailureRule(tensor->device()).guards_updates() ||
                          (tensor->has_data() && !tensor->storage()->is_owned()));
    };
    const jit::TraceOptions& options = session.function().options;
    const bool always = !options.pipeline.memory.spill.empty() ||
                        options.only_plan;  // the plan may be for a device that guards updates
    if (entries_.empty() || !(always || std::ranges::any_of(session.bound(), matters))) return {};
    std::unordered_map<uint64_t, int> slots;  // by the tensor's id
    for (size_t slot = 0; slot < session.bound().size(); ++slot)
        if (const TensorRef& tensor = session.bound()[slot])
            slots.emplace(tensor->id(), static_cast<int>(slot));
    std::map<jit::RecordId, std::set<int>> replaced;
    for (const Rebinding* each : before(session)) {
        const Rebinding& entry = *each;
        const nb::object holder = entry.is_grad ? nb::getattr(entry.object, "grad") : entry.object;
        const auto slot = slots.find(entry.id);
        if (!is_tensor(holder.ptr()) || entry.rows || slot == slots.end()) continue;
        const TensorRef& value = handle_of(holder.ptr()).value();
        if (session.is_placeholder(*value))
            replaced[jit::RecordId{value->trace.value}].insert(slot->second);
    }
    std::vector<jit::Output> updates;
    for (const auto& [value, of] : replaced)
        if (of.size() == 1) updates.push_back({.replaces = *of.begin(), .value = value});
    return updates;
}

bool Rebound::changes_types() const {
    return std::ranges::any_of(entries_, [](const Rebinding& entry) {
        const Handle& handle = handle_of(entry.object.ptr());
        if (entry.is_grad || !entry.old || handle.is_empty()) return false;
        const Type &before = entry.old->type(), &now = handle.value()->type();
        return before.shape == now.shape && before.dtype != now.dtype;
    });
}

std::vector<Rebound::Lasting> Rebound::lasting(const Session& session,
                                               const Capture& capture) const {
    Capture::References ours = capture.references();
    count_references(ours);
    const std::set<PyObject*> helpers = this->helpers(session);
    std::vector<Lasting> result;
    for (const Rebinding* each : before(session)) {
        const Rebinding& entry = *each;
        const nb::object holder = entry.is_grad ? nb::getattr(entry.object, "grad") : entry.object;
        if (!is_tensor(holder.ptr()) || entry.rows || !entry.id) continue;
        const TensorRef& now = handle_of(holder.ptr()).value();
        const bool is_held = Py_REFCNT(entry.object.ptr()) > ours[entry.object.ptr()];
        if (is_held && now->id() != entry.id && !helpers.contains(entry.object.ptr()))
            result.push_back({entry.object, entry.old, entry.id, now, entry.is_grad, entry.where});
    }
    return result;
}

bool Rebound::lets_go(const Session& session, const Capture& capture,
                      const Capture::References& known) const {
    return std::ranges::any_of(before(session), [&](const Rebinding* each) {
        return !each->is_grad && !capture.is_grad(each->object) &&
               Py_REFCNT(each->object.ptr()) <= known.at(each->object.ptr());
    });
}

bool Rebound::is_written(uint64_t id) const {
    return std::ranges::any_of(entries_, [&](const Rebinding& entry) { return entry.id == id; });
}

std::vector<Rebound::Lasting> Rebound::changed(const Session& session) const {
    std::vector<Lasting> result;
    for (const Rebinding* entry : before(session)) {
        const nb::object holder =
            entry->is_grad ? nb::getattr(entry->object, "grad") : entry->object;
        const std::vector<nb::object> parts = parts_of_grad(holder);
        const TensorRef now = parts.empty() ? TensorRef{} : value_of(parts.back().ptr());
        if ((now ? now->id() : 0) == entry->id) continue;
        result.push_back({entry->object, entry->old, entry->id, now, entry->is_grad});
        if (parts.size() == 2) result.back().rows = value_of(parts.front().ptr());
    }
    return result;
}

void Rebound::count_references(Capture::References& counts) const {
    for (const Rebinding& entry : entries_) ++counts[entry.object.ptr()];
}

bool Rebound::drops_temporaries_once() {
    Capture::References ours;
    count_references(ours);
    std::unordered_set<PyObject*> gone;
    for (const auto& [object, count] : ours)
        if (Py_REFCNT(object) <= count) gone.insert(object);
    return std::erase_if(entries_, [&](const Rebinding& entry) {
        return gone.contains(entry.object.ptr());
    }) > 0;
}

void Rebound::let_go_of(const Session& session) {
    if (entries_.empty()) return;
    std::unordered_set<uint64_t> bound;
    for (const TensorRef& tensor : session.bound())
        if (tensor) bound.insert(tensor->id());
    for (Rebinding& entry : entries_)
        if (bound.contains(entry.id)) entry.old = {};
}

void Rebound::roll_back(const Session& session, bool whole) {
    const auto has_value = [&](const TensorRef& value) {
        return !session.is_placeholder(*value) || value->has_data();
    };
    std::set<std::pair<PyObject*, bool>> known;
    for (const Rebinding* entry : before(session))
        known.emplace(entry->object.ptr(), entry->is_grad);
    const std::set<PyObject*> helpers = this->helpers(session);
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
        // What the body has put there is not what it held before.
        if (entry->id >= session.first_inside_id() &&
            known.contains({entry->object.ptr(), entry->is_grad}))
            continue;
        if (!entry->is_grad && helpers.contains(entry->object.ptr())) continue;
        for (const TensorRef& tensor : session.bound())
            if (!entry->old && tensor && tensor->id() == entry->id) entry->old = tensor;
        if (!entry->is_grad) {
            Handle& handle = handle_of(entry->object.ptr());
            if ((whole || !has_value(handle.value())) && entry->old) handle.set(entry->old);
            continue;
        }
        const nb::object grad = nb::getattr(entry->object, "grad");
        if (!whole && (grad.is_none() || has_value(value_of(parts_of_grad(grad).back().ptr()))))
            continue;
        const nb::object before = entry->old ? wrap(entry->old) : nb::none();
        nb::setattr(entry->object, "grad", entry->rows ? entry->rows : before);
    }
}

// ---- calls

bool TracedCall::begin(const void* owner, jit::TraceFunction& function, const nb::list& arguments,
                       std::unique_ptr<Capture> capture, bool may_record) {
    auto call = std::make_unique<TracedCall>();
    call->owner_ = owner;
    call->arguments_ = arguments.ptr();
    call->session_ = Session::begin(function, arguments_from(arguments), [] {
        const std::string* const said = runtime::recorded_user_line();
        return said ? *said : user_location();
    }, may_record);
    if (!call->session_) return false;
    call->capture_ = std::move(capture);
    const uint64_t first_inside_id = runtime::make_placeholder({}, runtime::host_device())->id();
    call->session_->set_first_inside_id(first_inside_id);
    if (call->capture_) call->capture_->set_first_inside_id(first_inside_id);
    call->outer_tracer_ = std::exchange(runtime::context().tracer, call->session_.get());
    call->outer_capture_ = std::exchange(Capture::current(), call->capture());
    calls().push_back(std::move(call));
    return true;
}

std::unique_ptr<TracedCall> TracedCall::take(const void* owner, const nb::list& arguments) {
    auto& stack = calls();
    if (stack.empty() || stack.back()->owner_ != owner ||
        stack.back()->arguments_ != arguments.ptr())
        return nullptr;
    std::unique_ptr<TracedCall> call = std::move(stack.back());
    stack.pop_back();
    runtime::context().tracer = call->outer_tracer_;
    Capture::current() = call->outer_capture_;
    return call;
}

TracedCall* TracedCall::running() {
    auto& stack = calls();
    if (stack.empty() || runtime::context().tracer != &stack.back()->session()) return nullptr;
    return stack.back().get();
}

void TracedCall::settle() {
    runtime::Tracer* const outside = runtime::context().tracer;  // where the call leaves its record
    try {
        session().settle();
        runtime::context().tracer = outside;
    } catch (...) {
        runtime::context().tracer = outside;
        abort();
        throw;
    }
}

void TracedCall::finish() {
    const jit::TraceOptions& options = session().function().options;
    const bool is_planned = options.only_plan || options.record_only;
    session().version()->set_updates(rebound.updates(session()));
    if (rebound.changes_types()) session().version()->retypes = true;
    rebound.let_go_of(session());
    try {
        const Loan loan(rebound.handles());
        session().finish();
    } catch (...) {
        roll_back(is_planned || session().is_refused());
        throw;
    }
    if (is_planned) roll_back(true);
}

void TracedCall::abort(bool wants_values) {
    {
        const runtime::WithoutHostLock release;
        session().abort(wants_values);
    }
    roll_back(!wants_values || session().function().options.only_plan || session().is_refused());
}

void TracedCall::drop_temporaries(const Capture::References& of_results) {
    do {  // an object may have held others
        Capture::References known = of_results;
        rebound.count_references(known);
        if (capture_) capture_->drop_temporaries(session(), known);
    } while (rebound.drops_temporaries_once());
}

std::vector<Rebound::Lasting> TracedCall::try_out(const std::function<void()>& look) {
    // Held here, no input is overwritten.
    const std::vector<TensorRef> bound = session().bound();
    drop_temporaries({});  // a call without the body makes none
    std::vector<Rebound::Lasting> changed;
    try {
        {
            const Loan loan(rebound.handles());
            const runtime::WithoutHostLock release;
            session().finish();
        }
        changed = rebound.changed(session());
        look();
    } catch (...) {
        abort_trial();
        throw;
    }
    rebound.roll_back(session(), true);
    take_back_keys(bound);
    return changed;
}

void TracedCall::abort_trial() {
    const std::vector<TensorRef> bound = session().bound();
    {
        const runtime::WithoutHostLock release;
        session().abort();
    }
    rebound.roll_back(session(), true);
    take_back_keys(bound);
}

void TracedCall::roll_back(bool whole) {
    rebound.roll_back(session(), whole);
    if (session().is_refused()) session().take_back_keys();
}

void rebind(PyObject* tensor, TensorRef value) {
    Handle& handle = handle_of(tensor);
    const TensorRef& old = handle.value();  // not beside a program that rebinds it, too
    if (auto* body = jit::BodyRecorder::running()) body->refuse_update_of(*old);
    if (TracedCall* call = TracedCall::running()) call->rebound.note(tensor, call->session());
    handle.set(std::move(value));
    if (Capture* capture = Capture::current()) capture->note_rebound(tensor);
}

void note_grad(nb::handle tensor) {
    if (TracedCall* call = TracedCall::running())
        call->rebound.note_grad(tensor.ptr(), call->session());
    if (Capture* capture = Capture::current()) capture->note_grad(tensor.ptr());
}

// ---- exclude_from_trace

void Excluded::enter() {
    auto& context = runtime::context();
    saved_ = context.tracer;
    if (Session* session = Session::running()) {
        if (!context.tapes.empty()) session->note_open_backward();
        const runtime::WithoutHostLock release;  // a segment may run
        session->enter_excluded();
    }
    context.tracer = nullptr;
    first_id_ = runtime::make_placeholder({}, runtime::host_device())->id();
    entered_ = true;
}

void Excluded::exit() {
    if (!entered_) return;
    entered_ = false;
    runtime::Tracer* back = std::exchange(saved_, nullptr);
    if (!back || calls().empty() || &calls().back()->session() != back) return;
    runtime::context().tracer = back;
    if (auto* recorder = jit::Recorder::running())
        recorder->note_excluded(first_id_,
                                runtime::make_placeholder({}, runtime::host_device())->id());
}

}  // namespace megjit::python
