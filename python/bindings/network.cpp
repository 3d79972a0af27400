// Graphs that users edit: megengine.utils.network. Nodes and values are numbers here; Python makes
// objects of them.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "jit/file/graph_editor.h"
#include "jit/plan/pipeline.h"
#include "python/bindings/handle.h"
#include "runtime/host/error.h"

namespace megjit::python {
namespace {

using jit::GraphEditor;
using jit::NodeId;
using jit::NodeKind;
using jit::ValueId;
using Numbers = std::vector<uint32_t>;
using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

std::vector<ValueId> values_from(const Numbers& numbers) {
    std::vector<ValueId> result;
    for (uint32_t number : numbers) result.push_back(static_cast<ValueId>(number));
    return result;
}

template <class Id>
Numbers numbers_from(const std::vector<Id>& ids) {
    Numbers result;
    for (Id id : ids) result.push_back(static_cast<uint32_t>(id));
    return result;
}

GraphEditor::Replacements replacements_from(const Pairs& pairs) {
    GraphEditor::Replacements result;
    for (const auto& [old, fresh] : pairs)
        result[static_cast<ValueId>(old)] = static_cast<ValueId>(fresh);
    return result;
}

std::string_view kind_of(const GraphEditor& editor, uint32_t id) {
    const jit::EditedNode& edited = editor.node(static_cast<NodeId>(id));
    switch (edited.node.kind) {
        case NodeKind::input: return "input";
        case NodeKind::constant: return edited.is_parameter ? "parameter" : "constant";
        case NodeKind::op:
        case NodeKind::fused: break;
    }
    return edited.node.op->name;
}

nb::dict attrs_of(const GraphEditor& editor, uint32_t id) {
    const jit::Node& node = editor.node(static_cast<NodeId>(id)).node;
    nb::dict result;
    for (size_t i = 0; node.op && i < node.attrs.size(); ++i)
        result[std::string(node.op->attrs[i].name).c_str()] = python_value(node.attrs[i]);
    return result;
}

jit::ExportOptions options_of(bool optimize, bool half_storage, int keep_value_names,
                              bool keep_op_names) {
    return {.optimize = optimize,
            .half_storage = half_storage,
            .keep_value_names = keep_value_names,
            .keep_op_names = keep_op_names};
}

// The object is an instance of `type`, a subclass of Tensor.
nb::object variable(const GraphEditor& editor, uint32_t id, nb::type_object type) {
    if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()), tensor_class()))
        runtime::user_error({.what = "variable: a subclass of Tensor is wanted"},
                            runtime::ErrorKind::type);
    return nb::steal(wrap_as(reinterpret_cast<PyTypeObject*>(type.ptr()),
                             editor.placeholder(static_cast<ValueId>(id))));
}

// A placeholder keeps its first type: after an edit the object gets another placeholder.
void refresh(const GraphEditor& editor, Handle& variable) {
    const TensorRef& value = variable.value();
    if (value->trace.session != editor.id())
        runtime::user_error({.what = "refresh: the variable belongs to another graph"});
    const auto id = static_cast<ValueId>(value->trace.value);
    if (!(value->type() == editor.value(id).type)) variable.set(editor.placeholder(id));
}

}  // namespace

