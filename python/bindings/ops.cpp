// `ops.<name>(*tensors, **attributes)` for every registered op: plain C functions with fast calls.
#include <nanobind/stl/vector.h>

#include <deque>

#include "python/bindings/capture.h"
#include "python/bindings/handle.h"
#include "runtime/host/error.h"
#include "runtime/ops/known.h"

namespace megjit::python {
namespace {

using runtime::Attr;
using runtime::AttrKind;
using runtime::Attrs;
using runtime::AttrSpec;
using runtime::OpDef;

int64_t integer_from(PyObject* object) {
    if (is_tensor(object)) {
        TensorRef tensor = value_to_read(object);
        if (tensor->type().numel() != 1)
            runtime::user_error(
                {.what = runtime::cat("an attribute needs one integer, this tensor is ",
                                      to_string(tensor->type()))});
        tensor = host_row_major(tensor);
        return info(tensor->dtype()).category == runtime::Category::integer
                   ? runtime::item_as_integer(*tensor)
                   : static_cast<int64_t>(runtime::item_as_double(*tensor));
    }
    PyObject* index = PyNumber_Index(object);
    if (!index) throw nb::python_error();
    const int64_t value = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
}

bool is_text(PyObject* object, std::string_view text) {
    const char* found = PyUnicode_AsUTF8AndSize(object, nullptr);
    if (!found) PyErr_Clear();  // a lone surrogate
    return found && text == found;
}

Attr attr_from(PyObject* object, const AttrSpec& spec) {
    switch (spec.kind) {
        case AttrKind::integer: return integer_from(object);
        case AttrKind::real: {
            const double value = PyFloat_AsDouble(object);
            if (value == -1.0 && PyErr_Occurred()) throw nb::python_error();
            return value;
        }
        case AttrKind::integers: {
            std::vector<int64_t> list;
            if (PyLong_Check(object)) return std::vector<int64_t>{integer_from(object)};
            nb::object sequence =
                nb::steal(PySequence_Fast(object, "an attribute must be a sequence of ints"));
            if (!sequence.is_valid()) throw nb::python_error();
            const Py_ssize_t size = PySequence_Size(sequence.ptr());
            for (Py_ssize_t i = 0; i < size; ++i)
                list.push_back(
                    integer_from(nb::steal(PySequence_GetItem(sequence.ptr(), i)).ptr()));
            return list;
        }
        case AttrKind::graph:
        case AttrKind::text: {
            if (PyUnicode_Check(object)) return nb::cast<std::string>(nb::handle(object));
            return std::string(info(dtype_from(nb::handle(object))).name);
        }
    }
    throw runtime::InternalError("unknown attribute kind");
}

// `place`: set by the argument `device`, which ops without operands take beside their attributes:
// a name, or a Tensor that lies there.
Attrs attrs_from(const OpDef& op, PyObject* const* values, PyObject* names,
                 runtime::Device** place = nullptr) {
    Attrs attrs;
    attrs.reserve(op.attrs.size());
    Py_ssize_t used = 0;
    const Py_ssize_t given = names ? PyTuple_Size(names) : 0;
    if (op.inputs.empty() && place)
        for (Py_ssize_t i = 0; i < given; ++i) {
            if (!is_text(PyTuple_GetItem(names, i), "device")) continue;
            ++used;
            if (values[i] == Py_None) continue;
            *place = is_tensor(values[i])
                         ? &place_of(*value_of(values[i]))
                         : &device_named(nb::cast<std::string>(nb::handle(values[i])));
        }
    for (const AttrSpec& spec : op.attrs) {
        PyObject* value = nullptr;
        for (Py_ssize_t i = 0; i < given && !value; ++i)
            if (is_text(PyTuple_GetItem(names, i), spec.name)) value = values[i];
        if (value) {
            attrs.push_back(attr_from(value, spec));
            ++used;
        } else if (spec.fallback) {
            attrs.push_back(*spec.fallback);
        } else {
            runtime::user_error(
                {.what = runtime::cat(op.name, ": attribute '", spec.name, "' is missing")},
                runtime::ErrorKind::type);
        }
    }
    if (used != given) {
        std::string valid;
        for (const AttrSpec& spec : op.attrs)
            valid += (valid.empty() ? "" : ", ") + std::string(spec.name);
        runtime::user_error(
            {.what = runtime::cat(op.name, ": unknown attribute"), .fix = "valid are: " + valid},
            runtime::ErrorKind::type);
    }
    return attrs;
}

PyObject* call_op(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    return guard([&]() -> PyObject* {
        const OpDef* asked = static_cast<const OpDef*>(PyCapsule_GetPointer(self, nullptr));
        if (is_square(*asked, args, static_cast<size_t>(count))) {
            asked = &runtime::ops::square();
            count = 1;
        }
        const OpDef& op = *asked;
        runtime::Device* place = &default_device();
        const Attrs attrs =
            op.attrs.empty() && !names ? Attrs{} : attrs_from(op, args + count, names, &place);
        if (PyObject* result = followed(op, attrs, args, static_cast<size_t>(count))) return result;
        constexpr Py_ssize_t kFew = 4;
        TensorRef few[kFew];
        Tensors many(static_cast<size_t>(count > kFew ? count : 0));
        const std::span<TensorRef> operands(count > kFew ? many.data() : few,
                                            static_cast<size_t>(count));
        operands_from(args, op, operands);
        if (op.is_data_dependent())
            if (Capture* capture = Capture::current())
                capture->note_unrepeatable(runtime::cat("the body runs ", op.name, " at once"));
        return wrap_results(runtime::apply(op, attrs, operands, place));
    });
}

// Lays operand `index` of that call as its kernel reads it best. The Tensor keeps the same value,
// unseen by tapes and traces; while one of them records, nothing happens.
void pack_operand(const std::string& name, nb::list operands, size_t index, nb::dict attributes) {
    const auto& here = runtime::context();
    if (here.tracer || !here.tapes.empty()) return;
    const OpDef& op = runtime::find_op(name);
    std::vector<PyObject*> values;
    nb::object names = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(attributes.size())));
    for (auto [key, value] : attributes) {
        PyTuple_SetItem(names.ptr(), static_cast<Py_ssize_t>(values.size()), key.inc_ref().ptr());
        values.push_back(value.ptr());
    }
    const Attrs attrs = attrs_from(op, values.data(), names.ptr());
    Tensors tensors = values_of(operands);
    std::vector<Type> types;
    for (const TensorRef& tensor : tensors) {
        if (!tensor->has_data()) return;
        types.push_back(tensor->type());
    }
    const runtime::OpCall call{op, attrs, types};
    const runtime::Layout layout =
        tensors.at(index)->device().packed_layout(call, infer(call), static_cast<int>(index));
    if (!is_packed(layout) || layout == types.at(index).layout) return;
    const TensorRef dense = runtime::row_major(tensors[index]);
    handle_of(operands[index].ptr())
        .set(runtime::compute(runtime::ops::relayout(), {to_string(layout)}, {&dense, 1})[0]);
}

