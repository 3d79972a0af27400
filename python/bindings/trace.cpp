// megengine.jit.trace from below: begin, finish and abort of one call, and what can be asked afterwards.
#include <unordered_map>

#include "jit/session.h"
#include "python/bindings/handle.h"
#include "runtime/error.h"

namespace megjit::python {
namespace {

using jit::Session;
using jit::TraceFunction;
using jit::TraceOptions;

jit::CallKey key_of(const Tensors& arguments) {
    jit::CallKey key;
    for (size_t i = 0; i < arguments.size(); ++i) {
        key.types.push_back(arguments[i]->type());
        uint32_t first = 0;
        while (arguments[first]->id() != arguments[i]->id()) ++first;
        key.same_as.push_back(first);
    }
    return key;
}

// Does x.shape give a Tensor just now? (trace's symbolic_shape)
thread_local bool symbolic_shape = false;

// One decorated function and its running call.
class PyTrace {
public:
    PyTrace(bool symbolic, bool capture_as_const, bool record_only, int opt_level, bool fuse, bool symbolic_shape, size_t max_versions)
        : symbolic_shape_(symbolic_shape), function({.symbolic = symbolic, .capture_as_const = capture_as_const, .record_only = record_only,
                    .opt_level = opt_level, .fuse = fuse, .max_versions = max_versions}) {}

    void begin(nb::list arguments) {
        Tensors tensors;
        for (nb::handle argument : arguments) tensors.push_back(handle_of(argument.ptr()).value);
        jit::CallKey key = key_of(tensors);
        auto version = function.find(key);
        std::string reason = version ? "" : function.reason_for(key);
        session = std::make_unique<Session>(function, std::move(version), std::move(key), std::move(reason), user_location);
        session->bind_arguments(tensors);
        runtime::context().tracer = session.get();
        symbolic_shape = symbolic_shape_;
    }

    void finish() {
        leave();
        const std::unique_ptr<Session> ended = std::move(session);
        nb::gil_scoped_release release;
        try {
            ended->finish();
        } catch (...) {
            ended->abort();
            throw;
        }
        latest = ended->version();
    }

    void abort() {
        leave();
        if (!session) return;
        const std::unique_ptr<Session> ended = std::move(session);
        nb::gil_scoped_release release;
        ended->abort();
    }

