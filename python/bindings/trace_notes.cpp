// What Python code tells the traced call that runs in its thread: lines, names, extents that it
// reads, marks for the planner, and parts that are not recorded.
#include <optional>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "jit/trace/recorder.h"
#include "python/bindings/capture.h"
#include "python/bindings/traced_call.h"
#include "runtime/host/user_line.h"

namespace megjit::python {
namespace {

using jit::Recorder;
using jit::Session;

class UserLine {
public:
    explicit UserLine(std::string where) : where_(std::move(where)) {}
    void enter() { line_.emplace(where_); }
    void exit() { line_.reset(); }

private:
    const std::string where_;
    std::optional<runtime::AtUserLine> line_;
};

class OnDeviceBlock {
public:
    explicit OnDeviceBlock(const std::string& name)
        : device_(name.empty() ? default_host() : device_named(name)) {}
    void enter() { on_.emplace(device_); }
    void exit() { on_.reset(); }

private:
    runtime::Device& device_;
    std::optional<OnDevice> on_;
};

}  // namespace

void bind_trace_notes(nb::module_& m) {
    nb::class_<OnDeviceBlock>(
        m, "OnDevice",
        "Within a block, this thread's default device is another one; \"\": the host, as it is named there if it is that already.")
        .def(nb::init<std::string>(), nb::arg("name"))
        .def("__enter__", &OnDeviceBlock::enter)
        .def("__exit__", [](OnDeviceBlock& self, nb::args) { self.exit(); });
    nb::class_<UserLine>(m, "UserLine",
                         "Within a block, what is recorded is of this line of the user's program.")
        .def(nb::init<std::string>(), nb::arg("where"))
        .def("__enter__", &UserLine::enter)
        .def("__exit__", [](UserLine& self, nb::args) { self.exit(); });
    nb::class_<Excluded>(m, "Excluded")
        .def(nb::init<>())
        .def("__enter__", &Excluded::enter)
        .def("__exit__", [](Excluded& self, nb::args) { self.exit(); });
    m.def(
        "extents_tensor",
        [](const Handle& tensor) {
        const runtime::Shape& shape = tensor.value()->shape();
        runtime::Device& device = tensor.value()->device();
        const std::vector<int32_t> extents(shape.begin(), shape.end());
        TensorRef result =
            new_tensor({.dtype = runtime::DType::i32, .shape = {shape.rank()}}, extents.data(),
                       device.is_host() ? device : runtime::host_device());
        result->is_constant = true;
        if (Recorder* recorder = Recorder::running())
            recorder->note_extents(result, tensor.value());
        return wrap(std::move(result));
    }, nb::sig("def extents_tensor(tensor: Tensor) -> Tensor"),
        "The shape as an int32 Tensor, which a trace takes for a constant and a dump computes from the tensor.");
    m.def("note_extent_read",
          [](const Handle& tensor, int axis) {
        if (Recorder* recorder = Recorder::running())
            recorder->note_extent_read(tensor.value(), axis);
    }, nb::arg("tensor"), nb::arg("axis") = -1,
          "An extent, or (-1) all of them, is taken for a number: a dump keeps to it.");
    m.def(
        "note_caught",
        [](const Handle& tensor, bool is_of_values) {
        if (Recorder* recorder = Recorder::running())
            recorder->note_caught(tensor.value(), is_of_values);
    }, nb::arg("tensor"), nb::arg("is_of_values"),
        "The body has caught the error of a call with this operand, of its extents or of its values, too.");
    m.def(
        "note_given",
        [](nb::sequence given) {
        using Kind = jit::GivenExtent::Kind;
        constexpr Kind kKinds[] = {Kind::derived, Kind::written, Kind::solved};
        Recorder* recorder = Recorder::running();
        if (!recorder || !recorder->function().options.capture_as_const) return;
        std::vector<jit::GivenExtent> extents;
        for (nb::handle each : given) {
            if (nb::isinstance<nb::tuple>(each))
                extents.push_back(recorder->given_by(value_of(nb::object(each[0]).ptr()),
                                                     nb::cast<int>(each[1])));
            else extents.push_back({.kind = kKinds[nb::cast<size_t>(each)]});
        }
        recorder->note_given(std::move(extents));
    }, nb::arg("given"), nb::sig("def note_given(given: Sequence[object]) -> None"),
        "Where the extents in the attributes of the next op come from, by axis: 0 the operands, 1 the program, "
        "2 what the others leave, or a tensor and the number of its element.");
    m.def("note_rows_read", [](const Handle& tensor) {
        if (Recorder* recorder = Recorder::running()) recorder->note_rows_read(tensor.value());
    }, "Rows are named by number: a dump cannot tell which they are among those that a condition selects.");
    m.def("set_gives_extents", [](bool value) {
        if (Recorder* recorder = Recorder::running()) recorder->gives_extents = value;
    }, "Whether what is read of extents from here on is given to an op (note_given).");
    m.def("is_tracing", [] { return runtime::context().tracer != nullptr; });
    m.def("running_trace", []() -> std::optional<std::pair<int, bool>> {
        const Session* session = Session::running();
        if (!session) return std::nullopt;
        const jit::PipelineOptions& options = session->function().options.pipeline;
        return std::pair(options.opt_level, options.exact);
    }, "Of the trace that runs: its opt_level, and whether its numerics are exact. None: none runs.");
    // A body turns some host values into tensors in every call (an optimizer's learning rate): a
    // call without the body asks `getter` for the tensor.
    m.def("note_getter", [](const Handle& tensor, nb::object getter) {
        if (Capture* capture = Capture::current())
            capture->note_getter(tensor.value(), std::move(getter));
        Recorder* recorder = Recorder::running();
        if (recorder && !recorder->function().options.capture_as_const)
            recorder->note_varying(tensor.value());
    });
    m.def("is_capturing", [] { return Capture::current() != nullptr; });
    m.def("records_for_dump", [] {
        const Session* session = Session::running();
        return session && session->function().options.capture_as_const;
    }, "Is it a call of a function that dump could write?");
    // An option may change from call to call: a file keeps it as state.
    m.def("note_option", [](const Handle& tensor, const std::string& name) {
        if (Recorder* recorder = Recorder::running()) {
            recorder->note_name(tensor.value(), name);
            recorder->note_varying(tensor.value());
        }
    }, nb::arg("tensor"), nb::arg("name"));
    m.def("note_name_like",
          [](const Handle& tensor, const Handle& like, const std::string& name) {
        if (Recorder* recorder = Recorder::running())
            if (const std::string& known = recorder->name_of(like.value()->id()); !known.empty())
                recorder->note_name(tensor.value(), known + "." + name);
    }, nb::arg("tensor"), nb::arg("like"), nb::arg("name"),
          "A tensor that belongs to another one, in a recording for dump.");
    m.def(
        "note_variant",
        [](const std::string& what) {
        if (jit::Session* session = jit::Session::running()) session->note_variant(what);
    }, nb::arg("what"),
        "The ops behind this follow from `what`, which is no tensor: another one is recorded as another version.");
    m.def("forget_refusals", [] {
        if (jit::Session* session = jit::Session::running()) session->forget_refusals();
    }, "What a body has caught of reads that the trace refused ends the call no longer.");
    m.def("symbolic_shape_active", [] {
        const Session* session = Session::running();
        return session && session->function().options.symbolic_shape;
    });
    m.def("note_grad", &note_grad, nb::arg("tensor"),
          "Before its .grad changes: a traced call that does not run gives it back.");
    m.def("mark_kept", [](const Handle& tensor) {
        if (Recorder* recorder = Recorder::running()) recorder->mark_kept(tensor.value());
    }, nb::arg("tensor"));
    m.def("mark_offloaded", [](const Handle& tensor) {
        if (Recorder* recorder = Recorder::running()) recorder->mark_offloaded(tensor.value());
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
