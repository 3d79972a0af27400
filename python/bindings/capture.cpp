#include "python/bindings/capture.h"

#include <algorithm>

#include "runtime/error.h"
#include "runtime/random.h"

namespace megjit::python {

Capture*& Capture::current() {
    thread_local Capture* instance = nullptr;
    return instance;
}

void Capture::note_operand(PyObject* tensor) {
    const TensorRef& value = value_of(tensor);
    const auto [known, is_new] = handles_.emplace(value->id(), nb::borrow(tensor));
    if (is_new || known->second.ptr() == tensor || value->id() >= first_inside_id_ ||
        value->is_constant)
        return;
    for (const auto& [first, second] : twins_)
        if (second.ptr() == tensor) return;
    twins_.emplace_back(known->second, nb::borrow(tensor));
}

void Capture::note_read(const runtime::Tensor& tensor) {
    if (read_at_.empty() && tensor.id() < first_inside_id_ && !tensor.is_constant)
        read_at_ = user_location();
}

void Capture::drop_temporaries() {
    twins_.erase(std::remove_if(twins_.begin(), twins_.end(),
                                [this](const auto& pair) {
        Py_ssize_t ours = 1;
        for (const auto& [id, object] : handles_) ours += object.ptr() == pair.second.ptr();
        for (const auto& [id, object] : rebound_) ours += object.ptr() == pair.second.ptr();
        return Py_REFCNT(pair.second.ptr()) <= ours;
    }),
                 twins_.end());
    const auto is_ours_alone = [](const auto& entry) { return Py_REFCNT(entry.second.ptr()) == 1; };
    // An object may stand in both maps: then two references are ours.
    for (auto it = rebound_.begin(); it != rebound_.end();) {
        Py_ssize_t ours = 1;
        for (const auto& [id, object] : handles_) ours += object.ptr() == it->second.ptr();
        it = Py_REFCNT(it->second.ptr()) <= ours ? rebound_.erase(it) : std::next(it);
    }
    std::erase_if(handles_, is_ours_alone);
}

std::vector<SlotSource> Capture::sources(const jit::Session& session, const Tensors& arguments) {
    const auto& bound = session.bound();
    std::vector<SlotSource> result(bound.size());
    for (size_t slot = 0; slot < bound.size(); ++slot) {
        const TensorRef& tensor = bound[slot];
        SlotSource& source = result[slot];
        for (size_t i = 0;
             i < arguments.size() && source.from == SlotSource::From::constant && !source.constant;
             ++i)
            if (arguments[i]->id() == tensor->id())
                source = {.from = SlotSource::From::argument, .argument = i};
        if (source.from == SlotSource::From::argument) continue;
        if (runtime::RandomState* generator = runtime::state_of(*tensor)) {
            source = {.from = SlotSource::From::generator,
                      .generator = generator,
                      .device = &tensor->device()};
        } else if (auto getter = getters_.find(tensor->id()); getter != getters_.end()) {
            source = {.from = SlotSource::From::getter, .object = getter->second};
        } else if (auto handle = handles_.find(tensor->id()); handle != handles_.end()) {
            source = {.from = SlotSource::From::handle, .object = handle->second};
        } else if (tensor->id() >= first_inside_id_) {
            source = {.from = SlotSource::From::constant,
                      .constant = tensor};  // made by the body; its guards watch what it is made of
        } else {
            note_unrepeatable(runtime::cat("the object that held a ", to_string(tensor->type()),
                                           " tensor from outside is gone"));
        }
    }
    return result;
}

std::vector<std::pair<nb::object, uint32_t>> Capture::updates(const jit::Session& session) const {
    std::vector<std::pair<nb::object, uint32_t>> result;
    for (const auto& [address, object] : rebound_) {
        const TensorRef& value = handle_of(object.ptr()).value();
        if (session.is_placeholder(*value)) result.emplace_back(object, value->trace.value);
    }
    return result;
}

}  // namespace megjit::python
