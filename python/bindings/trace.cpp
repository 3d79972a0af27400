// megengine.jit.trace from below: begin, finish and abort of one call, and what can be asked
// afterwards.
#include <algorithm>
#include <mutex>
#include <unordered_set>

#include <nanobind/stl/shared_ptr.h>

#include "jit/recorder.h"
#include "python/bindings/capture.h"
#include "python/bindings/handle.h"
#include "runtime/error.h"

namespace megjit::python {
namespace {

using jit::Recorder;
using jit::Session;
using jit::TraceFunction;
using jit::TraceOptions;

// `sublinear`: a SublinearMemoryConfig, or None. `enough_bytes`: a DTRConfig's threshold, or 0.
jit::MemoryOptions memory_options(size_t limit, nb::handle sublinear, size_t enough_bytes,
                                  bool with_curve) {
    jit::MemoryOptions options{.limit = limit,
                               .is_sublinear = enough_bytes != 0,
                               .enough_bytes = enough_bytes,
                               .only_looks = with_curve};
    if (sublinear.is_none()) return options;
    const auto field = [&](const char* name) { return nb::cast<int64_t>(sublinear.attr(name)); };
    const auto small = [&](const char* name) {
        return static_cast<int>(std::min<int64_t>(field(name), 1 << 20));
    };
    options.is_sublinear = true;
    options.enough_bytes = std::max(enough_bytes, static_cast<size_t>(field("lb_memory_mb")) << 20);
    options.search = {.thresholds = small("thresh_nr_try"),
                      .genetic_rounds = small("genetic_nr_iter"),
                      .genetic_pool = small("genetic_pool_size"),
                      .workers = small("num_worker")};
    return options;
}

// Does x.shape give a Tensor just now? (trace's symbolic_shape)
thread_local bool symbolic_shape = false;

class PyTrace;

// What the body of a call has rebound, and to go back to when the call fails for want of memory: a
// parameter must not be left with a placeholder that nothing can compute any more.
class Rebound {
public:
    void note(PyObject* tensor, const Session& session) {
        const TensorRef& old = handle_of(tensor).value;
        if (!session.is_placeholder(*old)) entries_.push_back({nb::borrow(tensor), old, old->id()});
    }

    // Its .grad is about to change.
    void note_grad(PyObject* tensor, const Session& session) {
        const nb::object grad = nb::getattr(nb::handle(tensor), "grad");
        TensorRef old = grad.is_none() ? TensorRef{} : handle_of(grad.ptr()).value;
        if (old && session.is_placeholder(*old)) return;
        const uint64_t id = old ? old->id() : 0;
        entries_.push_back({nb::borrow(tensor), std::move(old), id, true});
    }

    // Before the program runs: inputs are held by the session alone, so that it may work in place.
    void let_go_of(const Session& session) {
        if (entries_.empty()) return;
        std::unordered_set<uint64_t> bound;
        for (const TensorRef& tensor : session.bound())
            if (tensor) bound.insert(tensor->id());
        for (Entry& entry : entries_)
            if (bound.contains(entry.id)) entry.old = {};
    }

    // After a failure, or a call that was only planned: what has no value goes back to what it was.
    void roll_back(const Session& session, bool was_planned) {
        const auto has_value = [&](const TensorRef& value) {
            return !session.is_placeholder(*value) || value->has_data();
        };
        for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
            for (const TensorRef& tensor : session.bound())
                if (!entry->old && tensor && tensor->id() == entry->id) entry->old = tensor;
            if (!entry->is_grad) {
                TensorRef& value = handle_of(entry->object.ptr()).value;
                if (!has_value(value) && entry->old) value = entry->old;
                continue;
            }
            const nb::object grad = nb::getattr(entry->object, "grad");
            if (grad.is_none() ? was_planned : !has_value(handle_of(grad.ptr()).value))
                nb::setattr(entry->object, "grad", entry->old ? wrap(entry->old) : nb::none());
        }
    }

private:
    struct Entry {
        nb::object object;
        TensorRef old;
        uint64_t id = 0;
        bool is_grad = false;
    };
    std::vector<Entry> entries_;
};

// One running call. Calls of a thread lie on a stack: a traced call inside exclude_from_trace()
// begins another, of the same function or not. A function that several threads call has a session
// for each.
struct Call {
    const PyTrace* owner = nullptr;
    PyObject* arguments = nullptr;  // the list that began it: what a call is known by
    std::unique_ptr<Session> begun = {};
    std::unique_ptr<Capture> capture = {};
    Rebound rebound = {};
    // What the thread's state was before.
    runtime::Tracer* outer_tracer = nullptr;
    Capture* outer_capture = nullptr;
    bool outer_symbolic_shape = false;

