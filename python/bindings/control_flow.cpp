// functional.scan, while_loop and cond in a trace: bodies that Python runs once, on placeholders.
#include <memory>

#include "jit/plan/ops/control_flow.h"
#include "python/bindings/handle.h"
#include "runtime/core/random.h"
#include "runtime/eager/at_place.h"

namespace megjit::python {
namespace {

using jit::BodyRecorder;

nb::list list_of(const Tensors& tensors) {
    nb::list result;
    for (const TensorRef& tensor : tensors) result.append(wrap(tensor));
    return result;
}

// Lists what the body has read from outside so far. Random keys that it drew are the next again.
nb::list read_by(const BodyRecorder& body) {
    nb::list result;
    for (const TensorRef& tensor : body.captured())
        if (runtime::RandomState* state = runtime::state_of(*tensor))
            state->take_back(static_cast<uint64_t>(tensor->type().numel() / 4));
        else result.append(wrap(tensor));
    return result;
}

}  // namespace

void bind_control_flow(nb::module_& m) {
    nb::class_<BodyRecorder>(
        m, "BodyRecorder",
        "Records the operations of this thread into a graph from its making until finish().")
        .def(nb::init<std::string>(), nb::arg("what"))
        .def("input",
             [](BodyRecorder& self, const Handle& like) {
        return wrap(self.add_input(like.value()->type(), place_of(*like.value())));
    }, nb::arg("like"), nb::sig("def input(self, like: Tensor) -> Tensor"),
             "A placeholder of its type.")
        .def("element",
             [](BodyRecorder& self, const Handle& of) {
        Type type = of.value()->type();
        type.shape = runtime::Shape(type.shape.extents().subspan(1));
        return wrap(self.add_input(type, place_of(*of.value())));
    }, nb::arg("of"), nb::sig("def element(self, of: Tensor) -> Tensor"),
             "A placeholder of the type of one element along its first axis.")
        .def("finish",
             [](BodyRecorder& self, nb::list outputs) { self.finish(operands_of(outputs)); },
             nb::arg("outputs"), nb::sig("def finish(self, outputs: list[Tensor]) -> None"))
        .def(
            "read", &read_by, nb::sig("def read(self) -> list[Tensor]"),
            "The tensors from outside that the function has read, if it is not to run: random keys that it drew are given back.")
        .def("abort", &BodyRecorder::leave, "After an error: who traced before goes on.");
    m.def("user_line", &user_location,
          "\"train.py:41 in forward\": the innermost line outside of this package.");
    m.def(
        "scan",
        [](const BodyRecorder& body, nb::list carry, nb::list slices, int64_t trips, bool reverse) {
        const runtime::AtPlace place(default_device());
        return list_of(jit::scan(body, operands_of(carry), operands_of(slices), trips, reverse));
    }, nb::arg("body"), nb::arg("carry"), nb::arg("slices"), nb::arg("trips"), nb::arg("reverse"),
        nb::sig(
            "def scan(body: BodyRecorder, carry: list[Tensor], slices: list[Tensor], trips: int, reverse: bool) -> list[Tensor]"));
    m.def(
        "while_loop",
        [](const BodyRecorder& condition, const BodyRecorder& body, nb::list carry) {
        const runtime::AtPlace place(default_device());
        return list_of(jit::while_loop(condition, body, operands_of(carry)));
    }, nb::arg("condition"), nb::arg("body"), nb::arg("carry"),
        nb::sig(
            "def while_loop(condition: BodyRecorder, body: BodyRecorder, carry: list[Tensor]) -> list[Tensor]"));
    m.def(
        "cond",
        [](nb::handle_t<Handle> predicate, const BodyRecorder& if_true,
           const BodyRecorder& if_false) {
        const runtime::AtPlace place(default_device());
        return list_of(jit::cond(operand_of(predicate.ptr()), if_true, if_false));
    },
        nb::arg("predicate"), nb::arg("if_true"), nb::arg("if_false"),
        nb::sig(
            "def cond(predicate: Tensor, if_true: BodyRecorder, if_false: BodyRecorder) -> list[Tensor]"));
}

}  // namespace megjit::python
