// megengine.jit.trace from below: begin, finish and abort of one call, and what can be asked
// afterwards.
#include <algorithm>
#include <array>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "jit/trace/recorder.h"
#include "python/bindings/capture.h"
#include "python/bindings/direct_calls.h"
#include "python/bindings/facts.h"
#include "python/bindings/handle.h"
#include "python/bindings/held.h"
#include "python/bindings/replay_plain.h"
#include "python/bindings/trace_report.h"
#include "python/bindings/traced_call.h"
#include "runtime/eager/autodiff.h"
#include "runtime/host/error.h"

namespace megjit::python {
namespace {

using jit::Recorder;

// One decorated function.
class PyTrace {
public:
    explicit PyTrace(const jit::TraceOptions& options) : function(options) {}

    // Returns whether it is a recording.
    bool begin(nb::list arguments) {
        TracedCall::begin(
            this, function, arguments,
            function.options.capture_as_const ? std::make_unique<Capture>(true) : nullptr);
        return Recorder::running() != nullptr;
    }
    // Begins a call that a record is there for; else does nothing, and returns false.
    bool begin_replay(const nb::list& arguments) {
        return TracedCall::begin(this, function, arguments, nullptr, false);
    }

    void finish(nb::list arguments) {
        const auto call = taken(arguments);
        call->settle();
        Recording found = recording_of(*call, arguments);
        call->finish();
        note_end(*call);
        if (found.version) recorded_ = std::move(found);
    }
    // Did the body of the last call that ended well read a value, which another call may not have?
    bool has_read() const { return has_read_; }
    const Recording& recorded() const { return recorded_; }

    // Does nothing when the call has not begun, or has ended. What the body has issued gets values
    // if somebody `wants_values`; else the call leaves all as it was.
    void abort(nb::list arguments, bool wants_values) {
        if (auto call = TracedCall::take(this, arguments)) call->abort(wants_values);
    }

    // Ends a call that is compared with one without the body: nothing stays changed. Returns what
    // it would have changed (a Tensor, whether its .grad is meant, and what would be there: no
    // Tensor, one, or the rows and values of a gradient) and the values of `results`.
    nb::tuple try_out(nb::list arguments, nb::list results) {
        nb::list changed, values;
        for (const Rebound::Lasting& each : taken(arguments)->try_out([&] {
            for (nb::handle result : results) values.append(wrap(handle_of(result.ptr()).value()));
        })) {
            nb::list now;
            for (const TensorRef& part : {each.rows, each.now})
                if (part) now.append(wrap(part));
            changed.append(nb::make_tuple(each.object, each.is_grad, now));
        }
        return nb::make_tuple(changed, values);
    }
    void abort_trial(nb::list arguments) {
        if (auto call = TracedCall::take(this, arguments)) call->abort_trial();
    }

    // ---- without_host: calls that do not run the Python body

    // Begins a recording that also remembers where outside tensors come from. The recording
    // for calls of the same types goes: its guards have failed.
    void begin_capture(nb::list arguments) {
        const Tensors given = values_of(arguments);
        function.forget(jit::key_of(given));
        direct_.drop_like(given);
        direct_.close();
        TracedCall::begin(this, function, arguments, std::make_unique<Capture>(false));
    }

    // Ends the recording. `results`: the tensors that the body returned, in order;
    // `were_there`: which of them are objects that the body found (none is, where it is shorter).
    // Returns why later calls need the body nevertheless, or None. A body that reads values is such
    // a reason if it `may_read`, else an error.
    nb::object finish_capture(nb::list arguments, nb::list results, uint64_t guards,
                              const std::vector<bool>& were_there, bool may_read) {
        const auto call = taken(arguments);
        std::shared_ptr<DirectCall> made;
        Recording found;
        try {
            found = recording_of(*call, arguments);
            // `results` and what the body returned hold each tensor that it has made and returned.
            Capture::References of_results;
            for (size_t i = 0; i < were_there.size(); ++i)
                if (!were_there[i]) of_results[nb::handle(results[i]).ptr()] += 2;
            call->drop_temporaries(of_results);
            made = std::make_shared<DirectCall>(call->session(), *call->capture(), arguments,
                                                results, were_there, guards);
        } catch (...) {
            call->abort();
            throw;
        }
        call->finish();
        note_end(*call);
        if (found.version) recorded_ = std::move(found);
        if (const std::string at = made->read_in(*call->session().version()); !at.empty()) {
            if (!may_read) jit::DirectCall::refuse_read(at);
            return nb::cast(has_read_ ? "the body reads values of tensors"
                                      : "the body leaves the trace");
        }
        made->complete(function, call->session().version());
        direct_.add(made);
        if (function.take_left()) direct_.drop_left();
        return made->reason().empty() ? nb::none() : nb::cast(made->reason());
    }

