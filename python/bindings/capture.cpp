#include "python/bindings/capture.h"

#include "runtime/error.h"
#include "runtime/random.h"

namespace megjit::python {

Capture*& Capture::current() {
    thread_local Capture* instance = nullptr;
    return instance;
}

void Capture::drop_temporaries() {
    const auto is_ours_alone = [](const auto& entry) { return Py_REFCNT(entry.second.ptr()) == 1; };
    // An object may stand in both maps: then two references are ours.
    for (auto it = rebound_.begin(); it != rebound_.end();) {
        Py_ssize_t ours = 1;
        for (const auto& [id, object] : handles_) ours += object.ptr() == it->second.ptr();
        it = Py_REFCNT(it->second.ptr()) <= ours ? rebound_.erase(it) : std::next(it);
    }
    std::erase_if(handles_, is_ours_alone);
}

std::vector<SlotSource> Capture::sources(const jit::Session& session, const Tensors& arguments, uint64_t first_inside_id) const {
    const auto& bound = session.bound();
    std::vector<SlotSource> result(bound.size());
    for (size_t slot = 0; slot < bound.size(); ++slot) {
        const TensorRef& tensor = bound[slot];
        SlotSource& source = result[slot];
        for (size_t i = 0; i < arguments.size() && source.from == SlotSource::From::constant && !source.constant; ++i)
            if (arguments[i]->id() == tensor->id()) source = {.from = SlotSource::From::argument, .argument = i};
        if (source.from == SlotSource::From::argument) continue;
        if (runtime::RandomState* stream = runtime::stream_of(*tensor)) {
            source = {.from = SlotSource::From::stream, .stream = stream};
        } else if (auto getter = getters_.find(tensor->id()); getter != getters_.end()) {
            source = {.from = SlotSource::From::getter, .object = getter->second};
        } else if (auto handle = handles_.find(tensor->id()); handle != handles_.end()) {
            source = {.from = SlotSource::From::handle, .object = handle->second};
        } else if (tensor->id() >= first_inside_id) {
            source = {.from = SlotSource::From::constant, .constant = tensor};  // made by the body; its guards watch what it is made of
        } else {
            runtime::user_error({.what = runtime::cat("trace with without_host=True: a ", to_string(tensor->type()), " tensor from outside cannot be found again"),
                                 .why = "it is no argument, and the object that held it is gone",
                                 .fix = "pass it as an argument, or keep it in a module"}, runtime::ErrorKind::runtime);
        }
    }
    return result;
}

std::vector<std::pair<nb::object, uint32_t>> Capture::updates(const jit::Session& session) const {
    std::vector<std::pair<nb::object, uint32_t>> result;
    for (const auto& [address, object] : rebound_) {
        const TensorRef& value = handle_of(object.ptr()).value;
        if (session.is_placeholder(*value)) result.emplace_back(object, value->trace.value);
    }
    return result;
}

}  // namespace megjit::python
