// The Tensor base class: slots that go straight to dispatch, and what Python needs to build the
// rest on.
#include <algorithm>
#include <cstring>

#include "python/bindings/capture.h"
#include "python/bindings/handle.h"
#include "runtime/host/error.h"

namespace megjit::python {
namespace {

// ---- operators

const runtime::OpDef& op_named(std::string_view name) { return runtime::find_op(name); }

// Casts an operand of `/` and `**` as autocasting says; null until somebody autocasts. It lives as
// long as the process.
PyObject* to_high = nullptr;

bool has_integers(PyObject* const* args, size_t count) {
    return std::any_of(args, args + count, [](PyObject* arg) {
        return is_tensor(arg) && runtime::info(handle_of(arg).value()->dtype()).category ==
                                     runtime::Category::integer;
    });
}

// `of_integers`: the op that replaces it where a tensor has an integer dtype.
PyObject* apply_slot(const runtime::OpDef& usual, PyObject* const* args, size_t count,
                     const runtime::OpDef* of_integers = nullptr) {
    return guard([&]() -> PyObject* {
        const runtime::OpDef& op = of_integers && has_integers(args, count) ? *of_integers : usual;
        for (size_t i = 0; i < count; ++i)
            if (!is_tensor(args[i]) &&
                (args[i] == Py_None || PyUnicode_Check(args[i]) || PyDict_Check(args[i]))) {
                if (args[i] == Py_None)
                    runtime::user_error({.what = "the operand is None and is not supported."},
                                        runtime::ErrorKind::type);
                Py_RETURN_NOTIMPLEMENTED;
            }
        static const runtime::Attrs kNoAttrs;
        if (PyObject* result = followed(op, kNoAttrs, args, count)) return result;
        TensorRef two[2];
        const std::span<TensorRef> operands(two, count);
        operands_from(args, op, operands);
        return wrap_new(std::move(runtime::apply(op, kNoAttrs, operands, &default_device())[0]));
    });
}

#define MEGJIT_BINARY_SLOT(slot, name) \
    PyObject* slot(PyObject* a, PyObject* b) { \
        static const runtime::OpDef& op = op_named(name); \
        PyObject* args[2] = {a, b}; \
        return apply_slot(op, args, 2); \
    }
MEGJIT_BINARY_SLOT(slot_add, "add")
MEGJIT_BINARY_SLOT(slot_sub, "sub")
MEGJIT_BINARY_SLOT(slot_mul, "mul")
MEGJIT_BINARY_SLOT(slot_plain_div, "true_div")
MEGJIT_BINARY_SLOT(slot_floor_div, "floor_div")
MEGJIT_BINARY_SLOT(slot_mod, "mod")
MEGJIT_BINARY_SLOT(slot_lshift, "left_shift")
MEGJIT_BINARY_SLOT(slot_rshift, "right_shift")
#undef MEGJIT_BINARY_SLOT

// These compute logic on bools and bits on integers.
#define MEGJIT_BIT_SLOT(slot, logic, bits) \
    PyObject* slot(PyObject* a, PyObject* b) { \
        static const runtime::OpDef &usual = op_named(logic), &of_integers = op_named(bits); \
        PyObject* args[2] = {a, b}; \
        return apply_slot(usual, args, 2, &of_integers); \
    }
MEGJIT_BIT_SLOT(slot_and, "logical_and", "bit_and")
MEGJIT_BIT_SLOT(slot_or, "logical_or", "bit_or")
MEGJIT_BIT_SLOT(slot_xor, "logical_xor", "bit_xor")
#undef MEGJIT_BIT_SLOT

PyObject* slot_plain_pow(PyObject* a, PyObject* b) {
    PyObject* args[2] = {a, b};
    static const runtime::OpDef &pow = op_named("pow"), &square = op_named("square");
    return is_square(pow, args, 2) ? apply_slot(square, args, 1) : apply_slot(pow, args, 2);
}

template <PyObject* (*plain)(PyObject*, PyObject*)>
PyObject* slot_in_high(PyObject* a, PyObject* b) {
    if (!to_high) return plain(a, b);
    const nb::object x = nb::steal(PyObject_CallFunctionObjArgs(to_high, a, nullptr));
    if (!x.is_valid()) return nullptr;
    const nb::object y = nb::steal(PyObject_CallFunctionObjArgs(to_high, b, nullptr));
    return y.is_valid() ? plain(x.ptr(), y.ptr()) : nullptr;
}
constexpr auto slot_div = slot_in_high<slot_plain_div>;
constexpr auto slot_pow2 = slot_in_high<slot_plain_pow>;
PyObject* slot_pow(PyObject* a, PyObject* b, PyObject*) { return slot_pow2(a, b); }

#define MEGJIT_UNARY_SLOT(slot, name) \
    PyObject* slot(PyObject* a) { \
        static const runtime::OpDef& op = op_named(name); \
        return apply_slot(op, &a, 1); \
    }
MEGJIT_UNARY_SLOT(slot_neg, "neg")
MEGJIT_UNARY_SLOT(slot_abs, "abs")
#undef MEGJIT_UNARY_SLOT

PyObject* slot_invert(PyObject* a) {
    static const runtime::OpDef &logic = op_named("logical_not"), &bits = op_named("bit_not");
    return apply_slot(logic, &a, 1, &bits);
}

// x += y rebinds the handle to the new value; no other handle sees it.
template <PyObject* (*binary)(PyObject*, PyObject*)>
PyObject* in_place(PyObject* a, PyObject* b) {
    PyObject* result = binary(a, b);
    if (!result || result == Py_NotImplemented) return result;
    const nb::object made = nb::steal(result);
    return guard([&] {
        rebind(a, handle_of(result).value());
        return Py_NewRef(a);
    });
}
PyObject* in_place_pow(PyObject* a, PyObject* b, PyObject*) { return in_place<slot_pow2>(a, b); }

PyObject* slot_compare(PyObject* a, PyObject* b, int how) {
    static const runtime::OpDef* ops[6] = {&op_named("less"),    &op_named("less_equal"),
                                           &op_named("equal"),   &op_named("not_equal"),
                                           &op_named("greater"), &op_named("greater_equal")};
    PyObject* args[2] = {a, b};
    return apply_slot(*ops[how], args, 2);
}

Py_hash_t slot_hash(PyObject* object) {
    const auto bits = reinterpret_cast<uintptr_t>(object);
    return static_cast<Py_hash_t>((bits >> 4) | (bits << (8 * sizeof bits - 4)));
}

PyType_Slot kSlots[] = {
    {Py_nb_add, reinterpret_cast<void*>(slot_add)},
    {Py_nb_subtract, reinterpret_cast<void*>(slot_sub)},
    {Py_nb_multiply, reinterpret_cast<void*>(slot_mul)},
    {Py_nb_true_divide, reinterpret_cast<void*>(slot_div)},
    {Py_nb_floor_divide, reinterpret_cast<void*>(slot_floor_div)},
    {Py_nb_remainder, reinterpret_cast<void*>(slot_mod)},
    {Py_nb_power, reinterpret_cast<void*>(slot_pow)},
    {Py_nb_and, reinterpret_cast<void*>(slot_and)},
    {Py_nb_or, reinterpret_cast<void*>(slot_or)},
    {Py_nb_xor, reinterpret_cast<void*>(slot_xor)},
    {Py_nb_lshift, reinterpret_cast<void*>(slot_lshift)},
    {Py_nb_rshift, reinterpret_cast<void*>(slot_rshift)},
    {Py_nb_negative, reinterpret_cast<void*>(slot_neg)},
    {Py_nb_absolute, reinterpret_cast<void*>(slot_abs)},
    {Py_nb_invert, reinterpret_cast<void*>(slot_invert)},
    {Py_nb_inplace_add, reinterpret_cast<void*>(in_place<slot_add>)},
    {Py_nb_inplace_subtract, reinterpret_cast<void*>(in_place<slot_sub>)},
    {Py_nb_inplace_multiply, reinterpret_cast<void*>(in_place<slot_mul>)},
    {Py_nb_inplace_true_divide, reinterpret_cast<void*>(in_place<slot_div>)},
    {Py_nb_inplace_floor_divide, reinterpret_cast<void*>(in_place<slot_floor_div>)},
    {Py_nb_inplace_remainder, reinterpret_cast<void*>(in_place<slot_mod>)},
    {Py_nb_inplace_power, reinterpret_cast<void*>(in_place_pow)},
    {Py_nb_inplace_and, reinterpret_cast<void*>(in_place<slot_and>)},
    {Py_nb_inplace_or, reinterpret_cast<void*>(in_place<slot_or>)},
    {Py_nb_inplace_xor, reinterpret_cast<void*>(in_place<slot_xor>)},
    {Py_nb_inplace_lshift, reinterpret_cast<void*>(in_place<slot_lshift>)},
    {Py_nb_inplace_rshift, reinterpret_cast<void*>(in_place<slot_rshift>)},
    {Py_tp_richcompare, reinterpret_cast<void*>(slot_compare)},
    {Py_tp_hash, reinterpret_cast<void*>(slot_hash)},
    {Py_tp_dealloc, reinterpret_cast<void*>(slot_dealloc)},
    {0, nullptr},
};

// ---- construction

TensorRef reshaped_to_itself(const TensorRef& value, runtime::Device& place) {
    static const runtime::OpDef& reshape = op_named("reshape");
    const auto& shape = value->shape();
    return runtime::apply(reshape, {std::vector<int64_t>(shape.begin(), shape.end())}, {&value, 1},
                          &place)[0];
}

// channels_last is for shapes with spatial axes: other tensors stay row-major.
TensorRef in_layout(TensorRef value, runtime::Layout layout) {
    const Type& type = value->type();
    const bool has_spatial_axes = type.rank() >= 3 && type.rank() <= 5;
    if (layout == runtime::Layout::channels_last && !has_spatial_axes)
        layout = runtime::Layout::row_major;
    if (type.layout == layout) return copy_of(value, place_of(*value));
    static const runtime::OpDef& relayout = op_named("relayout");
    return runtime::apply(relayout, {to_string(layout)}, {&value, 1}, &place_of(*value))[0];
}

bool are_tensors(const nb::tuple& values, bool bare) {
    for (size_t i = 0; i < nb::len(values); ++i) {
        PyObject* value = PyTuple_GetItem(values.ptr(), static_cast<Py_ssize_t>(i));
        if (!(bare ? is_bare_tensor(value) : is_tensor(value))) return false;
    }
    return true;
}

TensorRef construct(nb::handle data, nb::handle dtype, nb::handle device, bool is_const) {
    runtime::Device& place =
        device.is_none() ? default_device() : device_named(nb::cast<std::string>(device));
    if (is_tensor(data.ptr())) {
        const TensorRef value = operand_of(data.ptr());
        if (!dtype.is_none() && dtype_from(dtype) != value->dtype())
            runtime::user_error({.what = runtime::cat(
                                     "Tensor: a ", info(value->dtype()).name,
                                     " tensor was given with dtype=", info(dtype_from(dtype)).name),
                                 .fix = "convert with astype"},
                                runtime::ErrorKind::runtime);
        if (!device.is_none() && !value->is_constant && &place != &value->device())
            runtime::user_error(
                {.what = runtime::cat("Tensor: a tensor on ", value->device().name(),
                                      " was given with device=", place.name()),
                 .fix = "move it with .to(device)"},
                runtime::ErrorKind::runtime);
        return copy_of(value, place);
    }
    if (dtype.is_none()) return tensor_from(data, is_const, place);
    const DType wanted = dtype_from(dtype);
    return cast_now(tensor_from(data, is_const, place, wanted), wanted);
}

nb::object item_of(TensorRef given) {
    if (given->type().numel() != 1)
        runtime::user_error({.what = runtime::cat("item() needs one element, this tensor is ",
                                                  to_string(given->type())),
                             .fix = "index it, or use tolist()"});
    const TensorRef tensor = host_row_major(given);
    switch (info(tensor->dtype()).category) {
        case runtime::Category::boolean: return nb::bool_(tensor->as<uint8_t>()[0] != 0);
        case runtime::Category::integer: return nb::int_(runtime::item_as_integer(*tensor));
        case runtime::Category::floating: return nb::float_(runtime::item_as_double(*tensor));
        case runtime::Category::complex: break;
    }
    return to_numpy(tensor).attr("item")();
}

nb::tuple shape_of(runtime::Shape shape) {
    nb::object result = nb::steal(PyTuple_New(shape.rank()));
    for (int axis = 0; axis < shape.rank(); ++axis)
        PyTuple_SetItem(result.ptr(), axis, PyLong_FromLongLong(shape[axis]));
    return nb::cast<nb::tuple>(result);
}

// Casts all arguments to the dtype that promotion gives them together.
nb::object convert_inputs(nb::args args) {
    static const runtime::OpDef& like = op_named("add");
    std::vector<PyObject*> raw;
    for (nb::handle arg : args) raw.push_back(arg.ptr());
    Tensors operands(raw.size());
    operands_from(raw.data(), like, operands);
    if (operands.empty()) return nb::list();
    DType dtype = operands[0]->dtype();
    for (const TensorRef& operand : operands) dtype = runtime::promote(dtype, operand->dtype());
    nb::list result;
    static const runtime::OpDef& cast = op_named("cast");
    for (const TensorRef& operand : operands) {
        if (operand->dtype() == dtype) result.append(wrap(operand));
        else if (operand->is_constant) result.append(wrap(cast_now(operand, dtype)));
        else
            result.append(wrap(runtime::apply(cast, {std::string(info(dtype).name)}, {&operand, 1},
                                              &default_device())[0]));
    }
    return result;
}

// Makes an ordinary tensor of the same value, which may be written to.
TensorRef variable_of(const TensorRef& constant) { return copy_of(constant, place_of(*constant)); }

}  // namespace

TensorRef copy_of(const TensorRef& value, runtime::Device& place) {
    const auto& here = runtime::context();
    if (here.tracer || !here.tapes.empty() || value->trace.is_edited())
        return reshaped_to_itself(value, place);
    const TensorRef there = value->is_constant ? runtime::copied_to(value, place) : value;
    return runtime::make_tensor(there->type(), there->storage());
}

runtime::Device& place_of(const runtime::Tensor& value) {
    const bool is_nowhere = value.is_constant && value.device().is_host();
    return is_nowhere && !default_device().is_host() ? default_device() : value.device();
}

void bind_tensor(nb::module_& m) {
    nb::class_<Handle>(m, "Tensor", nb::type_slots(kSlots), nb::dynamic_attr(),
                       nb::is_weak_referenceable(),
                       "Base of megengine.Tensor: a handle to an immutable value.")
        .def("__init__",
             [](Handle* self, nb::handle data, nb::handle dtype, nb::handle device, bool is_const,
                bool, nb::handle,
                nb::handle) { new (self) Handle{construct(data, dtype, device, is_const)}; },
             nb::arg("data"), nb::arg("dtype").none() = nb::none(),
             nb::arg("device").none() = nb::none(), nb::arg("is_const") = false,
             nb::arg("no_cache") = false, nb::arg("name").none() = nb::none(),
             nb::arg("format").none() = "default")
        .def_prop_ro("dtype", [](const Handle& self) { return numpy_dtype(self.value()->dtype()); },
                     nb::sig("def dtype(self) -> numpy.dtype"))
        .def_prop_ro(
            "_dtype_name",
            [](const Handle& self) { return std::string(info(self.value()->dtype()).name); })
        .def_prop_ro("ndim", [](const Handle& self) { return self.value()->shape().rank(); })
        .def_prop_ro("_tuple_shape",
                     [](const Handle& self) { return shape_of(self.value()->shape()); })
        .def_prop_ro("_device_name",
                     [](const Handle& self) { return std::string(place_of(*self.value()).name()); })
        .def("numpy", [](nb::handle_t<Handle> self) { return to_numpy(value_to_read(self.ptr())); },
             nb::sig("def numpy(self) -> numpy.ndarray"),
             "The value as a NumPy array of the same dtype; a copy.")
        .def("_item", [](nb::handle_t<Handle> self) { return item_of(value_to_read(self.ptr())); })
        .def("detach",
             [](nb::handle_t<Handle> self) {
        // A new value of the same bytes: no tape knows it.
        const runtime::WithoutTapes pause;
        const TensorRef value = operand_of(self.ptr());
        return wrap(reshaped_to_itself(value, place_of(*value)));
    }, nb::sig("def detach(self) -> Tensor"), "The same value, cut off from gradients.")
        .def("_reset",
             [](nb::handle_t<Handle> self, nb::handle_t<Handle> other) {
        const TensorRef value = value_of(other.ptr());
        const jit::Session* session = jit::Session::running();
        // What a body gives to a tensor is a value of the step, also where it computed nothing.
        const bool is_given = session && !session->is_placeholder(*value);
        if (Capture* capture = is_given ? Capture::current() : nullptr)
            capture->note_operand(other.ptr());
        rebind(self.ptr(),
               is_given || value->is_constant ? copy_of(value, place_of(*value)) : value);
    }, nb::arg("other"))
        .def("_hold",
             [](nb::handle_t<Handle> self, nb::handle_t<Handle> other) {
        if (Capture* capture = Capture::current()) capture->note_held(other.ptr());
        rebind(self.ptr(), value_of(other.ptr()));
    }, nb::arg("other"), "The very value of the other one, attached where that is.")
        .def("_become_variable",
             [](nb::handle_t<Handle> self) {
        const TensorRef value = handle_of(self.ptr()).value();
        if (value->is_constant) rebind(self.ptr(), variable_of(value));
    }, "A constant becomes an ordinary tensor of its value.")
        .def("_assign",
             [](nb::handle_t<Handle> self, nb::handle_t<Handle> other) {
        const TensorRef value = operand_of(other.ptr());
        rebind(self.ptr(), copy_of(value, place_of(*handle_of(self.ptr()).value())));
    }, nb::arg("other"),
             "x[...] = other: holds the same value, and is another tensor to whoever attaches one.")
        .def(
            "to_mkldnn",
            [](nb::handle_t<Handle> self) {
        return wrap(in_layout(operand_of(self.ptr()), runtime::Layout::channels_last));
    }, nb::sig("def to_mkldnn(self) -> Tensor"),
            "The same value in the order of memory that oneDNN's kernels read best: channels-last for floating dtypes with 3 to 5 axes.\n"
            "Functions that do not know the order work on a copy; shape and values are the same in any case.")
        .def("to_dense",
             [](nb::handle_t<Handle> self) {
        return wrap(in_layout(operand_of(self.ptr()), runtime::Layout::row_major));
    }, nb::sig("def to_dense(self) -> Tensor"), "The same value in row-major order.")
        .def_prop_ro("is_mkldnn",
                     [](const Handle& self) {
        return self.value()->type().layout != runtime::Layout::row_major;
    }, "Whether the value lies in an order of oneDNN's, as to_mkldnn() makes it.")
        .def("_value_id", [](const Handle& self) { return self.value()->id(); })
        .def("_has_data", [](const Handle& self) { return self.value()->has_data(); })
        .def("_is_readable", [](const Handle& self) { return runtime::is_readable(*self.value()); },
             "False for a placeholder whose value a trace would refuse to read.")
        .def_prop_ro("_layout",
                     [](const Handle& self) { return to_string(self.value()->type().layout); },
                     "Order of memory: row_major, channels_last, or one of the backend's own.")
        .def_prop_ro("_is_packed", [](const Handle& self) {
        return runtime::is_packed(self.value()->type().layout);
    });

    m.def("check_number",
          [](nb::handle number, nb::handle dtype) { check_number(number, dtype_from(dtype)); },
          nb::arg("number"), nb::arg("dtype"),
          nb::sig("def check_number(number: float, dtype: object) -> None"),
          "OverflowError for a number that an integer dtype cannot hold.");
    m.def("_set_tensor_class", [](nb::handle type) { set_tensor_class(type); });
    m.def("_set_operator_cast", [](nb::handle cast) {
        if (!to_high) to_high = Py_NewRef(cast.ptr());
    });
    m.def("apply_const",
          [](nb::handle value, nb::handle dtype) {
        runtime::Device& place =
            default_device().is_host() ? default_device() : runtime::host_device();
        if (dtype.is_none()) return wrap(tensor_from_numpy(value, true, place));
        const DType wanted = dtype_from(dtype);
        return wrap(cast_now(tensor_from_numpy(value, true, place, wanted), wanted));
    }, nb::arg("value"), nb::arg("dtype").none() = nb::none(),
          nb::sig("def apply_const(value: object, dtype: object = None) -> Tensor"),
          "A Tensor that a trace bakes in: its value must be equal in every call.");
    m.def(
        "zeros",
        [](const std::vector<int64_t>& shape, nb::handle dtype, const std::string& device) {
        const runtime::Type type{.dtype = dtype_from(dtype), .shape = runtime::Shape(shape)};
        runtime::Device& place = device_named(device);
        if (place.is_host() && type.bytes() >= runtime::LiveBlocks::kLeastBytes)
            return wrap(runtime::make_tensor(type, runtime::Storage::zeros(place, type)));
        return wrap(new_tensor(type, std::vector<std::byte>(type.bytes()).data(), place));
    }, nb::arg("shape"), nb::arg("dtype"), nb::arg("device"),
        nb::sig("def zeros(shape: tuple[int, ...], dtype: object, device: str) -> Tensor"),
        "Zeros; on the host large ones take memory from the first time that somebody reads them.");
    m.def(
        "are_tensors", &are_tensors, nb::arg("values"), nb::arg("bare") = false,
        nb::sig("def are_tensors(values: tuple[object, ...], bare: bool = False) -> bool"),
        "Whether all are Tensors; bare: and no more, of no class and without attributes of their own.");
    m.def("convert_inputs", &convert_inputs,
          nb::sig("def convert_inputs(*args: object) -> list[Tensor]"),
          "The arguments as Tensors of their promoted dtype.");
    m.def("promote_dtype", [](nb::handle a, nb::handle b) {
        return numpy_dtype(runtime::promote(dtype_from(a), dtype_from(b)));
    });
}

}  // namespace megjit::python