    // The tensors whose gradients the last recording sets.
    nb::list tensors_with_grads() const {
        return direct_.empty() ? nb::list() : direct_.front()->tensors_with_grads();
    }

    // Lists what calls that pass these guards rebind, arguments aside.
    nb::list updated(uint64_t guards) const {
        const DirectCalls::Call found = direct_.find(guards);
        return found ? found->updated() : nb::list();
    }

    // The guards of the recording for arguments of these types; 0: there is none.
    uint64_t guards_for(nb::list arguments) const {
        const DirectCalls::Call found = direct_.find(values_of(arguments));
        return found ? found->guards() : 0;
    }
    // The guards of recordings that were dropped since the last time that this was asked.
    std::vector<uint64_t> take_gone_guards() { return direct_.take_gone(); }

    // Returns the results' tensors, flat, of a call without the body; None when it needs the body.
    // Threads that call one function wait for each other here, for its handles change hands
    // meanwhile.
    nb::object run_direct(nb::list arguments, uint64_t guards) {
        const runtime::Turn::Held turn = direct_turn_.take();
        return run_found(direct_.find(guards), arguments);
    }

    // From here on calls of the recording with these guards do without Python (DirectCall).
    void set_facts(uint64_t guards, nb::handle_t<Facts> facts, nb::object result_of) {
        direct_.open(guards, nb::borrow(facts), std::move(result_of));
    }

    bool may_do_without_python() const { return !direct_.empty(); }
    // Returns the result of such a call; null where Python must be asked.
    nb::object result_without_python(PyObject* const* arguments, size_t count, PyObject* names) {
        nb::list tensors;
        const DirectCalls::Call direct = direct_.taking(arguments, count, names, tensors);
        if (!direct) return {};
        const nb::object result_of = direct->result_of();
        if (!direct_.holds(*direct)) return {};
        const nb::object flat = run_direct(tensors, direct->guards());
        return flat.is_none() ? nb::object() : result_of(flat);
    }

    // Runs a call without guards, as it was recorded for arguments of these types.
    nb::object replay(nb::list arguments) {
        const runtime::Turn::Held turn = direct_turn_.take();
        return run_found(direct_.find(values_of(arguments)), arguments);
    }

    // Does the same without Python's objects, for a call that is plain (DirectCall); else nothing.
    std::optional<Tensors> replay_plain(const Tensors& arguments) {
        const runtime::Turn::Held turn = direct_turn_.take();
        const DirectCalls::Call found = direct_.find(arguments);
        if (!found || !found->is_plain()) return {};
        direct_.note_use(*found);
        return found->run_plain(arguments);
    }

    // Tells the cycle collector which Python objects this holds: captured objects may lead back to
    // the function.
    int traverse(visitproc visit, void* arg) const {
        if (const int status = direct_.traverse(visit, arg)) return status;
        for (const nb::object& holder : recorded_.holders) Py_VISIT(holder.ptr());
        return 0;
    }
    void drop_objects() {
        const auto dropped = direct_.take_all();
        const auto recorded = std::exchange(recorded_, {});
    }

    void clear() {
        function.clear();
        drop_objects();
    }

    jit::TraceFunction function;
    bool walks_alone = false;  // calls with a record need nothing of Python but their bodies

private:
    // Takes a reference, for another thread may drop the call.
    nb::object run_found(const DirectCalls::Call found, const nb::list& arguments) {
        if (!found) return nb::none();
        direct_.note_use(*found);
        return found->run(arguments);
    }

    std::unique_ptr<TracedCall> taken(const nb::list& arguments) const {
        if (auto call = TracedCall::take(this, arguments)) return call;
        runtime::user_error({.what = "no such call has begun in this thread"},
                            runtime::ErrorKind::runtime);
    }

    void note_end(const TracedCall& call) { has_read_ = !call.session().read_at().empty(); }

