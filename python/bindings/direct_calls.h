// python/bindings/direct_calls.h -- DirectCalls: the recordings of one function for calls without
// its body, found by the types of a call's tensors or by the number of their guards, however many
// there are.
#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/bindings/direct_call.h"

namespace megjit::python {

class DirectCalls {
public:
    using Call = std::shared_ptr<DirectCall>;

    bool empty() const { return calls_.empty(); }
    const Call& front() const { return calls_.front(); }  // the one used last

    Call find(uint64_t guards) const;  // null where there is none
    Call find(const Tensors& arguments) const;
    void add(Call made);  // as the one used last
    void note_use(const DirectCall& call);
    void drop_like(const Tensors& arguments);
    void drop_left();  // those whose versions the function keeps no longer
    // Returns the guards of what was dropped since the last time that this was asked.
    std::vector<uint64_t> take_gone() { return std::exchange(gone_, {}); }

    // Until the guards were asked again, no call may do without them.
    void close();
    void open(uint64_t guards, nb::object facts, nb::object result_of);
    // Returns the recording for arguments that its facts take, and puts their tensors into
    // `tensors`; null where Python must be asked. The facts may have changed since.
    Call taking(PyObject* const* arguments, size_t count, PyObject* names, nb::list& tensors) const;

    // Do all facts of such a recording hold?
    bool holds(const DirectCall& call) const;

    int traverse(visitproc visit, void* arg) const;  // shows what this holds to the cycle collector
    // Gives all of them away: what their destruction runs may call this function.
    std::list<Call> take_all();

private:
    using Order = std::list<Call>;  // newest use first
    Order::iterator place_of(const DirectCall& call);  // end() where it was dropped
    void drop(Order::iterator call);
    bool is_taken(const DirectCall& call, const Facts* facts, const Tensors& tensors) const {
        return facts && call.facts_of(opening_) == facts && call.takes(tensors);
    }

    Order calls_;
    // Replay, which asks for no guards, gives all of its calls one number: the last one counts.
    std::unordered_map<uint64_t, Order::iterator> by_guards_;
    std::unordered_multimap<size_t, Order::iterator> by_hash_;  // of the key of their calls
    std::vector<uint64_t> gone_;
    uint64_t opening_ = 1;  // what was opened in an earlier one is closed
    std::vector<nb::object> open_facts_;  // of this opening, each once: sizes share them
};

}  // namespace megjit::python