    Session& session() const { return begun->now(); }
};
std::vector<Call>& calls() {
    thread_local std::vector<Call> instance;
    return instance;
}

// One decorated function.
class PyTrace {
private:
    // What a call without the body does, as found when it was recorded.
    struct Direct {
        uint64_t guards = 0;  // number of those that say when it holds
        std::shared_ptr<jit::Version> version;
        jit::CallKey key;
        std::vector<SlotSource> sources;  // by slot
        std::vector<std::pair<nb::object, uint32_t>> updates;  // object, value it is rebound to
        std::vector<size_t>
            updated_argument;  // by update: the argument that it is, or their number
        std::vector<size_t> same_object;  // by argument: the first one that is this object
        std::vector<std::pair<nb::object, nb::object>> twins;  // objects that must hold one value
        std::vector<int64_t> results;  // value, -1: fixed_results, or -2 - argument
        std::vector<nb::object> fixed_results;
        std::vector<int> output_of;  // by value: index of the program's output
        TensorRef nothing = runtime::make_tensor({});
    };

public:
    PyTrace(std::string name, bool symbolic, bool capture_as_const, bool record_only,
            bool profiling, int opt_level, bool exact, bool fuse, bool fuse_reduce,
            bool fuse_dimshuffle, bool symbolic_shape, size_t max_versions, size_t memory_limit,
            nb::handle sublinear, size_t enough_bytes, bool only_plan, bool with_curve)
        : symbolic_shape_(symbolic_shape),
          function({.name = std::move(name),
                    .symbolic = symbolic,
                    .capture_as_const = capture_as_const,
                    .record_only = record_only,
                    .profiling = profiling,
                    .only_plan = only_plan,
                    .pipeline = {.opt_level = opt_level,
                                 .exact = exact,
                                 .fuse = fuse,
                                 .fuse_reduce = fuse_reduce,
                                 .fuse_dimshuffle = fuse_dimshuffle,
                                 .memory = memory_options(memory_limit, sublinear, enough_bytes,
                                                          with_curve)},
                    .max_versions = max_versions}) {}

    void begin(nb::list arguments) { start(arguments, nullptr); }

    void finish(nb::list arguments) {
        Call call = take(arguments);
        if (!call.begun)
            runtime::user_error({.what = "finish: no such call has begun in this thread"},
                                runtime::ErrorKind::runtime);
        end(call);
    }

    // Does nothing when the call has not begun, or has ended.
    void abort(nb::list arguments) {
        Call call = take(arguments);
        if (call.begun) give_up(call);
    }

    // ---- without_host: calls that do not run the Python body

    // Begins a recording that also remembers where outside tensors come from.
    void begin_capture(nb::list arguments) {
        function.clear();  // guards have failed, or this is the first call
        start(arguments, std::make_unique<Capture>(runtime::make_tensor({})->id()));
    }

    // Ends it. `results`: the tensors that the body returned, in order.
    // Returns why later calls need the body nevertheless, or None.
    nb::object finish_capture(nb::list arguments, nb::list results, uint64_t guards) {
        Call call = take(arguments);
        if (!call.capture)
            runtime::user_error({.what = "finish_capture: no such call has begun in this thread"},
                                runtime::ErrorKind::runtime);
        const Session* session = &call.session();
        auto made = std::make_shared<Direct>();
        Direct& direct = *made;
        const Capture* captured = call.capture.get();
        std::string reason;
        try {
            call.capture->drop_temporaries();
            reason = describe(direct, *session, *call.capture, arguments, results);
        } catch (...) {
            give_up(call);
            throw;
        }
        end(call);
        direct.version = call.session().version();
        const std::shared_ptr<jit::Version>& latest = direct.version;
        if (latest->record.segments > 1 || !captured->read_at().empty())
            runtime::user_error(
                {.what =
                     "trace with without_host=True: the body reads tensor values, or excludes code from the trace",
                 .why = "later calls do not run the body, so it could not read them again",
                 .fix = "return the tensors and read them outside, or drop without_host",
                 .at = captured->read_at().empty() ? first_barrier(latest->record)
                                                   : captured->read_at()},
                runtime::ErrorKind::runtime);
        direct.key = latest->key;
        for (nb::handle argument : arguments)
            direct.same_object.push_back(index_in(arguments, argument));
        direct.guards = guards;
        this->direct = std::move(made);
        return reason.empty() ? nb::none() : nb::object(nb::str(reason.c_str()));
    }