    DirectCalls direct_;
    Recording recorded_;  // the last one that ended
    bool has_read_ = false;
    runtime::Turn direct_turn_{"a traced function"};
};

// ---- trace.__call__

PyObject* trace_class = nullptr;  // megengine.jit.trace

int open_tapes() {
    const auto& tapes = runtime::context().tapes;
    return static_cast<int>(std::ranges::count_if(
        tapes, [](const runtime::TapeRef& tape) { return !tape->is_closed; }));
}

// The name of an attribute of Python's class trace, interned once.
class Name {
public:
    explicit Name(const char* text) : text_(PyUnicode_InternFromString(text)) {}
    PyObject* ptr() const { return text_; }
    nb::object of(PyObject* object) const { return nb::getattr(object, nb::handle(text_)); }

private:
    PyObject* const text_;
};

// Runs the body of a call that a record is there for, as Python's trace._run_body does. Returns
// null without an error where the call needs Python.
PyObject* walked(PyObject* self, const nb::object& function, PyObject* const* arguments,
                 size_t count) {
    static const Name body("_body"), after_failure("_after_failure");
    if (!std::all_of(arguments, arguments + count, is_tensor)) return nullptr;
    auto& own = *nb::inst_ptr<PyTrace>(function);
    nb::list leaves;
    for (size_t i = 0; i < count; ++i) leaves.append(nb::handle(arguments[i]));
    PyObject* const result = guard([&]() -> PyObject* {
        if (!own.begin_replay(leaves)) return nullptr;
        nb::object made =
            nb::steal(PyObject_Vectorcall(body.of(self).ptr(), arguments, count, nullptr));
        if (made.is_valid()) own.finish(leaves);  // `made` is held: its values are computed
        return made.release().ptr();
    });
    if (result || !PyErr_Occurred()) return result;
    nb::python_error raised;
    after_failure.of(self)(function, leaves, nb::tuple(leaves), nb::dict(), raised.value());
    raised.restore();
    return nullptr;
}

// Calls that need neither the body nor its guards, or nothing but the body, end here; all others go
// on in Python.
PyObject* call_traced(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                      PyObject* names) {
    static const Name enabled("enabled"), planned_by("_planned_by"), function("_function"),
        as_part("_call_as_part"), asked("_call");
    return guard([&]() -> PyObject* {
        const bool is_part =
            runtime::context().tracer || open_tapes() || !enabled.of(trace_class).is(Py_True);
        if (!is_part) {
            const nb::object held = function.of(self);
            auto& own = *nb::inst_ptr<PyTrace>(held);
            nb::object result;
            const bool may_end_here = own.may_do_without_python() || (own.walks_alone && !names);
            if (may_end_here && planned_by.of(trace_class).is_none())
                result =
                    own.walks_alone
                        ? nb::steal(walked(self, held, arguments, static_cast<size_t>(count)))
                        : own.result_without_python(arguments, static_cast<size_t>(count), names);
            if (result) return result.release().ptr();
            if (PyErr_Occurred()) throw nb::python_error();
        }
        std::array<PyObject*, 16> few{};
        std::vector<PyObject*> many;
        const size_t given = static_cast<size_t>(count + (names ? PyTuple_Size(names) : 0));
        if (given >= few.size()) many.resize(given + 1);
        PyObject** const all = many.empty() ? few.data() : many.data();
        all[0] = self;
        std::copy_n(arguments, given, all + 1);
        return PyObject_VectorcallMethod((is_part ? as_part : asked).ptr(), all,
                                         static_cast<size_t>(count) + 1, names);
    });
}

// Gives the class its __call__.
void set_trace_class(nb::handle type) {
    static PyMethodDef method = {
        "__call__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_traced)),
        METH_FASTCALL | METH_KEYWORDS,
        "Calls the function: records it, or runs what was recorded."};
    trace_class = type.inc_ref().ptr();
    nb::setattr(type, "__call__",
                nb::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &method)));
}

int traverse_trace(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(nb::handle(self))
               ? nb::inst_ptr<PyTrace>(nb::handle(self))->traverse(visit, arg)
               : 0;
}
int clear_trace(PyObject* self) {
    if (nb::inst_ready(nb::handle(self))) nb::inst_ptr<PyTrace>(nb::handle(self))->drop_objects();
    return 0;
}
PyType_Slot kTraceSlots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_trace)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_trace)},
    {0, nullptr},
};

}  // namespace

std::optional<Tensors> replay_plain(nb::handle function, const Tensors& arguments) {
    PyTrace* traced = nullptr;
    if (!nb::try_cast(function, traced))
        runtime::user_error({.what = "Exchange: only calls of a TraceFunction are replayed"},
                            runtime::ErrorKind::type);
    return traced->replay_plain(arguments);
}

