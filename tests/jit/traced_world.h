// tests/jit/traced_world.h -- calls of a traced function, without Python.
#pragma once

#include <functional>

#include "jit/trace/recorder.h"
#include "jit/trace/replayer.h"
#include "world.h"

namespace megjit::jit {

inline TensorRef call(const char* op, std::initializer_list<TensorRef> inputs) {
    return runtime::apply(runtime::find_op(op), {}, {inputs.begin(), inputs.size()})[0];
}

class TracedWorld : public World {
protected:
    using Body = std::function<TensorRef(const TensorRef&)>;

    // One call, as the binding makes it: the session is the thread's tracer while the body runs.
    TensorRef traced(const Body& body, TensorRef argument) {
        session = Session::begin(function, {&argument, 1}, [] { return std::string("line"); });
        argument = {};
        runtime::context().tracer = session.get();
        TensorRef result;
        try {
            result = body(session->bound()[0]);
        } catch (...) {
            runtime::context().tracer = nullptr;
            session->now().abort();
            throw;
        }
        runtime::context().tracer = nullptr;
        session->now().finish();
        return result;
    }
    bool has_replayed() const { return dynamic_cast<Replayer*>(&session->now()) != nullptr; }

    TraceFunction function{{.symbolic = true}};
    std::unique_ptr<Session> session;
};

inline TensorRef doubled(const TensorRef& x) { return call("add", {x, x}); }

}  // namespace megjit::jit