    // The last version that ran, with all its programs compiled.
    jit::Version& compiled() {
        if (!latest) runtime::user_error({.what = "this function has not been called yet", .fix = "call it once first"}, runtime::ErrorKind::runtime);
        nb::gil_scoped_release release;
        for (uint32_t i = 0; i < latest->record.segments; ++i) latest->program(i, function.options);
        return *latest;
    }

private:
    static void leave() {
        runtime::context().tracer = nullptr;
        symbolic_shape = false;
    }
    bool symbolic_shape_ = true;

public:
    TraceFunction function;
    std::unique_ptr<Session> session;
    std::shared_ptr<jit::Version> latest;
};

std::string_view place_name(memory::Place place) {
    switch (place) {
        case memory::Place::kArena: return "arena";
        case memory::Place::kInput: return "input";
        case memory::Place::kConstant: return "constant";
        case memory::Place::kOutput: return "output";
    }
    return "";
}

nb::dict plan_dict(const jit::MemoryPlan& plan) {
    nb::dict result;
    result["unplanned_bytes"] = plan.unplanned_bytes;
    result["planned_bytes"] = plan.planned_bytes;
    result["peak_live_bytes"] = plan.peak_live_bytes;
    result["arena_bytes"] = plan.arena_bytes;
    result["workspace_bytes"] = plan.workspace_bytes;
    result["recompute_flops_ratio"] = plan.recompute_flops_ratio;
    nb::list buffers;
    for (const jit::PlannedBuffer& buffer : plan.buffers) {
        nb::dict row;
        row["place"] = std::string(place_name(buffer.place));
        row["offset"] = buffer.offset;
        row["bytes"] = buffer.bytes;
        row["first_step"] = buffer.live.first;
        row["last_step"] = buffer.live.last;
        nb::list values;
        for (const std::string& value : buffer.values) values.append(value);
        row["values"] = values;
        buffers.append(row);
    }
    result["buffers"] = buffers;
    nb::list steps;
    for (const std::string& step : plan.steps) steps.append(step);
    result["steps"] = steps;
    return result;
}

nb::list kernels_of(PyTrace& self) {
    jit::Version& version = self.compiled();
    nb::list result;
    for (const auto& program : version.programs)
        for (size_t i = 0; i < program->kernels().size(); ++i) {
            const codegen::CompiledKernel& kernel = *program->kernels()[i];
            nb::dict row;
            row["backend"] = kernel.backend;
            nb::list ops;
            for (const std::string& op : program->kernel_ops()[i]) ops.append(op);
            row["ops"] = ops;
            row["source"] = kernel.source ? kernel.source() : codegen::print(kernel.kernel);
            row["ir"] = codegen::print(kernel.kernel);
            row["compile_ms"] = kernel.compile_ms;
            row["cached"] = kernel.cached;
            result.append(row);
        }
    return result;
}

nb::list plans_of(PyTrace& self) {
    nb::list result;
    for (const auto& program : self.compiled().programs) result.append(plan_dict(program->plan()));
    return result;
}

nb::list graphs_of(PyTrace& self, bool optimized) {
    jit::Version& version = self.compiled();
    nb::list result;
    for (uint32_t i = 0; i < version.record.segments; ++i)
        result.append(print(optimized ? version.programs[i]->graph() : version.segments[i].graph));
    return result;
}

// Within this block ops run at once and are not recorded.
class Excluded {
public:
    void enter() {
        auto& context = runtime::context();
        saved_ = context.tracer;
        if (auto* session = dynamic_cast<Session*>(saved_)) {
            if (!context.tapes.empty()) session->note_open_backward();
            session->enter_excluded();
        }
        context.tracer = nullptr;
    }
    void exit() { runtime::context().tracer = saved_; }

private:
    runtime::Tracer* saved_ = nullptr;
};

}  // namespace

void bind_trace(nb::module_& m) {
    nb::class_<PyTrace>(m, "TraceFunction")
        .def(nb::init<bool, bool, bool, int, bool, bool, size_t>(), nb::arg("symbolic"), nb::arg("capture_as_const"), nb::arg("record_only"),
             nb::arg("opt_level"), nb::arg("fuse"), nb::arg("symbolic_shape"), nb::arg("max_versions"))
        .def("begin", &PyTrace::begin, nb::arg("arguments"))
        .def("finish", &PyTrace::finish)
        .def("abort", &PyTrace::abort)
        .def("plans", &plans_of)
        .def("kernels", &kernels_of)
        .def("graphs", &graphs_of, nb::arg("optimized"))
        .def("explain", [](PyTrace& self) { return self.function.explain(); })
        .def_prop_ro("version_count", [](PyTrace& self) { return self.function.versions.size(); })
        .def_prop_ro("op_count", [](PyTrace& self) { return self.latest ? self.latest->record.ops.size() : 0; })
        .def("clear", [](PyTrace& self) { self.function.versions.clear(); self.latest.reset(); });
    nb::class_<Excluded>(m, "Excluded")
        .def(nb::init<>())
        .def("__enter__", &Excluded::enter)
        .def("__exit__", [](Excluded& self, nb::args) { self.exit(); });
    m.def("is_tracing", [] { return runtime::context().tracer != nullptr; });
    m.def("symbolic_shape_active", [] { return symbolic_shape && runtime::context().tracer; });
    m.def("open_tapes", [] { return runtime::context().tapes.size(); });
    m.def("is_recording", [] {
        auto* session = dynamic_cast<Session*>(runtime::context().tracer);
        return session && session->is_recording();
    });
}

}  // namespace megjit::python
