// python/bindings/capture.h -- what a recording must remember so that later calls can do without the
// Python body (trace's without_host): which Python object each outside tensor came from, and which
// objects were rebound.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "jit/session.h"
#include "python/bindings/handle.h"
#include "runtime/random.h"

namespace megjit::python {

// Where the value of an outside slot comes from in a call without the body.
struct SlotSource {
    enum class From : uint8_t { argument, handle, stream, getter, constant } from = From::constant;
    size_t argument = 0;
    nb::object object = {};  // handle: a Tensor; getter: a callable that gives a Tensor
    runtime::RandomState* stream = nullptr;
    TensorRef constant = {};
};

class Capture {
public:
    // The capture of the recording that runs in this thread, or null.
    static Capture*& current();

    void note_operand(PyObject* tensor) { if (!handles_.contains(id_of(tensor))) remember(handles_, id_of(tensor), tensor); }
    void note_rebound(PyObject* tensor) { remember(rebound_, reinterpret_cast<uint64_t>(tensor), tensor); }
    void note_getter(const TensorRef& tensor, nb::object getter) { getters_.emplace(tensor->id(), std::move(getter)); }

    // To be called before the session ends: lets go of objects that nobody else holds.
    void drop_temporaries();
    // UserError (runtime) for an outside tensor that no later call could find again.
    std::vector<SlotSource> sources(const jit::Session& session, const Tensors& arguments, uint64_t first_inside_id) const;
    // Objects that hold a value of the session now: they are rebound after each call.
    std::vector<std::pair<nb::object, uint32_t>> updates(const jit::Session& session) const;

private:
    static uint64_t id_of(PyObject* tensor) { return handle_of(tensor).value->id(); }
    static void remember(std::unordered_map<uint64_t, nb::object>& map, uint64_t key, PyObject* object) { map.emplace(key, nb::borrow(object)); }
    std::unordered_map<uint64_t, nb::object> handles_;  // by tensor id at first use
    std::unordered_map<uint64_t, nb::object> rebound_;  // by address
    std::unordered_map<uint64_t, nb::object> getters_;  // by tensor id
};

}  // namespace megjit::python
