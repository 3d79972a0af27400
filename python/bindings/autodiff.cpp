#include "runtime/autodiff.h"

#include <algorithm>
#include <atomic>

#include "jit/session.h"
#include "python/bindings/capture.h"
#include "python/bindings/handle.h"
#include "runtime/error.h"
#include "runtime/random.h"

namespace megjit::python {
namespace {

using runtime::Tape;

jit::Session* running_session() { return dynamic_cast<jit::Session*>(runtime::context().tracer); }

Tensors tensors_from(nb::handle list) {
    Tensors result;
    for (nb::handle item : list) result.push_back(is_tensor(item.ptr()) ? handle_of(item.ptr()).value : TensorRef{});
    return result;
}

nb::list list_from(const Tensors& tensors) {
    nb::list result;
    for (const TensorRef& tensor : tensors) result.append(tensor ? wrap(tensor) : nb::none());
    return result;
}

// A tape that Python opens and closes. It leaves the context when it is destroyed.
class PyTape {
public:
    ~PyTape() { close(); }
    void open(uint64_t group) {
        if (is_open()) runtime::user_error({.what = "this tape is already open"}, runtime::ErrorKind::runtime);
        tape.group = group;
        runtime::context().tapes.push_back(&tape);
    }
    void close() {
        auto& tapes = runtime::context().tapes;
        tapes.erase(std::remove(tapes.begin(), tapes.end(), &tape), tapes.end());
    }
    bool is_open() const {
        const auto& tapes = runtime::context().tapes;
        return std::find(tapes.begin(), tapes.end(), &tape) != tapes.end();
    }
    nb::list backward(nb::handle ys_list, nb::handle dys_list, nb::handle wanted_list) {
        const Tensors ys = tensors_from(ys_list), dys = tensors_from(dys_list), wanted = tensors_from(wanted_list);
        jit::Session* session = running_session();
        if (!session) return list_from(tape.backward(ys, dys, wanted));
        if (auto replayed = session->replay_backward(ys, dys, wanted)) {
            tape.clear();
            return list_from(*replayed);
        }
        if (session->is_recording()) session->begin_backward(ys, dys, wanted);
        const Tensors grads = tape.backward(ys, dys, wanted);
        session->end_backward(grads);
        return list_from(grads);
    }
    Tape tape;
};

class PausedTapes {
public:
    void enter() { saved_.swap(runtime::context().tapes); }
    void exit() { saved_.swap(runtime::context().tapes); saved_.clear(); }

private:
    std::vector<Tape*> saved_;
};

nb::list custom_apply(nb::handle input_list, nb::handle output_list, nb::callable backward) {
    const Tensors inputs = tensors_from(input_list);
    static const runtime::OpDef& reshape = runtime::find_op("reshape");
    Tensors outputs;
    PausedTapes pause;
    pause.enter();
    for (const TensorRef& output : tensors_from(output_list)) {
        const auto& shape = output->shape();
        outputs.push_back(runtime::apply(reshape, {std::vector<int64_t>(shape.begin(), shape.end())}, {&output, 1})[0]);
    }
    pause.exit();
    const auto call = std::make_shared<nb::callable>(std::move(backward));
    for (Tape* tape : runtime::context().tapes)
        tape->record_custom(inputs, outputs, [call](std::span<const TensorRef> out_grads) {
            nb::list grads;
            for (const TensorRef& grad : out_grads) grads.append(grad ? wrap(grad) : nb::none());
            return tensors_from((*call)(grads));
        });
    if (jit::Session* session = running_session(); session && !runtime::context().tapes.empty()) session->note_open_backward();
    return list_from(outputs);
}

}  // namespace

void bind_autodiff(nb::module_& m) {
    nb::class_<PyTape>(m, "Tape", "What a GradManager records.")
        .def(nb::init<>())
        .def("watch", [](PyTape& self, const Handle& tensor) { self.tape.watch(tensor.value); })
        .def("watches", [](PyTape& self, const Handle& tensor) { return self.tape.watches(*tensor.value); })
        .def("open", [](PyTape& self) { self.open(0); })
        .def("close", &PyTape::close)
        .def("clear", [](PyTape& self) { self.tape.clear(); })
        .def_prop_ro("is_open", &PyTape::is_open)
        .def("backward", &PyTape::backward, nb::arg("ys"), nb::arg("dys"), nb::arg("wanted"))
        .def_static("open_group", [](nb::list tapes) {
            static std::atomic<uint64_t> next{1};
            const uint64_t group = next++;
            for (nb::handle tape : tapes) nb::cast<PyTape&>(tape).open(group);
        });
    nb::class_<PausedTapes>(m, "pause_tapes", "Within this block no tape records.")
        .def(nb::init<>())
        .def("__enter__", &PausedTapes::enter)
        .def("__exit__", [](PausedTapes& self, nb::args) { self.exit(); });
    m.def("custom_apply", &custom_apply, nb::arg("inputs"), nb::arg("outputs"), nb::arg("backward"));

    using runtime::RandomState;
    nb::class_<RandomState>(m, "RandomState", "Counter-based random stream: a seed, and how many keys were drawn.")
        .def("__init__", [](RandomState* self, uint64_t seed) {
            if (Capture* capture = Capture::current()) capture->note_unrepeatable("the body makes a random stream");
            new (self) RandomState(seed);
        }, nb::arg("seed") = 0)
        .def("key", [](RandomState& self) { return wrap(self.key()); }, "int32[4] Tensor; the counter goes up by one.")
        .def("seed", [](RandomState& self, uint64_t seed) {
            if (Capture* capture = Capture::current()) capture->note_unrepeatable("the body seeds a random stream");
            self.seed(seed);
        })
        .def_prop_ro("current_seed", &RandomState::current_seed)
        .def_prop_ro("counter", &RandomState::counter);
    m.def("default_random_state", [] { return &runtime::default_random_state(); }, nb::rv_policy::reference);
}

}  // namespace megjit::python