    // Fills in what a call without the body does.
    static std::string describe(Direct& direct, const Session& session_, Capture& captured_,
                                const nb::list& arguments, const nb::list& results) {
        const Session* session = &session_;
        Capture* captured = &captured_;
        Tensors given = values_of(arguments);
        // An argument may have been rebound by the body: compare with what was bound at the start.
        for (size_t i = 0; i < given.size(); ++i)
            given[i] = session->bound()[session->version()->argument_slots[i]];
        direct.sources = captured->sources(*session, given);
        std::string reason = captured->unrepeatable();
        for (const auto& [first, second] : captured->twins()) {
            const size_t count = nb::len(arguments), a = index_in(arguments, first),
                         b = index_in(arguments, second);
            if (a == count && b == count) direct.twins.emplace_back(first, second);
            else if (a == count || b == count)
                reason = "an argument shares its value with a tensor that the body captures";
        }
        for (auto& [object, value] : captured->updates(*session)) {
            direct.updated_argument.push_back(index_in(arguments, object));
            direct.updates.emplace_back(std::move(object), value);
        }
        for (nb::handle result : results) {
            const TensorRef& value = value_of(result.ptr());
            const size_t argument = index_in(arguments, result);
            const bool is_made = session->is_placeholder(*value),
                       is_argument = !is_made && argument < nb::len(arguments);
            direct.results.push_back(is_made       ? static_cast<int64_t>(value->trace.value)
                                     : is_argument ? -2 - static_cast<int64_t>(argument)
                                                   : -1);
            direct.fixed_results.push_back(is_made || is_argument ? nb::object()
                                                                  : nb::borrow(result));
        }
        given.clear();
        if (reason.empty() && keeps_other_values(direct, *session))
            reason = "the body keeps a tensor that it does not return";
        return reason;
    }

    // The results' tensors, flat, of a call without the body; None when it needs the body.
    // Threads that call one function wait for each other here, for its handles change hands
    // meanwhile.
    nb::object run_direct(nb::list arguments, uint64_t guards) {
        std::unique_lock lock(direct_mutex, std::try_to_lock);
        if (!lock.owns_lock()) {
            nb::gil_scoped_release release;
            lock.lock();
        }
        const std::shared_ptr<Direct> current = direct;
        if (!current || current->guards != guards || !fits(*current, arguments)) return nb::none();
        return run(*current, arguments);
    }

    // What it holds of Python, for the cycle collector: a function may be reached from its own
    // captured objects.
    int traverse(visitproc visit, void* arg) const {
        if (!direct) return 0;
        for (const SlotSource& source : direct->sources) Py_VISIT(source.object.ptr());
        for (const auto& [object, value] : direct->updates) Py_VISIT(object.ptr());
        for (const auto& [first, second] : direct->twins) {
            Py_VISIT(first.ptr());
            Py_VISIT(second.ptr());
        }
        for (const nb::object& result : direct->fixed_results) Py_VISIT(result.ptr());
        return 0;
    }
    void drop_objects() { const std::shared_ptr<Direct> dropped = std::move(direct); }

    void clear() {
        function.clear();
        direct.reset();
    }

private:
    static bool fits(const Direct& direct, const nb::list& arguments) {
        if (direct.same_object.size() != nb::len(arguments)) return false;
        const Tensors tensors = values_of(arguments);
        if (!(jit::key_of(tensors) == direct.key)) return false;
        for (size_t i = 0; i < tensors.size(); ++i)
            if (index_in(arguments, arguments[i]) != direct.same_object[i]) return false;
        for (const auto& [first, second] : direct.twins)
            if (value_of(first.ptr())->id() != value_of(second.ptr())->id()) return false;
        const jit::Record& record = direct.version->record;
        for (size_t slot = 0; slot < direct.sources.size(); ++slot) {
            if (direct.sources[slot].from != SlotSource::From::handle) continue;
            const TensorRef& value = value_of(direct.sources[slot].object.ptr());
            if (!(value->type() == record.values[record.outside[slot]].type)) return false;
            for (const TensorRef& tensor : tensors)
                if (tensor->id() == value->id()) return false;  // recorded as two
        }
        return true;
    }

