#include "runtime/eager/autodiff.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>

#include "jit/step/body_recorder.h"
#include "jit/trace/session.h"
#include "python/bindings/capture.h"
#include "python/bindings/handle.h"
#include "runtime/core/random.h"
#include "runtime/host/error.h"
#include "runtime/ops/known.h"

namespace megjit::python {
namespace {

using runtime::Tape;

// None: a null reference.
Tensors tensors_from(nb::handle list) {
    Tensors result;
    for (nb::handle item : list)
        result.push_back(item.is_none() ? TensorRef{} : value_of(item.ptr()));
    return result;
}

nb::list list_from(const Tensors& tensors) {
    nb::list result;
    for (const TensorRef& tensor : tensors) result.append(tensor ? wrap(tensor) : nb::none());
    return result;
}

// A tape that Python opens and closes, or lets go of. Another thread, or a list that is set aside
// just now, may still name it then: it is closed there too, and goes with the last of them.
class PyTape {
public:
    PyTape() { tape->is_closed = true; }
    ~PyTape() {
        close();
        tape->clear();
    }
    void open(uint64_t group) {
        if (is_open())
            runtime::user_error({.what = "this tape is already open"}, runtime::ErrorKind::runtime);
        drop_closed();
        tape->group = group;
        tape->is_closed = false;
        runtime::context().tapes.push_back(tape);
    }
    void close() {
        tape->is_closed = true;
        drop_closed();
    }
    static void drop_closed() {
        std::erase_if(runtime::context().tapes,
                      [](const runtime::TapeRef& other) { return other->is_closed; });
    }
    bool is_open() const { return !tape->is_closed; }
    // False while this tape is paused, or runs backward.
    bool sees_calls() const {
        return is_open() &&
               std::ranges::find(runtime::context().tapes, tape) != runtime::context().tapes.end();
    }
    nb::list backward(nb::handle ys_list, nb::handle dys_list, nb::handle wanted_list,
                      const std::vector<std::string>& groups) {
        const Tensors ys = values_of(ys_list), wanted = values_of(wanted_list);
        Tensors dys = operands_of(dys_list);
        if (ys.size() != dys.size())
            runtime::user_error({.what = runtime::cat("backward: ", ys.size(), " tensors y but ",
                                                      dys.size(), " gradients dy")});
        for (size_t i = 0; i < ys.size(); ++i)  // a gradient is no constant, nor is x.grad
            if (dys[i]->is_constant) dys[i] = copy_of(dys[i], ys[i]->device());
        jit::Session* session = jit::Session::running();
        if (!session) return list_from(tape->backward(ys, dys, wanted, groups));
        if (auto replayed = session->begin_backward(ys, dys, wanted, groups)) {
            tape->clear();
            return list_from(*replayed);
        }
        Tensors grads;
        try {
            grads = tape->backward(ys, dys, wanted, groups);
        } catch (...) {
            // The body may catch this and go on: replayed calls run this backward op by op.
            session->now().note_open_backward();
            session->now().end_backward({});
            throw;
        }
        session->now().end_backward(grads);
        return list_from(grads);
    }
    std::shared_ptr<Tape> tape = std::make_shared<Tape>();
};

class PausedTapes {
public:
    void enter() { saved_.swap(runtime::context().tapes); }
    void exit() {
        saved_.swap(runtime::context().tapes);
        saved_.clear();
    }

private:
    std::vector<runtime::TapeRef> saved_;
};

nb::list custom_apply(nb::handle input_list, nb::handle output_list, nb::callable backward) {
    if (jit::BodyRecorder* body = jit::BodyRecorder::running()) body->refuse_custom_gradient();
    const Tensors inputs = values_of(input_list);
    Tensors outputs;
    for (const TensorRef& output : operands_of(output_list)) {
        const runtime::WithoutTapes pause;
        const auto& shape = output->shape();
        outputs.push_back(runtime::apply(runtime::ops::reshape(),
                                         {std::vector<int64_t>(shape.begin(), shape.end())},
                                         {&output, 1}, &default_device())[0]);
    }
    const auto call = std::make_shared<nb::callable>(std::move(backward));
    for (const runtime::TapeRef& tape : runtime::context().tapes)
        tape->record_custom(inputs, outputs, [call](std::span<const TensorRef> out_grads) {
            nb::list grads;
            for (const TensorRef& grad : out_grads) grads.append(grad ? wrap(grad) : nb::none());
            return tensors_from((*call)(grads));
        });
    if (jit::Session* session = jit::Session::running();
        session && !runtime::context().tapes.empty())
        session->note_open_backward();
    return list_from(outputs);
}

}  // namespace

void bind_autodiff(nb::module_& m) {
    nb::class_<PyTape>(m, "Tape", "What a GradManager records.")
        .def(nb::init<>())
        .def("watch", [](PyTape& self, const Handle& tensor) { self.tape->watch(tensor.value()); })
        .def("watches",
             [](PyTape& self, const Handle& tensor) { return self.tape->watches(*tensor.value()); })
        .def("tracks",
             [](PyTape& self, const Handle& tensor) { return self.tape->tracks(*tensor.value()); })
        .def("open", [](PyTape& self) { self.open(0); })
        .def("close", &PyTape::close)
        .def("clear", [](PyTape& self) { self.tape->clear(); })
        .def_prop_ro("is_open", &PyTape::is_open)
        .def_prop_ro("sees_calls", &PyTape::sees_calls)
        .def("backward", &PyTape::backward, nb::arg("ys"), nb::arg("dys"), nb::arg("wanted"),
             nb::arg("groups"))
        .def_static("open_group", [](nb::list tapes) {
        static std::atomic<uint64_t> next{1};
        const uint64_t group = next++;
        for (nb::handle tape : tapes)
            if (!nb::isinstance<PyTape>(tape))
                runtime::user_error({.what = "open_group takes Tapes"}, runtime::ErrorKind::type);
        for (nb::handle tape : tapes) nb::cast<PyTape&>(tape).open(group);
    });
    nb::class_<PausedTapes>(m, "pause_tapes", "Within this block no tape records.")
        .def(nb::init<>())
        .def("__enter__", &PausedTapes::enter)
        .def("__exit__", [](PausedTapes& self, nb::args) { self.exit(); });
    m.def("tapes_that_track", [](const Handle& tensor) {
        if (jit::BodyRecorder* body = jit::BodyRecorder::running())
            body->refuse_rows_of(*tensor.value());
        return std::ranges::count_if(runtime::context().tapes, [&](const runtime::TapeRef& tape) {
            return !tape->is_closed && tape->tracks(*tensor.value());
        });
    }, nb::arg("tensor"), "How many tapes of this thread ask for the gradient of the tensor.");
    m.def("records_gradients", [] { return !runtime::context().tapes.empty(); },
          "Whether a tape of this thread is open.");
    m.def("custom_apply", &custom_apply, nb::arg("inputs"), nb::arg("outputs"),
          nb::arg("backward"));

    using runtime::RandomState;
    nb::class_<RandomState>(m, "RandomState",
                            "Counter-based random generator: a seed, and how many keys were drawn.")
        .def("__init__",
             [](RandomState* self, uint64_t seed) {
        if (Capture* capture = Capture::current())
            capture->note_unrepeatable("the body makes a random generator");
        new (self) RandomState(seed);
    }, nb::arg("seed") = 0)
        .def("key",
             [](RandomState& self, nb::handle device) {
        return wrap(self.key(device.is_none() ? &default_device()
                                              : &device_named(nb::cast<std::string>(device))));
    }, nb::arg("device").none() = nb::none(),
             "int32[4] Tensor on the device; the counter goes up by one.")
        .def("seed",
             [](RandomState& self, uint64_t seed) {
        if (Capture* capture = Capture::current())
            capture->note_unrepeatable("the body seeds a random generator");
        self.seed(seed);
    })
        .def("restore",
             [](RandomState& state, uint64_t seed, uint64_t counter) {
        state = RandomState(seed, counter);
    }, nb::arg("seed"), nb::arg("counter"), "Go on where another one was.")
        .def_prop_ro("current_seed", &RandomState::current_seed)
        .def_prop_ro("counter", &RandomState::counter);
    m.def("default_random_state", [] { return &runtime::default_random_state(); },
          nb::rv_policy::reference);
}

}  // namespace megjit::python
