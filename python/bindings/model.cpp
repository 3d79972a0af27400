// Makes bytes (a dumped model) of a recorded version, and a program of such bytes.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "jit/api/model.h"
#include "jit/api/static_code.h"
#include "jit/file/export.h"
#include "jit/step/subgraph.h"
#include "jit/trace/recorder.h"
#include "jit/trace/replayer.h"
#include "python/bindings/capture.h"
#include "python/bindings/handle.h"
#include "python/bindings/held.h"
#include "python/bindings/traced_call.h"
#include "runtime/core/random.h"
#include "runtime/host/checksum.h"
#include "runtime/host/error.h"

namespace megjit::python {
namespace {

using jit::Model;

std::string bytes_from(nb::bytes bytes) { return {bytes.c_str(), bytes.size()}; }
nb::bytes to_python(const std::string& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

std::shared_ptr<Model> export_from(const jit::Version& version, std::vector<std::string> inputs,
                                   std::vector<std::string> outputs, bool optimize,
                                   bool half_storage, int keep_value_names, bool keep_op_names,
                                   bool allows_effects, int opt_level, bool exact,
                                   const DumpedStates* states) {
    const jit::ExportOptions options{.inputs = std::move(inputs),
                                     .outputs = std::move(outputs),
                                     .optimize = optimize,
                                     .half_storage = half_storage,
                                     .keep_value_names = keep_value_names,
                                     .keep_op_names = keep_op_names,
                                     .opt_level = opt_level,
                                     .exact = exact,
                                     .states = states ? &states->states : nullptr,
                                     .allows_effects = allows_effects};
    const runtime::WithoutHostLock release;
    return std::make_shared<Model>(jit::export_model(version, options));
}

nb::list type_row(const Type& type) {
    nb::list row;
    row.append(numpy_dtype(type.dtype));
    row.append(nb::tuple(nb::cast(std::vector<int64_t>(type.shape.begin(), type.shape.end()))));
    return row;
}

nb::list input_types(const Model& model) {
    nb::list result;
    const std::vector<Type> types = model.input_types();
    for (size_t i = 0; i < model.input_names.size(); ++i) result.append(type_row(types[i]));
    return result;
}

template <class Ids>
nb::tuple numbers(const Ids& ids) {
    nb::list result;
    for (const jit::ValueId id : ids) result.append(jit::at(id));
    return nb::tuple(result);
}

// A graph that an op holds, as a model without names.
std::shared_ptr<Model> model_of(const std::string& text) {
    auto model = std::make_shared<Model>();
    model->graph = *jit::subgraph(text);
    model->input_names.resize(jit::input_types(model->graph).size());
    model->output_names.resize(model->graph.outputs.size());
    model->value_names.resize(model->graph.value_count());
    return model;
}

nb::object attribute_of(const jit::Node& node, size_t place) {
    if (node.op->attrs[place].kind == runtime::AttrKind::graph)
        return nb::cast(model_of(std::get<std::string>(node.attrs[place])));
    return python_value(node.attrs[place]);
}

nb::list nodes_of(const Model& model) {
    nb::list rows;
    for (size_t i = 0; i < model.graph.nodes().size(); ++i) {
        const jit::Node& node = model.graph.nodes()[i];
        nb::dict row, attrs;
        for (size_t k = 0; k < node.attrs.size(); ++k)
            attrs[std::string(node.op->attrs[k].name).c_str()] = attribute_of(node, k);
        row["op"] = node.kind == jit::NodeKind::input      ? "input"
                    : node.kind == jit::NodeKind::constant ? "constant"
                                                           : node.op->name;
        row["attrs"] = attrs;
        row["inputs"] = numbers(node.inputs);
        row["outputs"] = numbers(node.outputs);
        row["slot"] = node.slot;
        row["constant"] = node.constant ? wrap(node.constant) : nb::none();
        row["line"] = i < model.node_lines.size() ? model.node_lines[i] : "";
        rows.append(row);
    }
    return rows;
}

nb::list value_types(const Model& model) {
    nb::list result;
    for (size_t i = 0; i < model.graph.value_count(); ++i)
        result.append(type_row(model.graph.type(jit::ValueId(i))));
    return result;
}

nb::list params_of(const Model& model) {
    nb::list result;
    for (jit::ValueId id : model.params)
        result.append(model.node_names[jit::at(model.graph.value(id).producer)]);
    return result;
}

// A strip_info_file says which operators and dtypes a runtime must bring.
nb::object used(const Model& model, bool dtypes) {
    nb::object found = nb::steal(PySet_New(nullptr));
    for (const jit::Node& node : model.graph.nodes()) {
        if (dtypes)
            for (jit::ValueId id : node.outputs)
                found.attr("add")(std::string(info(model.graph.type(id).dtype).name));
        else if (node.op) found.attr("add")(jit::type_name_of(*node.op));
    }
    return found;
}

// A handle may hold something else by now than when the functions were recorded.
void check_types(const jit::ModelFile& file) {
    for (const auto& function : file.functions) {
        const std::vector<Type> types = function->input_types();
        for (size_t slot = function->input_names.size(); slot < types.size(); ++slot) {
            const jit::State& state = file.states.at(function->inputs[slot].state);
            const Type& wanted = types[slot];
            if (!state.is_generator && !(state.value->type() == wanted))
                runtime::user_error(
                    {.what = runtime::cat(
                         "dump: the state ", state.name, " is ", to_string(state.value->type()),
                         " now, and the function was recorded with ", to_string(wanted)),
                     .fix = "call the function once more before dump"});
        }
    }
}

std::shared_ptr<api::File> file_of(nb::list functions, const DumpedStates* states) {
    jit::ModelFile file;
    for (nb::handle function : functions)
        file.functions.push_back(nb::cast<std::shared_ptr<Model>>(function));
    if (states) file.states = states->present();
    check_types(file);
    return std::make_shared<api::File>(std::move(file));
}

std::unique_ptr<api::Context> program_of(std::shared_ptr<api::File> file,
                                         const std::string& function, std::vector<size_t> outputs,
                                         int opt_level, bool trusts_kernels) {
    runtime::Device& device = default_device();
    const runtime::WithoutHostLock release;
    return std::make_unique<api::Context>(std::make_shared<api::Model>(
        std::move(file), api::ModelOptions{.function = function,
                                           .device = &device,
                                           .opt_level = opt_level,
                                           .trusts_kernels = trusts_kernels,
                                           .outputs = std::move(outputs)}));
}

nb::typed<nb::dict, std::string, nb::bytes> static_code(api::File& file,
                                                        const std::string& function,
                                                        const std::string& name, bool keeps_states,
                                                        const std::string& isa) {
    const std::optional<runtime::Isa> level = runtime::isa_named(isa);
    if (!level) throw nb::value_error(("there is no instruction set " + isa).c_str());
    std::map<std::string, std::string> files;
    {
        const runtime::WithoutHostLock release;
        files = api::static_code_of(file, function, name, keeps_states, *level);
    }
    nb::typed<nb::dict, std::string, nb::bytes> found;
    for (const auto& [file_name, bytes] : files) found[file_name.c_str()] = to_python(bytes);
    return found;
}

nb::dict states_of(api::File& file) {
    nb::dict states;
    for (size_t i = 0; i < file.states().size(); ++i) {
        TensorRef value;
        {
            const runtime::WithoutHostLock release;
            value = file.value(i);
        }
        states[file.states()[i].name.c_str()] = wrap(std::move(value));
    }
    return states;
}

void set_state(api::File& file, const std::string& name, const Handle& value) {
    const TensorRef given = value.value();
    const runtime::WithoutHostLock release;
    file.set(file.state(name), given);
}

nb::list run_program(api::Context& program, nb::list tensors) {
    std::vector<TensorRef> inputs, outputs;
    for (nb::handle tensor : tensors) inputs.push_back(host_row_major(value_of(tensor.ptr())));
    {
        const runtime::WithoutHostLock release;
        outputs = program.run(std::move(inputs));
    }
    nb::list result;
    for (TensorRef& output : outputs) result.append(wrap(output));
    return result;
}

nb::tuple load_model(nb::bytes bytes, const std::string& file_name, size_t offset) {
    size_t size = 0;
    std::shared_ptr<api::File> file;
    const std::string_view all(bytes.c_str(), bytes.size());
    {
        const runtime::WithoutHostLock release;
        file = std::make_shared<api::File>(
            jit::from_bytes(all.substr(std::min(offset, all.size())), file_name, &size));
    }
    return nb::make_tuple(nb::cast(std::move(file)), size);
}

void add_kernels(api::File& file, nb::list rows) {
    std::vector<codegen::CacheEntry> kernels;
    for (nb::handle row : rows)
        kernels.push_back(
            {bytes_from(nb::cast<nb::bytes>(row[0])), bytes_from(nb::cast<nb::bytes>(row[1]))});
    file.add_kernels(std::move(kernels));
}

nb::bytes file_bytes(api::File& file) {
    std::string bytes;
    {
        const runtime::WithoutHostLock release;
        bytes = file.to_bytes();
    }
    return to_python(bytes);
}

}  // namespace

void bind_model(nb::module_& m) {
    nb::class_<jit::Version>(m, "Version", "One record of a traced function.")
        .def_prop_ro("takes_gradients",
                     [](const jit::Version& self) { return !self.record.backwards.empty(); })
        .def_prop_ro("updates_states",
                     [](const jit::Version& self) {
        return std::ranges::any_of(self.notes.held,
                                   [](auto& h) { return h.becomes != jit::kNoValue; });
    }, "Does it replace what outlives the call?")
        .def("export_model", &export_from, nb::arg("inputs"), nb::arg("outputs"),
             nb::arg("optimize"), nb::arg("half_storage"), nb::arg("keep_value_names"),
             nb::arg("keep_op_names"), nb::arg("allows_effects") = false, nb::arg("opt_level") = 2,
             nb::arg("exact") = false, nb::arg("states").none() = nb::none());
    nb::class_<Model>(m, "Model", "A graph with names, as dump writes it.")
        .def_ro("inputs", &Model::input_names)
        .def_ro("outputs", &Model::output_names)
        .def_prop_ro("params", &params_of)
        .def_ro("node_names", &Model::node_names)
        .def_ro("value_names", &Model::value_names)
        .def_prop_ro("input_types", &input_types, "A dtype and a shape for each input.")
        .def_prop_ro(
            "nodes", &nodes_of,
            "A dict for each node: op, attrs (graphs as Models), ids of values that go in and come out, slot, constant, line.")
        .def_prop_ro("value_types", &value_types, "A dtype and a shape for each value.")
        .def_prop_ro("output_values", [](const Model& self) { return numbers(self.graph.outputs); })
        .def_prop_ro("node_count", [](const Model& self) { return self.graph.nodes().size(); })
        .def_prop_ro("constant_bytes", &Model::constant_bytes)
        .def_prop_ro("op_types", [](const Model& self) { return used(self, false); })
        .def_prop_ro("dtypes", [](const Model& self) { return used(self, true); })
        .def_prop_rw("metadata", [](const Model& self) { return to_python(self.metadata); },
                     [](Model& self, nb::bytes bytes) { self.metadata = bytes_from(bytes); })
        .def_prop_rw("cases", [](const Model& self) { return to_python(self.cases); },
                     [](Model& self, nb::bytes bytes) { self.cases = bytes_from(bytes); })
        .def_rw("name", &Model::name)
        .def_ro("opt_level", &Model::opt_level)
        .def("graph_text", [](const Model& self) { return print(self.graph); });
    nb::class_<api::File>(m, "ModelFile", "Functions with the states that they share.")
        .def_static("of", &file_of, nb::arg("functions"), nb::arg("states").none() = nb::none())
        .def_prop_ro("functions",
                     [](const api::File& self) {
        nb::list names;
        for (const auto& function : self.functions()) names.append(function->name);
        return names;
    }, "Their names.")
        .def("function",
             [](const api::File& self, const std::string& name) {
        return std::make_shared<Model>(*self.function(name));
    }, nb::arg("name") = "", "A copy; empty: of the first.")
        .def("without_states",
             [](api::File& self, const std::string& name) {
        return std::make_shared<Model>(self.without_states(name));
    }, nb::arg("name") = "", "A function with its states as constants.")
        .def("program", &program_of, nb::arg("function"), nb::arg("outputs"), nb::arg("opt_level"),
             nb::arg("trusts_kernels") = false)
        .def("add_kernels", &add_kernels, nb::arg("kernels"),
             "Rows of keys and objects, as cache_entries gives them.")
        .def("add_package_of",
             [](api::File& self, const api::Context& program) {
        self.add_package_of(program.model());
    }, nb::arg("program"), "The constants that a program of the file has packed, and its plan.")
        .def("compile_for_gpu",
             [](const api::File& self, const std::string& function, int arch) {
        const runtime::WithoutHostLock release;
        api::compile(self, {.function = function, .device = &api::described_gpu(arch)});
    }, nb::arg("function"), nb::arg("arch"),
             "All kernels of a function, for a GPU that need not be there, into the cache.")
        .def("static_code", &static_code, nb::arg("function"), nb::arg("name"),
             nb::arg("keeps_states"), nb::arg("isa"),
             "Contents of files by name: C that calls generated kernels.")
        .def("set_options", &api::File::set_options, nb::arg("opt_level"), nb::arg("memory_limit"),
             "Of all functions; an opt_level of -1 leaves them theirs.")
        .def("states", &states_of, "The present values by name.")
        .def("set_state", &set_state, nb::arg("name"), nb::arg("value"))
        .def("to_bytes", &file_bytes);
    nb::class_<api::Context>(m, "Program", "A compiled model.")
        .def("run", &run_program, nb::arg("inputs"));
    m.def("load_model", &load_model, nb::arg("bytes"), nb::arg("file_name"), nb::arg("offset") = 0,
          "A Model and the bytes that it took.");
    m.def("checksum",
          [](nb::bytes bytes) { return runtime::checksum({bytes.c_str(), bytes.size()}); });

    // ---- names, while a call is recorded for dumping
    m.def(
        "note_results",
        [](nb::list results, bool is_kept) {
        Tensors tensors;
        for (nb::handle result : results) {
            tensors.push_back(value_of(result.ptr()));
            if (Capture* capture = Capture::current()) {
                // It may be a state of another function, which no op of this one reads.
                capture->note_operand(result.ptr());
                capture->note_result(result.ptr(), is_kept ? 1 : 2);
            }
        }
        if (jit::Recorder* recorder = jit::Recorder::running()) recorder->note_results(tensors);
    }, nb::arg("results"), nb::arg("is_kept"),
        "is_kept: something else than the caller holds the container in which they were returned.");
    m.def("other_result",
          [](nb::list results) -> std::optional<size_t> {
        const auto* replayer = dynamic_cast<jit::Replayer*>(jit::Session::running());
        if (!replayer) return std::nullopt;
        Tensors tensors;
        for (nb::handle result : results) tensors.push_back(value_of(result.ptr()));
        const size_t other = replayer->other_result(tensors);
        return other == jit::Replayer::kAsRecorded ? std::nullopt : std::optional(other);
    }, nb::arg("results"),
          "Which result of a call that follows a record is another value than recorded, if any.");
    m.def("note_bound_anew",
          [](uint64_t before, const Handle* now, const std::string& name) {
        jit::Recorder* recorder = jit::Recorder::running();
        const TracedCall* call = TracedCall::running();
        if (!recorder || !call) return;
        const auto used = recorder->find(before);
        if (used ? recorder->is_argument(*used) : !call->rebound.is_written(before)) return;
        const bool is_computed = now && recorder->is_placeholder(*now->value());
        recorder->note_bound_anew(
            is_computed ? std::optional(jit::RecordId{now->value()->trace.value}) : std::nullopt,
            name);
    }, nb::arg("before"), nb::arg("now").none(), nb::arg("name"),
          "Where the body found the value of this id another Tensor is now, or none.");
    m.def("set_name", [](const Handle& tensor, const std::string& name) {
        if (jit::Recorder* recorder = jit::Recorder::running())
            recorder->note_name(tensor.value(), name);
    });
    m.def("set_scope", [](const std::string& scope) {
        if (jit::Session* session = jit::Session::running()) session->set_scope(scope);
    });
}

}  // namespace megjit::python