    nb::list run(Direct& direct, const nb::list& arguments) {
        jit::Version& version = *direct.version;
        const jit::Record& record = version.record;
        jit::CompiledSegment compiled;
        {
            nb::gil_scoped_release release;
            compiled = version.compiled(0, function.options);
        }
        const jit::Segment& segment = *compiled.segment;
        std::vector<TensorRef> by_slot(direct.sources.size());
        for (size_t slot = 0; slot < by_slot.size(); ++slot) {
            const SlotSource& source = direct.sources[slot];
            switch (source.from) {
                case SlotSource::From::argument:
                    by_slot[slot] = value_of(nb::handle(arguments[source.argument]).ptr());
                    break;
                case SlotSource::From::handle: by_slot[slot] = value_of(source.object.ptr()); break;
                case SlotSource::From::stream: by_slot[slot] = source.stream->key(); break;
                case SlotSource::From::getter:
                    by_slot[slot] = value_of(source.object().ptr());
                    break;
                case SlotSource::From::constant: by_slot[slot] = source.constant; break;
            }
        }
        std::vector<TensorRef> inputs;
        for (jit::RecordId id : segment.inputs)
            inputs.push_back(std::move(by_slot[record.values[id].slot]));
        by_slot.clear();
        // Handles that are rebound let go of their value, so that the program may work in place.
        std::vector<TensorRef> unread;  // what no input holds, in case the run fails
        std::vector<uint64_t> held_ids;  // what updates held before
        std::vector<PyObject*> updated;
        for (size_t u = 0; u < direct.updates.size(); ++u) {
            const size_t argument = direct.updated_argument[u];
            updated.push_back(argument < nb::len(arguments) ? nb::handle(arguments[argument]).ptr()
                                                            : direct.updates[u].first.ptr());
        }
        for (PyObject* object : updated) {
            TensorRef& held = handle_of(object).value;
            if (std::find(inputs.begin(), inputs.end(), held) == inputs.end())
                unread.push_back(held);
            else unread.emplace_back();
            held_ids.push_back(held->id());
            held = direct.nothing;
        }
        std::vector<TensorRef> outputs;
        try {
            nb::gil_scoped_release release;
            outputs = compiled.program->run(inputs);
        } catch (...) {
            for (size_t u = 0; u < direct.updates.size(); ++u) {
                TensorRef back = unread[u];
                for (const TensorRef& input : inputs)
                    if (!back && input->id() == held_ids[u]) back = input;
                handle_of(updated[u]).value = back;
            }
            throw;
        }
        direct.output_of.assign(record.values.size(), -1);
        for (size_t i = 0; i < segment.outputs.size(); ++i)
            direct.output_of[segment.outputs[i]] = static_cast<int>(i);
        const auto value_of = [&](uint32_t id) {
            return record.values[id].tensor ? record.values[id].tensor
                                            : outputs[direct.output_of[id]];
        };
        for (size_t u = 0; u < updated.size(); ++u)
            handle_of(updated[u]).value = value_of(direct.updates[u].second);
        nb::list results;
        for (size_t i = 0; i < direct.results.size(); ++i) {
            const int64_t result = direct.results[i];
            if (result >= 0) results.append(wrap(value_of(static_cast<uint32_t>(result))));
            else
                results.append(result == -1
                                   ? direct.fixed_results[i]
                                   : nb::object(arguments[static_cast<size_t>(-2 - result)]));
        }
        ++version.calls;
        return results;
    }

