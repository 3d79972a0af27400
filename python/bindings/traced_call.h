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

#include "jit/trace/session.h"
#include "python/bindings/capture.h"
#include "python/bindings/handle.h"

namespace megjit::python {

// The handles that the body of a call has rebound. They go back when the call fails for want of
// memory: a parameter must not be left with a placeholder that nothing can compute any more.
class Rebound {
public:
    void note(PyObject* tensor, const jit::Session& session);
    void note_grad(PyObject* tensor, const jit::Session& session);  // before its .grad changes
    std::vector<Handle*> handles() const;
    // Tells which values take the place of which inputs, without values that would take two.
    std::vector<jit::Output> updates(const jit::Session& session) const;
    // Tells whether anything gets another dtype.
    bool changes_types() const;
    // A handle or gradient that is still held when the body has returned, with another value.
    struct Lasting {
        nb::object object;
        TensorRef before = {};
        uint64_t old = 0;  // the id of `before`
        TensorRef now = {};
        bool is_grad = false;  // the object's .grad is meant
        std::string where = {};
        TensorRef rows = {};  // of a gradient that is kept as rows, whose values are `now`
    };
    std::vector<Lasting> lasting(const jit::Session& session, const Capture& capture) const;
    // Tells whether nothing else holds some object that the body has written into, and not made.
    bool lets_go(const jit::Session& session, const Capture& capture,
                 const Capture::References& known) const;
    bool is_written(uint64_t id) const;  // has the body rebound a holder of this value?
    // Objects that were there before the body and hold another value now, each once.
    std::vector<Lasting> changed(const jit::Session& session) const;
    void count_references(Capture::References& counts) const;  // adds those held here
    bool drops_temporaries_once();  // objects that nobody else holds need no way back
    // Leaves inputs to the session alone before the program runs, so that it may work in place.
    void let_go_of(const jit::Session& session);
    // To be called after a failure: objects without a value get the old one back. `whole`: all do,
    // as after a call that was refused or only planned.
    void roll_back(const jit::Session& session, bool whole);

private:
    struct Rebinding {
        nb::object object;
        TensorRef old;
        uint64_t id = 0;  // the id of `old`
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
    // From here until take() the thread's ops go to the call, which `owner` and the list identify.
    // `capture` notes what a call without the body would need; it may be null. Returns false, and
    // nothing has begun, for a call that would be recorded and may not.
    static bool begin(const void* owner, jit::TraceFunction& function, const nb::list& arguments,
                      std::unique_ptr<Capture> capture, bool may_record = true);
    // Removes the call from this thread's state; null when another call runs.
    static std::unique_ptr<TracedCall> take(const void* owner, const nb::list& arguments);
    // The call whose body runs in this thread; null where none does, or code is excluded.
    static TracedCall* running();

    // The body has returned: a call that thereby leaves its record goes on with another one.
    void settle();
    // The body has returned, or raised: values that it has issued get data, others are undone.
    void finish();
    void abort(bool wants_values = true);
    // Lets go of objects that the call alone holds, and of those that its results hold by so many
    // references as are given.
    void drop_temporaries(const Capture::References& of_results);
    // Computes values that the body has issued and returns what it would have changed. Then all,
    // random generators too, is as before the call, even if this throws. `look` runs before that.
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

void note_grad(nb::handle tensor);  // tells the running call, if there is one

// Within this block ops run at once and are not recorded.
class Excluded {
public:
    void enter();
    // A generator may leave the block after the call, or in another one.
    void exit();

private:
    runtime::Tracer* saved_ = nullptr;
    uint64_t first_id_ = 0;  // the first id of the tensors made inside
    bool entered_ = false;
};

}  // namespace megjit::python
