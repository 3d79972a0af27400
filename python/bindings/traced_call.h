// python/bindings/traced_call.h -- TracedCall: one running call of a traced function, and what its
// body has rebound.
//
// Calls of a thread lie on a stack: a traced call inside exclude_from_trace() begins another, of
// the same function or not. A function that several threads call has a call for each.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "jit/session.h"
#include "python/bindings/capture.h"
#include "python/bindings/handle.h"

namespace megjit::python {

// The handles that the body of a call has rebound, which go back when the call fails for want of
// memory: a parameter must not be left with a placeholder that nothing can compute any more.
class Rebound {
public:
    void note(PyObject* tensor, const jit::Session& session);
    void note_grad(PyObject* tensor, const jit::Session& session);  // its .grad is about to change
    std::vector<Handle*> handles() const;
    // Tells which values take the place of which inputs; none that would take two.
    std::vector<jit::Output> updates(const jit::Session& session) const;
    // Tells whether anything gets another dtype.
    bool changes_types() const;
    // A handle or gradient that is still held when the body has returned, with another value.
    struct Lasting {
        nb::object object;
        TensorRef before = {};
        uint64_t old = 0;  // its id
        TensorRef now = {};
        bool is_grad = false;  // of the object
        std::string where = {};
    };
    std::vector<Lasting> lasting(const jit::Session& session, const Capture& capture) const;
    // Tells whether something that the body has written into, and not made, has no further
    // references.
    bool lets_go(const jit::Session& session, const Capture& capture,
                 const Capture::References& known) const;
    bool is_written(uint64_t id) const;  // a tensor that had the value of this id
    // Objects that were there before the body and hold another value now, each once.
    std::vector<Lasting> changed(const jit::Session& session) const;
    void count_references(Capture::References& counts) const;  // adds those that it holds
    void drop_temporaries();  // what nobody else holds needs no way back
    // Before the program runs: inputs are held by the session alone, so that it may work in place.
    void let_go_of(const jit::Session& session);
    // After a failure: what has no value goes back to what it was. `whole`: all does, as after a
    // call that was refused or only planned.
    void roll_back(const jit::Session& session, bool whole);

private:
    struct Rebinding {
        nb::object object;
        TensorRef old;
        uint64_t id = 0;  // of the old one
        bool is_grad = false;
        std::string where = {};  // for dump
        nb::object rows = {};  // a gradient that is kept as rows; `old`: its values
    };
    std::vector<const Rebinding*> before(const jit::Session& session) const;
    std::set<PyObject*> helpers(const jit::Session& session) const;
    std::vector<Rebinding> entries_;
};

class TracedCall {
public:
    // From here until take() the thread's ops go to the call. `owner`, and the list, are what it is
    // known by. `capture`: notes what a call without the body would need, or null.
    static void begin(const void* owner, jit::TraceFunction& function, const nb::list& arguments,
                      std::unique_ptr<Capture> capture);
    // Ends it in this thread's state; null when it is not the one that runs.
    static std::unique_ptr<TracedCall> take(const void* owner, const nb::list& arguments);
    // The one whose body runs in this thread, or null; not while code is excluded.
    static TracedCall* running();

    // The body has returned: a call that has left its record by that goes on as another one.
    void settle();
    // The body has returned, or raised: what it has issued gets data; what cannot, is undone.
    void finish();
    void abort();
    // Computes what the body has issued and gives what it would have changed. All is as it was
    // before the call then, random generators too; also where this throws. `look`: while it is not.
    std::vector<Rebound::Lasting> try_out(const std::function<void()>& look);
    void abort_trial();

    jit::Session& session() const { return session_->now(); }
    Capture* capture() const { return capture_.get(); }
    Rebound rebound;

private:
    void roll_back(bool whole);
    const void* owner_ = nullptr;
    PyObject* arguments_ = nullptr;
    std::unique_ptr<jit::Session> session_;
    std::unique_ptr<Capture> capture_;
    // The thread's state as it was before.
    runtime::Tracer* outer_tracer_ = nullptr;
    Capture* outer_capture_ = nullptr;
};

void note_grad(nb::handle tensor);  // of the running call, if there is one

// Within this block ops run at once and are not recorded.
class Excluded {
public:
    void enter();
    // A generator may leave the block after the call, or in another one.
    void exit();

private:
    runtime::Tracer* saved_ = nullptr;
    uint64_t first_id_ = 0;  // of the tensors that it makes
    bool entered_ = false;
};

}  // namespace megjit::python
