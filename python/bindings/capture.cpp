#include "python/bindings/capture.h"

#include <algorithm>

#include "runtime/core/random.h"
#include "runtime/host/error.h"

namespace megjit::python {

bool is_bare_tensor(PyObject* object) {
    if (Py_TYPE(object) != tensor_class()) return false;
    PyObject* const own = PyObject_GenericGetDict(object, nullptr);
    if (!own) PyErr_Clear();  // its class has no dict
    const bool is_bare = !own || PyDict_Size(own) == 0;
    Py_XDECREF(own);
    return is_bare;
}

std::vector<nb::object> parts_of_grad(nb::handle grad) {
    if (grad.is_none()) return {};
    if (is_tensor(grad.ptr()) || !nb::hasattr(grad, "rows")) return {nb::borrow(grad)};
    return {nb::getattr(grad, "rows"), nb::getattr(grad, "values")};
}

Capture*& Capture::current() {
    thread_local Capture* instance = nullptr;
    return instance;
}

void Capture::note_operand(PyObject* tensor) {
    const TensorRef& value = value_of(tensor);
    if (const jit::Session* session = is_for_dump_ ? jit::Session::running() : nullptr;
        session && session->is_placeholder(*value))
        return;
    // A rebound tensor holds the value of another one.
    if (is_for_dump_ && rebound_.contains(reinterpret_cast<uint64_t>(tensor))) return;
    const auto [known, is_new] = handles_.emplace(value->id(), nb::borrow(tensor));
    if (is_new || known->second.ptr() == tensor || value->is_constant) return;
    if (!is_for_dump_ && value->id() >= first_inside_id_) return;
    for (const auto& [first, second] : twins_)
        if (second.ptr() == tensor) return;
    twins_.emplace_back(known->second, nb::borrow(tensor));
}

void Capture::note_read(const TensorRef& tensor) {
    if (is_for_dump_ && !runtime::context().tracer)
        excluded_reads_.emplace_back(tensor, user_location());
    if (read_at_.empty() && tensor->id() < first_inside_id_ && !tensor->is_constant)
        read_at_ = user_location();
}

void Capture::note_grad(PyObject* tensor) {
    if (std::ranges::none_of(grads_, [&](const Grad& g) { return g.tensor.ptr() == tensor; }))
        grads_.push_back({nb::borrow(tensor), nb::getattr(nb::handle(tensor), "grad")});
}

bool Capture::is_grad(nb::handle object) const {
    return std::ranges::any_of(grads_, [&](const Grad& grad) { return grad.before.is(object); });
}

bool Capture::Grad::is_new(const jit::Session& session) const {
    const nb::object now = nb::getattr(tensor, "grad");
    return !now.is(before) && !now.is_none() &&
           std::ranges::all_of(parts_of_grad(now), [&](const nb::object& part) {
        return session.is_placeholder(*value_of(part.ptr())) &&
               nb::len(nb::getattr(part, "__dict__")) == 0;
    });
}

const Capture::Grad* Capture::grad_before(nb::handle object, const jit::Session& session) const {
    for (const Grad& grad : grads_)
        if (grad.before.is(object) && grad.is_new(session)) return &grad;
    return nullptr;
}

void Capture::drop_temporaries(const jit::Session& session, const References& of_call) {
    while (drops_temporaries_once(session, of_call)) {}  // an object may have held others
}

Capture::References Capture::references() const {
    References ours;
    for (const auto* map : {&handles_, &rebound_})
        for (const auto& [key, object] : *map) ++ours[object.ptr()];
    for (const auto& [first, second] : twins_) ++ours[first.ptr()], ++ours[second.ptr()];
    for (const Grad& grad : grads_) ++ours[grad.tensor.ptr()], ++ours[grad.before.ptr()];
    for (const auto& [object, of_results] : results_) ++ours[object.ptr()];
    return ours;
}

void Capture::count_results(References& counts) const {
    for (const auto& [object, of_results] : results_) counts[object.ptr()] += of_results;
}

std::vector<uint64_t> Capture::released(const References& known) const {
    std::vector<uint64_t> result;
    for (const auto& [id, object] : handles_)
        if (id < first_inside_id_ && !is_grad(object) &&
            Py_REFCNT(object.ptr()) <= known.at(object.ptr()))
            result.push_back(id);
    return result;
}

bool Capture::drops_temporaries_once(const jit::Session& session, const References& of_call) {
    References ours = references();
    for (const auto& [object, count] : of_call) ours[object] += count;
    std::unordered_set<PyObject*> gone;
    for (const auto& [object, count] : ours)
        if (Py_REFCNT(object) <= count) gone.insert(object);
    const auto is_gone = [&](const nb::object& object) {
        return gone.contains(object.ptr()) && !grad_before(object, session);
    };
    size_t dropped = std::erase_if(twins_, [&](const auto& pair) { return is_gone(pair.second); });
    dropped += std::erase_if(grads_, [&](const Grad& grad) { return is_gone(grad.tensor); });
    for (auto* map : {&handles_, &rebound_})
        dropped += std::erase_if(*map, [&](const auto& entry) { return is_gone(entry.second); });
    return dropped > 0;
}

std::vector<SlotSource> Capture::sources(const jit::Session& session, const Tensors& arguments) {
    using Kind = jit::Input::Kind;
    std::vector<SlotSource> result;
    for (const jit::Input& input : session.version()->record.inputs) {
        const TensorRef& tensor = session.bound()[result.size()];
        result.push_back({.kind = input.kind});
        SlotSource& source = result.back();
        const auto handle = handles_.find(tensor->id());
        if (source.kind == Kind::argument) {
            while (arguments[source.argument]->id() != tensor->id()) ++source.argument;
        } else if (source.kind == Kind::key) {
            source.generator = runtime::state_of(*tensor);
            source.device = &tensor->device();
            if (tensor->shape().rank() == 2) source.keys = tensor->shape()[0];
        } else if (source.kind == Kind::option) {
            source.object = getters_.at(tensor->id());
        } else if (source.kind == Kind::constant) {
            source.constant = tensor;  // guards watch the data
        } else if (handle == handles_.end()) {
            source.kind = Kind::constant;
            if (tensor->id() >= first_inside_id_) source.constant = tensor;
            else
                note_unrepeatable(runtime::cat("the object that held a ", to_string(tensor->type()),
                                               " tensor from outside is gone"));
        } else {
            const Grad* grad = grad_before(handle->second, session);
            source.is_grad = grad;
            source.object = grad ? grad->tensor : handle->second;
        }
    }
    return result;
}

std::vector<Capture::Update> Capture::updates(const jit::Session& session) const {
    std::vector<Update> result;
    const auto is_grad = [&](const nb::object& object) {
        return std::ranges::any_of(grads_, [&](const Grad& grad) {
            const auto parts = parts_of_grad(nb::getattr(grad.tensor, "grad"));
            return grad.is_new(session) &&
                   std::ranges::any_of(parts, [&](const auto& part) { return part.is(object); });
        });
    };
    for (const auto& [address, object] : rebound_) {
        if (is_grad(object)) continue;
        const TensorRef& value = handle_of(object.ptr()).value();
        if (session.is_placeholder(*value))
            result.push_back({object, jit::RecordId{value->trace.value}});
        else if (session.is_made_of_host_data(*value))
            result.push_back({.object = object, .constant = value});
    }
    return result;
}

std::vector<std::pair<nb::object, uint64_t>> Capture::held_constants(
    const jit::Session& session) const {
    std::vector<std::pair<nb::object, uint64_t>> result;
    const jit::Record& record = session.version()->record;
    for (const jit::Node& node : record.graph.nodes()) {
        if (!record.is_constant(node.outputs[0])) continue;
        const runtime::Tensor& constant = *record[node.outputs[0]].tensor;
        const auto held = handles_.find(constant.id());
        if (held == handles_.end() || session.is_made_of_host_data(constant)) continue;
        result.emplace_back(held->second, constant.id());
        for (const auto& [first, second] : twins_)
            if (first.is(held->second)) result.emplace_back(second, constant.id());
    }
    return result;
}

}  // namespace megjit::python