// "conv(x, w, /, *, stride, groups=1)\n--\n\n" and the doc: what inspect.signature and help read.
std::string doc_with_signature(const OpDef& op) {
    std::vector<std::string> parts;
    for (const runtime::OperandSpec& input : op.inputs) parts.emplace_back(input.name);
    if (op.variadic) {
        parts.back() = "*" + parts.back();
        if (parts.size() > 1) parts.insert(parts.end() - 1, "/");
    } else {
        if (!parts.empty()) parts.emplace_back("/");
        if (!op.attrs.empty()) parts.emplace_back("*");
    }
    if (op.inputs.empty()) parts.emplace_back("device=None");
    for (const AttrSpec& spec : op.attrs) {
        std::string part(spec.name);
        if (spec.fallback)
            part += "=" + nb::cast<std::string>(nb::repr(python_value(*spec.fallback)));
        parts.push_back(part);
    }
    std::string list;
    for (const std::string& part : parts) list += (list.empty() ? "" : ", ") + part;
    const std::string name = op.name.substr(op.name.rfind('.') + 1);  // as CPython wants it
    return runtime::cat(name, "(", list, ")\n--\n\n", op.doc);
}

std::string_view python_type(AttrKind kind) {
    switch (kind) {
        case AttrKind::integer: return "int";
        case AttrKind::real: return "float";
        case AttrKind::integers: return "ints";
        case AttrKind::text:
        case AttrKind::graph: return "str";
    }
    throw runtime::InternalError("unknown attribute kind");
}

nb::list op_table() {
    nb::list table;
    for (const OpDef* op : runtime::all_ops()) {
        nb::dict row, attrs;
        for (const AttrSpec& spec : op->attrs)
            attrs[std::string(spec.name).c_str()] = std::string(python_type(spec.kind));
        row["name"] = op->name;
        row["doc"] = op->doc;
        row["inputs"] = op->inputs.size();
        row["elementwise"] = op->is_elementwise();
        row["attrs"] = attrs;
        row["samples"] = nb::list(nb::cast(op->samples));
        table.append(row);
    }
    return table;
}

}  // namespace

nb::object python_value(const Attr& attr) {
    if (auto* list = std::get_if<std::vector<int64_t>>(&attr)) return nb::tuple(nb::cast(*list));
    return std::visit([](const auto& value) -> nb::object { return nb::cast(value); }, attr);
}

nb::object op_function(const OpDef& op) {
    static std::deque<PyMethodDef> methods;  // functions keep pointers into it
    static std::deque<std::string> docs;
    docs.push_back(doc_with_signature(op));
    methods.push_back({op.name.c_str(),
                       reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_op)),
                       METH_FASTCALL | METH_KEYWORDS, docs.back().c_str()});
    nb::object capsule = nb::steal(PyCapsule_New(const_cast<OpDef*>(&op), nullptr, nullptr));
    return nb::steal(
        PyCFunction_NewEx(&methods.back(), capsule.ptr(), nb::str("megengine.core.ops").ptr()));
}

void bind_ops(nb::module_& m) {
    nb::module_ ops =
        m.def_submodule("ops", "Every registered op: ops.<name>(*tensors, **attributes).");
    for (const OpDef* op : runtime::all_ops()) ops.attr(op->name.c_str()) = op_function(*op);
    m.def("_pack_operand", &pack_operand, nb::arg("op"), nb::arg("operands"), nb::arg("index"),
          nb::arg("attributes"),
          "Let operand `index` of that call lie as the kernel reads it best; its value stays.");
    m.def("op_table", &op_table,
          "One row an op: name, doc, number of inputs, attributes with their kind, sample inputs.");
}

}  // namespace megjit::python