void bind_network(nb::module_& m) {
    const auto node_of = [](uint32_t id) { return static_cast<NodeId>(id); };
    const auto value_id = [](uint32_t id) { return static_cast<ValueId>(id); };
    nb::class_<GraphEditor>(m, "GraphEditor",
                            "A graph that is edited; nodes and values are numbers that stay.")
        .def("__init__", [](GraphEditor* self) { new (self) GraphEditor(default_device()); })
        .def_prop_ro("id", &GraphEditor::id)
        .def("add_model",
             [](GraphEditor& self, const jit::Model& model) {
        return numbers_from(self.add_model(model));
    }, nb::arg("model"))
        .def("add_input",
             [](GraphEditor& self, std::vector<int64_t> shape, nb::handle dtype,
                const std::string& name, const std::string& device) {
        return static_cast<uint32_t>(
            self.add_input({.dtype = dtype_from(dtype), .shape = runtime::Shape(shape)}, name,
                           &device_named(device)));
    },
             nb::arg("shape"), nb::arg("dtype"), nb::arg("name"), nb::arg("device") = "")
        .def("add_constant",
             [](GraphEditor& self, const Handle& data, const std::string& name, bool is_parameter) {
        return static_cast<uint32_t>(self.add_constant(data.value(), name, is_parameter));
    }, nb::arg("data"), nb::arg("name"), nb::arg("is_parameter"))
        .def_prop_rw("results",
                     [](const GraphEditor& self) {
        return numbers_from(self.outputs());
    }, [](GraphEditor& self, const Numbers& outputs) { self.set_outputs(values_from(outputs)); },
                     "The values that a dump writes, in order.")
        .def("replace",
             [](GraphEditor& self, const Pairs& pairs) { self.replace(replacements_from(pairs)); },
             nb::arg("pairs"))
        .def("copy_with",
             [](GraphEditor& self, const Numbers& values, const Pairs& pairs) {
        return numbers_from(self.copy_with(values_from(values), replacements_from(pairs)));
    }, nb::arg("values"), nb::arg("pairs"))
        .def("optimized",
             [](GraphEditor& self, const Numbers& values) {
        return numbers_from(self.add_optimized(values_from(values)));
    }, nb::arg("values"))
        .def("set_operand",
             [=](GraphEditor& self, uint32_t node, size_t operand, uint32_t value) {
        self.set_operand(node_of(node), operand, value_id(value));
    }, nb::arg("node"), nb::arg("operand"), nb::arg("value"))
        .def("set_constant",
             [=](GraphEditor& self, uint32_t node, const Handle& data) {
        self.set_constant(node_of(node), data.value());
    }, nb::arg("node"), nb::arg("data"))
        .def("reset_batch",
             [](GraphEditor& self, const Numbers& inputs, int64_t from, int64_t to) {
        self.reset_batch(values_from(inputs), {from, to});
    }, nb::arg("inputs"), nb::arg("before"), nb::arg("after"))
        .def(
            "order",
            [](const GraphEditor& self, const Numbers& of) {
        return numbers_from(self.order(values_from(of)));
    }, nb::arg("of") = Numbers(),
            "Nodes that the values are made of (none given: all that belong to the graph), as they can run.")
        .def("kind",
             [](const GraphEditor& self, uint32_t node) {
        return std::string(kind_of(self, node));
    }, nb::arg("node"), "\"input\", \"constant\", \"parameter\", or the name of the op.")
        .def("type_name",
             [=](const GraphEditor& self, uint32_t node) {
        const runtime::OpDef* op = self.node(node_of(node)).node.op;
        return op ? jit::type_name_of(*op) : std::string(kind_of(self, node));
    }, nb::arg("node"))
        .def("attrs", &attrs_of, nb::arg("node"))
        .def("inputs",
             [=](const GraphEditor& self, uint32_t node) {
        return numbers_from(self.node(node_of(node)).node.inputs);
    }, nb::arg("node"))
        .def("outputs",
             [=](const GraphEditor& self, uint32_t node) {
        return numbers_from(self.node(node_of(node)).node.outputs);
    }, nb::arg("node"))
        .def("owner",
             [=](const GraphEditor& self, uint32_t value) {
        return static_cast<uint32_t>(self.value(value_id(value)).producer);
    }, nb::arg("value"))
        .def("node_name",
             [=](const GraphEditor& self, uint32_t node) { return self.node(node_of(node)).name; },
             nb::arg("node"))
        .def("value_name",
             [=](const GraphEditor& self, uint32_t value) {
        return self.value(value_id(value)).name;
    }, nb::arg("value"))
        .def("rename_node",
             [=](GraphEditor& self, uint32_t node, std::string name) {
        self.rename(node_of(node), std::move(name));
    }, nb::arg("node"), nb::arg("name"))
        .def("rename_value",
             [=](GraphEditor& self, uint32_t value, std::string name) {
        self.rename(value_id(value), std::move(name));
    }, nb::arg("value"), nb::arg("name"))
        .def("variable", &variable, nb::arg("value"), nb::arg("type"))
        .def("refresh", &refresh, nb::arg("variable"))
        .def("constant_value",
             [=](const GraphEditor& self, uint32_t value) {
        return wrap(self.constant_value(value_id(value)));
    }, nb::arg("value"))
        .def("model",
             [](GraphEditor& self, const Numbers& of, bool optimize, bool half_storage,
                int keep_value_names, bool keep_op_names) {
        return std::make_unique<jit::Model>(self.model(
            values_from(of), options_of(optimize, half_storage, keep_value_names, keep_op_names)));
    },
             nb::arg("of"), nb::arg("optimize"), nb::arg("half_storage"),
             nb::arg("keep_value_names"), nb::arg("keep_op_names"));
    m.def("variable_link", [](const Handle& tensor) {
        return std::pair(tensor.value()->trace.session, tensor.value()->trace.value);
    }, "The edited graph and the number of a variable.");
    m.def(
        "_set_variables", [](nb::object of_link) { set_variables(std::move(of_link)); },
        nb::arg("of_link"),
        "Called with graph and number: the object for a result that is a variable of an edited graph.");
}

}  // namespace megjit::python
