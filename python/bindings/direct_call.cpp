#include "python/bindings/direct_call.h"

#include <algorithm>
#include <unordered_set>

#include "jit/trace/first_places.h"
#include "python/bindings/loan.h"

namespace megjit::python {
namespace {

using jit::RecordId;
using jit::Session;
using Kind = jit::Input::Kind;

// Returns the object's index in the list; the list's length where it is not there.
size_t index_in(const nb::list& objects, nb::handle object) {
    size_t i = 0;
    while (i < nb::len(objects) && !nb::handle(objects[i]).is(object)) ++i;
    return i;
}

// Makes another tensor with this value, as the body makes another one in each call.
TensorRef same_value(const TensorRef& tensor) {
    if (tensor->is_constant) return tensor;
    return runtime::make_tensor(tensor->type(), tensor->storage());
}

}  // namespace

// ---- from a recording

DirectCall::DirectCall(const Session& session, Capture& capture, const nb::list& arguments,
                       const nb::list& results, const std::vector<bool>& were_there,
                       uint64_t guards)
    : guards_(guards) {
    // An argument may have been rebound by the body: what counts is what was bound at the start.
    Tensors given;
    const jit::Record& record = session.version()->record;
    for (const RecordId value : session.version()->arguments())
        given.push_back(session.bound()[record[value].slot]);
    sources_ = capture.sources(session, given);
    reason_ = capture.unrepeatable();
    read_at_ = capture.read_at();
    jit::FirstPlaces objects(nb::len(arguments)), values(given.size());
    for (nb::handle argument : arguments)
        same_object_.push_back(objects.add(reinterpret_cast<uintptr_t>(argument.ptr())));
    for (size_t i = 0; i < given.size(); ++i)
        if (values.add(given[i]->id()) != i) may_hold_one_value_ = true;
    find_twins(capture, arguments);
    find_updates(session, capture, arguments);
    find_grads(session, capture, arguments);
    find_results(session, arguments, results, were_there);
    constants_ = capture.held_constants(session);
    std::erase_if(constants_, [&](const auto& held) {
        return index_in(arguments, held.first) < nb::len(arguments);
    });
    given.clear();
    if (reason_.empty() && keeps_other_values(session))
        reason_ = "the body keeps a tensor that it does not return";
}

void DirectCall::find_twins(const Capture& capture, const nb::list& arguments) {
    for (const auto& [first, second] : capture.twins()) {
        const bool a = index_in(arguments, first) == nb::len(arguments),
                   b = index_in(arguments, second) == nb::len(arguments);
        if (a && b) twins_.emplace_back(first, second);
        else if (a || b)
            reason_ = "an argument shares its value with a tensor that the body captures";
    }
}

void DirectCall::find_updates(const Session& session, const Capture& capture,
                              const nb::list& arguments) {
    std::vector<Capture::Update> found = capture.updates(session);
    std::ranges::stable_partition(found, [](const auto& each) { return each.value.has_value(); });
    for (Capture::Update& each : found) {
        const size_t argument = index_in(arguments, each.object);
        updates_.push_back({each.object, argument, slot_of(each.object, argument), each.constant});
        if (each.value) wanted_.push_back(*each.value);
    }
    computed_updates_ = wanted_.size();
}

void DirectCall::find_grads(const Session& session, const Capture& capture,
                            const nb::list& arguments) {
    for (const Capture::Grad& grad : capture.grads()) {
        if (!grad.is_new(session)) continue;
        const bool was_tensor = is_tensor(grad.before.ptr());
        for (const nb::object& part : parts_of_grad(grad.before)) {
            if (std::ranges::any_of(updates_, [&](const Update& u) { return u.object.is(part); }))
                reason_ = "the body writes into a gradient that it then replaces";
            if (!was_tensor && std::ranges::any_of(sources_, [&](const SlotSource& source) {
                return source.object.is(part);
            }))
                reason_ = "the body reads rows of a gradient that it then replaces";
        }
        const nb::object now = nb::getattr(grad.tensor, "grad");
        grads_.push_back({grad.tensor, index_in(arguments, grad.tensor), grad.before.is_none(),
                          was_tensor, wanted_.size()});
        if (!is_tensor(now.ptr())) grads_.back().rows = now;
        for (const nb::object& part : parts_of_grad(now))
            wanted_.push_back(RecordId{value_of(part.ptr())->trace.value});
    }
    for (SlotSource& source : sources_)
        if (source.is_grad)
            source.argument =
                static_cast<size_t>(std::ranges::find_if(grads_, [&](const Grad& each) {
                return each.tensor.is(source.object);
            }) - grads_.begin());
}

nb::list DirectCall::updated() const {
    nb::list tensors;
    for (const Update& update : updates_)
        if (update.argument == same_object_.size()) tensors.append(update.object);
    return tensors;
}

nb::list DirectCall::tensors_with_grads() const {
    nb::list result;
    for (const Grad& grad : grads_) result.append(grad.tensor);
    return result;
}

size_t DirectCall::slot_of(nb::handle object, size_t argument) const {
    for (size_t slot = 0; slot < sources_.size(); ++slot) {
        const SlotSource& source = sources_[slot];
        if (source.kind == Kind::argument && source.argument == argument) return slot;
        if (source.kind == Kind::captured && !source.is_grad && source.object.is(object))
            return slot;
    }
    for (const auto& [first, second] : twins_)
        if (second.is(object)) return slot_of(first, argument);
    return sources_.size();
}

void DirectCall::find_results(const Session& session, const nb::list& arguments,
                              const nb::list& results, const std::vector<bool>& were_there) {
    const auto was_there = [&](size_t i) { return i < were_there.size() && were_there[i]; };
    jit::FirstPlaces objects(nb::len(results));
    for (nb::handle result : results) {
        const size_t first = objects.add(reinterpret_cast<uintptr_t>(result.ptr()));
        const TensorRef& value = value_of(result.ptr());
        const size_t argument = index_in(arguments, result);
        const auto grad = std::ranges::find_if(
            grads_, [&](const Grad& each) { return nb::getattr(each.tensor, "grad").is(result); });
        if (first < results_.size()) {
            results_.push_back({Result::From::again, first});
        } else if (argument < nb::len(arguments)) {
            results_.push_back({Result::From::argument, argument});
        } else if (grad != grads_.end()) {
            results_.push_back({Result::From::grad, static_cast<size_t>(grad - grads_.begin())});
        } else if (session.is_placeholder(*value) && !was_there(results_.size())) {
            results_.push_back({Result::From::value, wanted_.size()});
            wanted_.push_back(RecordId{value->trace.value});
        } else if (!was_there(results_.size()) && session.is_made_of_host_data(*value)) {
            results_.push_back({.from = Result::From::constant, .constant = value});
        } else {
            results_.push_back({Result::From::fixed, 0, nb::borrow(result)});
        }
        Result& last = results_.back();
        if (last.is_made() && !is_bare_tensor(result.ptr())) {
            last.type = nb::borrow(result.type());
            last.attributes = nb::getattr(result, "__dict__").attr("copy")();
        }
    }
}

// Does Python hold a value of this call that is neither returned nor rebound?
bool DirectCall::keeps_other_values(const Session& session) const {
    const std::unordered_set<RecordId> known(wanted_.begin(), wanted_.end());
    const std::vector<RecordId> live = session.live_values();
    return std::any_of(live.begin(), live.end(), [&](RecordId id) {
        return !known.contains(id) && !session.version()->record[id].tensor;
    });
}

void DirectCall::complete(jit::TraceFunction& function, std::shared_ptr<jit::Version> version) {
    call_ = std::make_unique<jit::DirectCall>(function, std::move(version), std::move(wanted_));
    is_plain_ = finds_plain();
}

bool DirectCall::finds_plain() const {
    const auto is_known = [](const SlotSource& source) {
        return source.kind == Kind::argument || source.kind == Kind::constant;
    };
    const auto is_bare = [](const Result& result) {
        return result.from == Result::From::value && !result.type;
    };
    return updates_.empty() && grads_.empty() && twins_.empty() && !may_hold_one_value_ &&
           std::ranges::all_of(sources_, is_known) && std::ranges::all_of(results_, is_bare);
}

void DirectCall::set_facts(const Facts* facts, nb::object result_of, uint64_t opening) {
    facts_ = facts;
    opening_ = opening;
    result_of_ = std::move(result_of);
}

std::string DirectCall::read_in(const jit::Version& version) const {
    const auto& events = version.record.events;
    const auto barrier = std::ranges::find(events, jit::EventKind::barrier, &jit::Event::kind);
    return read_at_.empty() && barrier != events.end() ? barrier->text : read_at_;
}

// ---- a call

bool DirectCall::is_called_alike(const nb::list& arguments) const {
    if (same_object_.size() != nb::len(arguments)) return false;
    if (!may_hold_one_value_) return true;  // then takes() says all
    jit::FirstPlaces places(same_object_.size());
    for (size_t i = 0; i < same_object_.size(); ++i)
        if (places.add(reinterpret_cast<uintptr_t>(PyList_GetItem(arguments.ptr(), i))) !=
            same_object_[i])
            return false;
    return true;
}

nb::handle DirectCall::tensor_of(const Grad& grad, const nb::list& arguments) const {
    return grad.argument < nb::len(arguments) ? nb::handle(arguments[grad.argument])
                                              : nb::handle(grad.tensor);
}

bool DirectCall::grads_are_alike(const nb::list& arguments) const {
    return std::ranges::all_of(grads_, [&](const Grad& grad) {
        const nb::object now = nb::getattr(tensor_of(grad, arguments), "grad");
        return now.is_none() ? grad.was_none
                             : !grad.was_none && is_tensor(now.ptr()) == grad.was_tensor;
    });
}

void DirectCall::ask_getters(Tensors& bound) const {
    for (size_t slot = 0; slot < sources_.size(); ++slot)
        if (sources_[slot].kind == Kind::option)
            bound[slot] = value_of(sources_[slot].object().ptr());
}

void DirectCall::bind_captured(Tensors& bound, const nb::list& arguments) const {
    for (size_t slot = 0; slot < sources_.size(); ++slot) {
        const SlotSource& source = sources_[slot];
        if (source.kind != Kind::captured) continue;
        bound[slot] =
            source.is_grad
                ? value_of(nb::getattr(tensor_of(grads_[source.argument], arguments), "grad").ptr())
                : value_of(source.object.ptr());
    }
}

bool DirectCall::twins_agree() const {
    return std::all_of(twins_.begin(), twins_.end(), [](const auto& pair) {
        return value_of(pair.first.ptr())->id() == value_of(pair.second.ptr())->id();
    });
}

bool DirectCall::constants_are_held() const {
    return std::ranges::all_of(constants_, [](const auto& held) {
        return value_of(held.first.ptr())->id() == held.second;
    });
}

void DirectCall::bind_others(Tensors& bound, const Tensors& arguments) const {
    for (size_t slot = 0; slot < bound.size(); ++slot) {
        const SlotSource& source = sources_[slot];
        if (source.kind == Kind::argument) bound[slot] = arguments[source.argument];
        if (source.kind == Kind::key)
            bound[slot] = source.keys ? source.generator->keys(*source.keys, source.device)
                                      : source.generator->key(source.device);
        if (source.kind == Kind::constant) bound[slot] = source.constant;
    }
}

std::vector<Handle*> DirectCall::rebound(const nb::list& arguments) const {
    std::vector<Handle*> result;
    for (const Update& update : updates_) {
        const nb::handle object = update.argument < nb::len(arguments)
                                      ? nb::handle(arguments[update.argument])
                                      : nb::handle(update.object);
        result.push_back(&handle_of(object.ptr()));
    }
    return result;
}

Tensors DirectCall::run_plain(const Tensors& arguments) const {
    jit::CompiledSegment compiled = call_->compiled_before();
    const runtime::WithoutHostLock release(!compiled.program || compiled.program->takes_a_while());
    if (!compiled.program) compiled = call_->compiled();
    Tensors bound(sources_.size());
    bind_others(bound, arguments);
    return call_->run(compiled, bound);  // results are the wanted values, in their order
}

nb::object DirectCall::run(const nb::list& arguments) const {
    Tensors given, bound(sources_.size());
    if (!is_called_alike(arguments) || !grads_are_alike(arguments)) return nb::none();
    jit::CompiledSegment compiled = call_->compiled_before();
    if (!compiled.program) {
        const runtime::WithoutHostLock release;
        compiled = call_->compiled();
    }
    ask_getters(bound);
    // From here on, other threads run only while this one waits for a value.
    std::vector<Handle*> handles = rebound(arguments);
    int seen = 0;
    bool fits = false;
    do {
        seen = Loan::ended();
        given = values_of(arguments);
        if (!grads_are_alike(arguments)) return nb::none();
        bind_captured(bound, arguments);
        for (const Handle* handle : handles) handle->value();
        fits = call_->takes(given) && call_->fits(given, bound) && twins_agree() &&
               constants_are_held();
    } while (seen != Loan::ended());
    if (!fits) return nb::none();
    bind_others(bound, given);
    given.clear();
    return results_of(run(compiled, std::move(handles), std::move(bound)), arguments);
}

// Handles that are rebound let go of their value, so that the program may work in place.
Tensors DirectCall::run(const jit::CompiledSegment& compiled, std::vector<Handle*> rebound,
                        Tensors bound) const {
    Loan loan(std::move(rebound));
    for (size_t u = 0; u < updates_.size(); ++u)
        if (updates_[u].slot < bound.size()) loan.values[u] = {};  // `bound` holds it
    Tensors values;
    try {
        const runtime::WithoutHostLock release(compiled.program->takes_a_while());
        values = call_->run(compiled, bound);
    } catch (...) {
        for (size_t u = 0; u < updates_.size(); ++u)
            if (updates_[u].slot < bound.size()) loan.values[u] = bound[updates_[u].slot];
        throw;
    }
    std::copy_n(values.begin(), computed_updates_, loan.values.begin());
    for (size_t u = computed_updates_; u < updates_.size(); ++u)
        loan.values[u] = same_value(updates_[u].constant);
    return values;
}

nb::object DirectCall::made(const Grad& grad, const Tensors& values) {
    const nb::object first = wrap(values[grad.first]);
    if (!grad.rows) return first;
    return grad.rows.type()(first, wrap(values[grad.first + 1]), grad.rows.attr("shape"));
}

// Sets the new gradients, and returns them in order.
nb::list DirectCall::set_grads(const Tensors& values, const nb::list& arguments) const {
    nb::list grads;
    for (size_t i = 0; i < grads_.size(); ++i) {
        grads.append(made(grads_[i], values));
        nb::setattr(tensor_of(grads_[i], arguments), "grad", grads[i]);
    }
    return grads;
}

// Makes a result as the body does in each call, with its class and its attributes.
nb::object DirectCall::made(const Result& result, TensorRef value) {
    if (!result.type) return wrap(std::move(value));
    nb::object object =
        nb::steal(wrap_as(reinterpret_cast<PyTypeObject*>(result.type.ptr()), std::move(value)));
    for (auto [name, held] : nb::borrow<nb::dict>(result.attributes))
        if (PyObject_GenericSetAttr(object.ptr(), name.ptr(), held.ptr()) != 0)
            throw nb::python_error();
    return object;
}

nb::list DirectCall::results_of(const Tensors& values, const nb::list& arguments) const {
    const nb::list grads = set_grads(values, arguments);
    nb::list results;
    for (const Result& result : results_) switch (result.from) {
            case Result::From::value: results.append(made(result, values[result.index])); break;
            case Result::From::grad: results.append(grads[result.index]); break;
            case Result::From::argument: results.append(arguments[result.index]); break;
            case Result::From::constant:
                results.append(made(result, same_value(result.constant)));
                break;
            case Result::From::again: results.append(results[result.index]); break;
            case Result::From::fixed: results.append(result.object); break;
        }
    return results;
}

int DirectCall::traverse(visitproc visit, void* arg) const {
    Py_VISIT(result_of_.ptr());
    for (const SlotSource& source : sources_) Py_VISIT(source.object.ptr());
    for (const Update& update : updates_) Py_VISIT(update.object.ptr());
    for (const Grad& grad : grads_) {
        Py_VISIT(grad.tensor.ptr());
        Py_VISIT(grad.rows.ptr());
    }
    for (const auto& [first, second] : twins_) {
        Py_VISIT(first.ptr());
        Py_VISIT(second.ptr());
    }
    for (const auto& [object, id] : constants_) Py_VISIT(object.ptr());
    for (const Result& result : results_) {
        Py_VISIT(result.object.ptr());
        Py_VISIT(result.type.ptr());
        Py_VISIT(result.attributes.ptr());
    }
    return 0;
}

}  // namespace megjit::python