    static size_t index_in(const nb::list& objects, nb::handle object) {
        size_t i = 0;
        while (i < nb::len(objects) && !nb::handle(objects[i]).is(object)) ++i;
        return i;
    }
    // Does Python hold a value of this call that is neither returned nor rebound?
    static bool keeps_other_values(const Direct& direct, const Session& session) {
        std::unordered_set<uint64_t> known(direct.results.begin(), direct.results.end());
        for (const auto& [object, value] : direct.updates) known.insert(value);
        for (jit::RecordId id : session.live_values())
            if (!known.contains(id) && !session.version()->record.values[id].tensor) return true;
        return false;
    }
    static std::string first_barrier(const jit::Record& record) {
        for (const jit::Event& event : record.events)
            if (event.kind == jit::EventKind::barrier) return event.where;
        return "";
    }
    void start(const nb::list& arguments, std::unique_ptr<Capture> capture) {
        Tensors tensors;
        for (nb::handle argument : arguments) {
            TensorRef value = value_of(argument.ptr());
            // An argument is an input, also one that was made to be a constant elsewhere.
            if (value->is_constant)
                value = handle_of(argument.ptr()).value =
                    runtime::make_tensor(value->type(), value->storage());
            tensors.push_back(std::move(value));
        }
        auto session = Session::begin(function, tensors, user_location);
        auto& tracer = runtime::context().tracer;
        calls().push_back({this,
                           arguments.ptr(),
                           std::move(session),
                           std::move(capture),
                           {},
                           tracer,
                           Capture::current(),
                           symbolic_shape});
        tracer = calls().back().begun.get();
        Capture::current() = calls().back().capture.get();
        symbolic_shape = symbolic_shape_;
    }

    // Ends the call in this thread's state; no session when it is not the one that runs.
    Call take(const nb::list& arguments) const {
        auto& running = calls();
        if (running.empty() || running.back().owner != this ||
            running.back().arguments != arguments.ptr())
            return {};
        Call call = std::move(running.back());
        running.pop_back();
        runtime::context().tracer = call.outer_tracer;
        Capture::current() = call.outer_capture;
        symbolic_shape = call.outer_symbolic_shape;
        return call;
    }

    void end(Call& call) {
        call.rebound.let_go_of(call.session());
        try {
            nb::gil_scoped_release release;
            call.session().finish();
        } catch (...) {
            call.rebound.roll_back(call.session(), function.options.only_plan);
            throw;
        }
        if (function.options.only_plan) call.rebound.roll_back(call.session(), true);
    }

    // What the body has issued is computed as eager mode would have; what cannot be is undone.
    void give_up(Call& call) {
        {
            nb::gil_scoped_release release;
            call.session().abort();
        }
        call.rebound.roll_back(call.session(), function.options.only_plan);
    }

    std::shared_ptr<Direct> direct;
    std::mutex direct_mutex;
    bool symbolic_shape_ = true;

public:
    TraceFunction function;
};

}  // namespace

void rebind(PyObject* tensor, const TensorRef& value) {
    auto& running = calls();
    if (!running.empty() && runtime::context().tracer == &running.back().session())
        running.back().rebound.note(tensor, running.back().session());
    handle_of(tensor).value = value;
    if (Capture* capture = Capture::current()) capture->note_rebound(tensor);
}

void note_grad(nb::handle tensor) {
    auto& running = calls();
    if (!running.empty() && runtime::context().tracer == &running.back().session())
        running.back().rebound.note_grad(tensor.ptr(), running.back().session());
}

