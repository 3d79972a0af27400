// python/bindings/capture.h -- what a recording must remember so that later calls can do without
// the Python body (trace's without_host): which Python object each outside tensor came from, and
// which objects were rebound.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "jit/trace/session.h"
#include "python/bindings/handle.h"
#include "runtime/core/random.h"

namespace megjit::python {

// Says what holds the value of a slot in a call without the body.
struct SlotSource {
    jit::Input::Kind kind = jit::Input::Kind::captured;
    size_t argument = 0;  // its index; that of a gradient among those the call sets
    nb::object object = {};  // captured: a Tensor; option: a callable that gives a Tensor
    bool is_grad = false;  // the captured tensor is the .grad of `object`
    runtime::RandomState* generator = nullptr;  // it gives a key, on `device`
    std::optional<int64_t> keys = {};  // the generator gives so many keys
    runtime::Device* device = nullptr;
    TensorRef constant = {};
};

// Tells whether it is a plain Tensor: the program gave it no class or attributes of its own.
bool is_bare_tensor(PyObject* object);
// Returns the tensors of a gradient: itself, or its rows and values where it is kept as rows. None
// has no tensors.
std::vector<nb::object> parts_of_grad(nb::handle grad);

class Capture {
public:
    // The capture of the recording that runs in this thread, or null.
    static Capture*& current();

    // A capture for dump does not hold values that the body computes.
    explicit Capture(bool is_for_dump) : is_for_dump_(is_for_dump) {}
    void set_first_inside_id(uint64_t id) { first_inside_id_ = id; }

    void note_operand(PyObject* tensor);
    void note_rebound(PyObject* tensor) {
        rebound_.emplace(reinterpret_cast<uint64_t>(tensor), nb::borrow(tensor));
    }
    void note_grad(PyObject* tensor);  // to be called before its .grad changes
    // The host is about to read `tensor`, or another Tensor to take its value: either may then be
    // the value of a state of a file, which no operation has read.
    void note_held(PyObject* tensor) {
        if (is_for_dump_) note_operand(tensor);
    }
    // The body has returned `tensor`, and its results hold so many references to it.
    void note_result(PyObject* tensor, Py_ssize_t references) {
        results_.emplace_back(nb::borrow(tensor), references);
    }
    // The body read the value of a tensor from outside: calls without the body could not.
    void note_read(const TensorRef& tensor);
    // Says why calls without the body cannot do what the body did.
    void note_unrepeatable(std::string reason) { unrepeatable_ = std::move(reason); }
    const std::string& unrepeatable() const { return unrepeatable_; }
    const std::string& read_at() const { return read_at_; }  // where a value was read, or ""
    // A dump refuses what was read outside of the trace (exclude_from_trace); this says where.
    const std::vector<std::pair<TensorRef, std::string>>& excluded_reads() const {
        return excluded_reads_;
    }
    // Pairs of objects that held one value when it was first used: one input of the program stands
    // for both.
    const std::vector<std::pair<nb::object, nb::object>>& twins() const { return twins_; }

    struct Grad {
        nb::object tensor, before;  // before: its .grad when the body began, or None
        // Has the body put another Tensor of its own in the place of `before`?
        bool is_new(const jit::Session& session) const;
    };
    const std::vector<Grad>& grads() const { return grads_; }
    bool is_grad(nb::handle object) const;  // was it a tensor's .grad when the body began?

    void note_getter(const TensorRef& tensor, nb::object getter) {
        getters_.emplace(tensor->id(), std::move(getter));
    }

    const std::unordered_map<uint64_t, nb::object>& handles() const { return handles_; }
    const std::unordered_map<uint64_t, nb::object>& getters() const { return getters_; }

    // To be called before the session ends: lets go of objects that only this capture and the call
    // hold, the call by so many references.
    using References = std::unordered_map<PyObject*, Py_ssize_t>;
    void drop_temporaries(const jit::Session& session, const References& of_call);
    References references() const;  // all that this capture holds
    void count_results(References& counts) const;  // adds those that the results hold
    // Ids of values from before the call whose objects have no further references.
    std::vector<uint64_t> released(const References& known) const;
    // A source that no later call could find again makes the recording unrepeatable.
    std::vector<SlotSource> sources(const jit::Session& session, const Tensors& arguments);
    // An object that outlives the call with another value: one of the session, or one that the
    // body has made from host data. Each call puts the latter there again.
    struct Update {
        nb::object object;
        std::optional<jit::RecordId> value = {};
        TensorRef constant = {};
    };
    std::vector<Update> updates(const jit::Session& session) const;
    // Objects whose values are constants of the record, each with the id that it must still hold.
    std::vector<std::pair<nb::object, uint64_t>> held_constants(const jit::Session& session) const;

private:
    bool drops_temporaries_once(const jit::Session& session, const References& of_call);
    const Grad* grad_before(nb::handle object, const jit::Session& session) const;
    std::unordered_map<uint64_t, nb::object> handles_;  // by tensor id at first use
    std::unordered_map<uint64_t, nb::object> rebound_;  // by address
    std::vector<Grad> grads_;
    std::unordered_map<uint64_t, nb::object> getters_;  // by tensor id
    std::vector<std::pair<nb::object, nb::object>> twins_;
    std::vector<std::pair<nb::object, Py_ssize_t>> results_;
    uint64_t first_inside_id_ = 0;  // the first id that the body gives to a tensor
    const bool is_for_dump_;
    std::string unrepeatable_, read_at_;
    std::vector<std::pair<TensorRef, std::string>> excluded_reads_;
};

}  // namespace megjit::python