void bind_trace(nb::module_& m) {
    nb::class_<PyTrace>(m, "TraceFunction", nb::type_slots(kTraceSlots))
        .def(nb::init<const jit::TraceOptions&>(), nb::arg("options"))
        .def("begin", &PyTrace::begin, nb::arg("arguments"))
        .def("finish", &PyTrace::finish, nb::arg("arguments"))
        .def("abort", &PyTrace::abort, nb::arg("arguments"), nb::arg("wants_values") = true)
        .def_rw("walks_alone", &PyTrace::walks_alone,
                "Whether calls with a record need nothing of Python but their bodies.")
        .def("try_out", &PyTrace::try_out, nb::arg("arguments"), nb::arg("results"),
             nb::sig("def try_out(self, arguments: list[Tensor], results: list[Tensor]) -> "
                     "tuple[list[tuple[Tensor, bool, list[Tensor]]], list[Tensor]]"))
        .def("abort_trial", &PyTrace::abort_trial, nb::arg("arguments"))
        .def("updated", &PyTrace::updated, nb::arg("guards"),
             nb::sig("def updated(self, guards: int) -> list[Tensor]"))
        .def("begin_capture", &PyTrace::begin_capture, nb::arg("arguments"))
        .def("finish_capture", &PyTrace::finish_capture, nb::arg("arguments"), nb::arg("results"),
             nb::arg("guards"), nb::arg("were_there") = std::vector<bool>(),
             nb::arg("may_read") = false)
        .def_prop_ro(
            "has_read", &PyTrace::has_read,
            "Did the body of the last call that ended well read a value, which another call may not have?")
        .def_prop_ro("recorded", [](const PyTrace& self) { return self.recorded().version; },
                     "By the last call that recorded one for dump.")
        .def("tensors_with_grads", &PyTrace::tensors_with_grads,
             nb::sig("def tensors_with_grads(self) -> list[Tensor]"))
        .def("guards_for", &PyTrace::guards_for, nb::arg("arguments"))
        .def("take_gone_guards", &PyTrace::take_gone_guards,
             "Gives the guards of what was dropped since the last time that this was asked.")
        .def("run_direct", &PyTrace::run_direct, nb::arg("arguments"), nb::arg("guards"))
        .def(
            "set_facts", &PyTrace::set_facts, nb::arg("guards"), nb::arg("facts"),
            nb::arg("result_of"),
            nb::sig(
                "def set_facts(self, guards: int, facts: Facts, result_of: Callable[[list[Any]], object]) -> None"),
            "From here on, calls that find these facts do without Python.")
        .def("replay", &PyTrace::replay, nb::arg("arguments"),
             nb::sig("def replay(self, arguments: list[Any]) -> list[Any] | None"))
        .def("clear", &PyTrace::clear)
        .def("share_arena",
             [](PyTrace& self, const PyTrace& other) {
        self.function.share_arena(other.function);
    }, nb::arg("other"), "Before the first call: for functions that do not run at the same time.")
        .def("keep_idle_arenas_within",
             [](PyTrace& self, size_t bytes) {
        self.function.keep_idle_arenas_within(bytes);
    }, nb::arg("bytes"), "Gives arenas that no call uses back to the system, if they take more.")
        .def("plans", [](const PyTrace& self) { return plans_of(self.function); })
        .def("plans_on",
             [](const PyTrace& self, int arch) { return plans_on(self.function, arch); },
             nb::arg("arch"))
        .def("kernels", [](const PyTrace& self) { return kernels_of(self.function); })
        .def("graphs",
             [](const PyTrace& self, bool optimized, bool html) {
        return graphs_of(self.function, optimized, html);
    }, nb::arg("optimized"), nb::arg("html") = false)
        .def("profiles",
             [](const PyTrace& self, bool of_all_versions) {
        return profiles_of(self.function, of_all_versions);
    }, nb::arg("of_all_versions") = false)
        .def("explain", [](const PyTrace& self) { return self.function.explain(); })
        .def_prop_ro("version_count",
                     [](const PyTrace& self) { return self.function.version_count(); })
        .def_prop_ro("dropped_versions",
                     [](const PyTrace& self) { return self.function.dropped(); })
        .def_prop_ro("version", [](const PyTrace& self) { return self.function.latest(); })
        .def_prop_ro("op_count", [](const PyTrace& self) {
        const auto latest = self.function.latest();
        return latest ? latest->record.op_count() : 0;
    }).def_prop_ro("value_count", [](const PyTrace& self) {
        const auto latest = self.function.latest();
        return latest ? latest->record.values.size() : 0;
    });
    nb::class_<DumpedStates>(m, "FileStates",
                             "What the recorded functions of one file keep from run to run.")
        .def("__init__",
             [](DumpedStates* self, const std::vector<const PyTrace*>& functions) {
        std::vector<Recording> recordings;
        for (const PyTrace* function : functions) recordings.push_back(function->recorded());
        new (self) DumpedStates(std::move(recordings));
    }, nb::arg("functions"),
             "ValueError for two tensors that were one value, one of which is a state.");
    m.def("open_tapes", &open_tapes);
    m.def("_set_trace_class", &set_trace_class, nb::arg("type"));
}

}  // namespace megjit::python