namespace {

std::string_view place_name(memory::Place place) {
    switch (place) {
        case memory::Place::kArena: return "arena";
        case memory::Place::kInput: return "input";
        case memory::Place::kConstant: return "constant";
        case memory::Place::kOutput: return "output";
        case memory::Place::kHost: return "host";
    }
    return "";
}

std::string_view use_name(jit::BufferUse use) {
    switch (use) {
        case jit::BufferUse::input: return "input";
        case jit::BufferUse::parameter: return "parameter";
        case jit::BufferUse::constant: return "constant";
        case jit::BufferUse::activation: return "activation";
        case jit::BufferUse::gradient: return "gradient";
        case jit::BufferUse::recomputed: return "recomputed";
        case jit::BufferUse::workspace: return "workspace";
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
    result["host_bytes"] = plan.host_bytes;
    result["transferred_bytes"] = plan.transferred_bytes;
    result["recompute_flops_ratio"] = plan.recompute_flops_ratio;
    nb::list buffers;
    for (const jit::PlannedBuffer& buffer : plan.buffers) {
        nb::dict row;
        row["place"] = std::string(place_name(buffer.place));
        row["offset"] = buffer.offset;
        row["bytes"] = buffer.bytes;
        row["first_step"] = buffer.live.first;
        row["last_step"] = buffer.live.last;
        row["use"] = std::string(use_name(buffer.use));
        nb::list values;
        for (const std::string& value : buffer.values) values.append(value);
        row["values"] = values;
        buffers.append(row);
    }
    result["buffers"] = buffers;
    nb::list steps;
    for (const std::string& step : plan.steps) steps.append(step);
    result["steps"] = steps;
    nb::list curve;
    for (const jit::CurvePoint& point : plan.curve)
        curve.append(nb::make_tuple(point.bytes, point.seconds, point.is_chosen));
    result["curve"] = curve;
    return result;
}

nb::list strings(const std::vector<std::string>& texts) {
    nb::list result;
    for (const std::string& text : texts) result.append(text);
    return result;
}

// Of the version that ran last, with all kernels; waits for them without Python's lock.
std::vector<jit::CompiledSegment> compiled(const PyTrace& self) {
    nb::gil_scoped_release release;
    return self.function.compiled();
}

nb::list kernels_of(PyTrace& self) {
    nb::list result;
    for (const jit::CompiledSegment& segment : compiled(self))
        for (const jit::KernelUse& use : segment.program->kernels()) {
            const codegen::CompiledKernel& kernel = *use.compiled;
            // Compiling again for its text takes a while: nobody waits with the Python lock.
            const auto text = [](const std::function<std::string()>& make) {
                return nb::cpp_function([make] {
                    nb::gil_scoped_release release;
                    return make ? make() : std::string();
                });
            };
            nb::dict row;
            row["backend"] = kernel.backend;
            row["ops"] = strings(use.ops);
            row["where"] = use.where;
            row["bytes"] = use.bytes;
            row["source"] = text(kernel.source);
            row["assembly"] = text(kernel.assembly);
            row["ir"] = codegen::print(kernel.kernel);
            row["compile_ms"] = kernel.compile_ms;
            row["cached"] = kernel.cached;
            result.append(row);
        }
    return result;
}

nb::list plans_of(PyTrace& self) {
    nb::list result;
    for (const jit::CompiledSegment& segment : compiled(self))
        result.append(plan_dict(segment.program->plan()));
    return result;
}

// One row a segment that has run as a program; measures nothing itself.
nb::list profiles_of(PyTrace& self, bool of_all_versions) {
    std::vector<std::shared_ptr<jit::Version>> versions;
    if (of_all_versions) versions = self.function.versions();
    else if (auto latest = self.function.latest()) versions.push_back(std::move(latest));
    std::vector<jit::CompiledSegment> segments;
    for (const auto& version : versions)
        for (jit::CompiledSegment& segment : version->compiled_so_far())
            segments.push_back(std::move(segment));
    nb::list result;
    for (const auto& [recorded, program] : segments) {
        const jit::Profile profile = program->profile();
        nb::list steps;
        for (const jit::StepProfile& step : profile.steps) {
            nb::dict row;
            row["ops"] = strings(step.ops);
            row["where"] = step.where;
            row["step"] = step.step;
            row["backend"] = step.backend;
            row["bytes"] = step.bytes;
            row["seconds"] = step.seconds;
            steps.append(row);
        }
        nb::dict segment;
        segment["runs"] = profile.runs;
        segment["steps"] = steps;
        result.append(segment);
    }
    return result;
}

nb::list graphs_of(PyTrace& self, bool optimized, bool html) {
    nb::list result;
    for (const auto& [recorded, program] : compiled(self)) {
        const jit::Graph& graph = optimized ? program->graph() : recorded->graph;
        result.append(html ? to_html(graph, runtime::cat("segment ", nb::len(result)))
                           : print(graph));
    }
    return result;
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

// Within this block ops run at once and are not recorded.
class Excluded {
public:
    void enter() {
        auto& context = runtime::context();
        saved_ = context.tracer;
        if (auto* session = dynamic_cast<Session*>(saved_)) {
            if (!context.tapes.empty()) session->note_open_backward();
            nb::gil_scoped_release release;  // a segment may run
            session->enter_excluded();
        }
        context.tracer = nullptr;
        entered_ = true;
    }
    // A generator may leave the block after the call, or in another one.
    void exit() {
        if (!entered_) return;
        entered_ = false;
        runtime::Tracer* back = std::exchange(saved_, nullptr);
        if (back && !calls().empty() && &calls().back().session() == back)
            runtime::context().tracer = back;
    }

private:
    runtime::Tracer* saved_ = nullptr;
    bool entered_ = false;
};

}  // namespace

void bind_trace(nb::module_& m) {
    nb::class_<PyTrace>(m, "TraceFunction", nb::type_slots(kTraceSlots))
        .def(nb::init<std::string, bool, bool, bool, bool, int, bool, bool, bool, bool, bool,
                      size_t, size_t, nb::handle, size_t, bool, bool>(),
             nb::arg("name"), nb::arg("symbolic"), nb::arg("capture_as_const"),
             nb::arg("record_only"), nb::arg("profiling"), nb::arg("opt_level"), nb::arg("exact"),
             nb::arg("fuse"), nb::arg("fuse_reduce"), nb::arg("fuse_dimshuffle"),
             nb::arg("symbolic_shape"), nb::arg("max_versions"), nb::arg("memory_limit"),
             nb::arg("sublinear").none(), nb::arg("enough_bytes") = 0, nb::arg("only_plan") = false,
             nb::arg("with_curve") = false)
        .def("begin", &PyTrace::begin, nb::arg("arguments"))
        .def("finish", &PyTrace::finish, nb::arg("arguments"))
        .def("abort", &PyTrace::abort, nb::arg("arguments"))
        .def("begin_capture", &PyTrace::begin_capture, nb::arg("arguments"))
        .def("finish_capture", &PyTrace::finish_capture, nb::arg("arguments"), nb::arg("results"),
             nb::arg("guards"))
        .def("run_direct", &PyTrace::run_direct, nb::arg("arguments"), nb::arg("guards"))
        .def("plans", &plans_of)
        .def("kernels", &kernels_of)
        .def("graphs", &graphs_of, nb::arg("optimized"), nb::arg("html") = false)
        .def("profiles", &profiles_of, nb::arg("of_all_versions") = false)
        .def("explain", [](PyTrace& self) { return self.function.explain(); })
        .def_prop_ro("version_count", [](PyTrace& self) { return self.function.versions().size(); })
        .def_prop_ro("version", [](PyTrace& self) { return self.function.latest(); })
        .def_prop_ro("op_count",
                     [](PyTrace& self) {
        const auto latest = self.function.latest();
        return latest ? latest->record.ops.size() : 0;
    })
        .def_prop_ro("value_count", [](PyTrace& self) {
        const auto latest = self.function.latest();
        return latest ? latest->record.values.size() : 0;
    }).def("clear", &PyTrace::clear);
    nb::class_<Excluded>(m, "Excluded")
        .def(nb::init<>())
        .def("__enter__", &Excluded::enter)
        .def("__exit__", [](Excluded& self, nb::args) { self.exit(); });
    m.def("is_tracing", [] { return runtime::context().tracer != nullptr; });
    // For host values that a body turns into tensors in every call (an optimizer's learning rate):
    // a call without the body asks `getter` for the tensor.
    m.def("note_getter", [](const Handle& tensor, nb::object getter) {
        if (Capture* capture = Capture::current())
            capture->note_getter(tensor.value, std::move(getter));
    });
    m.def("is_capturing", [] { return Capture::current() != nullptr; });
    m.def("symbolic_shape_active", [] { return symbolic_shape && runtime::context().tracer; });
    m.def("note_grad", &note_grad, nb::arg("tensor"),
          "Before its .grad changes: a traced call that does not run gives it back.");
    m.def("open_tapes", [] {
        const auto& tapes = runtime::context().tapes;
        return std::count_if(tapes.begin(), tapes.end(),
                             [](const runtime::TapeRef& tape) { return !tape->is_closed; });
    });
    m.def("mark_kept", [](const Handle& tensor) {
        if (Recorder* recorder = Recorder::running()) recorder->mark_kept(tensor.value);
    }, nb::arg("tensor"));
    m.def("mark_offloaded", [](const Handle& tensor) {
        if (Recorder* recorder = Recorder::running()) recorder->mark_offloaded(tensor.value);
    }, nb::arg("tensor"));
    m.def("begin_recompute", [] {
        if (Session* session = Session::running()) session->begin_recompute();
    });
    m.def("end_recompute", [](nb::list results) {
        if (Session* session = Session::running()) session->end_recompute(values_of(results));
    }, nb::arg("results"));
    m.def("is_recording", [] { return Recorder::running() != nullptr; });
}

}  // namespace megjit::python
