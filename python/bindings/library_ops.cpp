// Ops of users' libraries (python/megengine/core/include/megjit/custom_op.h), as ops of the
// registry: they compute on the host, are recorded by traces, and have the gradient that the
// library names.
#include <dlfcn.h>

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#ifdef MEGJIT_WITH_CPU
#include "backends/cpu/cpu_device.h"
#endif
#include "python/bindings/handle.h"
#include "python/megengine/core/include/megjit/custom_op.h"
#include "runtime/core/function_executable.h"
#include "runtime/host/error.h"
#include "runtime/host/mutex.h"
#include "runtime/host/number_text.h"
#include "runtime/host/unknown_name.h"
#include "runtime/ops/builders.h"

namespace megjit::python {
namespace {

using runtime::Attr;
using runtime::AttrKind;
using runtime::cat;
using runtime::OpCall;
using runtime::OpDef;
using runtime::user_error;

constexpr size_t kErrorBytes = 1024;
constexpr const char* kKinds[] = {"integer", "real", "text", "integers", "reals"};
static_assert(MEGJIT_MAX_RANK == runtime::kMaxRank);

megjit_type to_c(const Type& type) {
    megjit_type result{.dtype = info(type.dtype).name.data(), .rank = type.rank(), .shape = {}};
    std::copy(type.shape.begin(), type.shape.end(), result.shape);
    return result;
}

// The registry has no attributes that are lists of reals: these are text, numbers between spaces.
std::vector<double> reals_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<double> result;
    for (std::string word; in >> word;)
        result.push_back(runtime::number_in(word).value_or(std::nan("")));
    return result;
}
std::string text_of(std::span<const double> reals) {
    std::ostringstream out;
    out.precision(17);
    for (const double real : reals) out << (out.tellp() > 0 ? " " : "") << real;
    return out.str();
}

// One call's parameters, as the library reads them.
class Params {
public:
    Params(const megjit_op& op, const runtime::Attrs& attrs) : attrs_(attrs) {
        for (size_t i = 0; i < attrs_.size(); ++i) {
            megjit_param param = op.params[i];
            const Attr& attr = attrs_[i];
            switch (static_cast<megjit_param_kind>(param.kind)) {
                case MEGJIT_INTEGER: param.integer = std::get<int64_t>(attr); break;
                case MEGJIT_REAL: param.real = std::get<double>(attr); break;
                case MEGJIT_TEXT: param.text = std::get<std::string>(attr).c_str(); break;
                case MEGJIT_INTEGERS: {
                    const auto& list = std::get<std::vector<int64_t>>(attr);
                    param.integers = list.data();
                    param.count = list.size();
                    break;
                }
                case MEGJIT_REALS: {
                    reals_.push_back(reals_of(std::get<std::string>(attr)));
                    param.reals = reals_.back().data();
                    param.count = reals_.back().size();
                    break;
                }
            }
            params_.push_back(param);
        }
    }
    Params(const Params&) = delete;
    const megjit_param* data() const { return params_.data(); }

private:
    runtime::Attrs attrs_;
    std::deque<std::vector<double>> reals_;
    std::vector<megjit_param> params_;
};

class LibraryOp {
public:
    explicit LibraryOp(const megjit_op& op) : op(op) {}

    std::vector<Type> infer(const OpCall& call) const {
        check_inputs(call);
        const Params params(op, call.attrs);
        std::vector<megjit_type> inputs, outputs(op.output_count, megjit_type{});
        for (const Type& input : call.inputs) inputs.push_back(to_c(input));
        char error[kErrorBytes] = {};
        if (op.infer(op.self, inputs.data(), params.data(), outputs.data(), error, sizeof error))
            user_error({.what = cat(call.op.name, ": ", error),
                        .why = cat("the operands are ", to_string(call.inputs))});
        std::vector<Type> types;
        for (const megjit_type& output : outputs) types.push_back(type_of(output, call));
        return types;
    }

    std::shared_ptr<const runtime::Executable> prepare(const OpCall& call,
                                                       std::span<const Type> outputs) const {
        std::vector<megjit_buffer> operands;
        for (const Type& type : call.inputs) operands.push_back({to_c(type), nullptr});
        for (const Type& type : outputs) operands.push_back({to_c(type), nullptr});
        auto run = [&op = op, name = call.op.name, operands = std::move(operands),
                    params = std::make_shared<const Params>(op, call.attrs)](
                       runtime::Stream&, void* const* inputs, void* const* outputs, void*) {
            std::vector<megjit_buffer> buffers = operands;
            for (size_t i = 0; i < buffers.size(); ++i)
                buffers[i].data = i < op.input_count ? inputs[i] : outputs[i - op.input_count];
            char error[kErrorBytes] = {};
            if (op.compute(op.self, buffers.data(), params->data(), buffers.data() + op.input_count,
                           error, sizeof error))
                user_error({.what = cat(name, ": ", error)}, runtime::ErrorKind::runtime);
        };
        return runtime::function_executable(std::move(run));
    }

    const megjit_op& op;

private:
    void check_inputs(const OpCall& call) const {
        for (uint32_t i = 0; i < op.input_count; ++i) {
            const megjit_operand& wanted = op.inputs[i];
            const Type& got = call.inputs[i];
            const std::string dtypes = cat(" ", wanted.dtypes, " "),
                              dtype = cat(" ", info(got.dtype).name, " ");
            if (dtypes.find(dtype) == std::string::npos)
                user_error({.what = cat(call.op.name, ": ", wanted.name, " is ", to_string(got)),
                            .why = cat("it takes ", wanted.dtypes),
                            .fix = "astype, or name further dtypes in add_input"},
                           runtime::ErrorKind::type);
            if (wanted.rank >= 0 && wanted.rank != got.rank())
                user_error({.what = cat(call.op.name, ": ", wanted.name, " is ", to_string(got)),
                            .why = cat("it takes ", wanted.rank, " axes"),
                            .fix = "reshape it, or change the rank in add_input"});
        }
    }
    static Type type_of(const megjit_type& output, const OpCall& call) {
        if (!output.dtype || output.rank < 0 || output.rank > MEGJIT_MAX_RANK)
            user_error({.what = cat(call.op.name, ": infers a result of ", output.rank, " axes"),
                        .why = cat("results have a dtype and up to ", MEGJIT_MAX_RANK, " axes")});
        const std::span<const int64_t> shape(output.shape, static_cast<size_t>(output.rank));
        return {runtime::dtype_from_name(output.dtype), runtime::Shape(shape)};
    }
};

// Ops of the registry are plain functions, and know their library's op by its name.
class LibraryOps {
public:
    void add(const megjit_op& op) {
        const std::lock_guard lock(mutex_);
        ops_.emplace(op.name, op);
    }
    const LibraryOp& of(const OpDef& op) {
        const std::lock_guard lock(mutex_);
        return ops_.find(std::string_view(op.name).substr(runtime::kCustomPrefix.size()))->second;
    }

private:
    runtime::Mutex mutex_{"the ops of libraries"};
    std::map<std::string, LibraryOp, std::less<>> ops_;  // addresses stay valid
};
LibraryOps& library_ops() {
    static LibraryOps ops;
    return ops;
}

std::string registered_name(std::string_view name) { return cat(runtime::kCustomPrefix, name); }

std::vector<Type> infer_library_op(const OpCall& call) {
    return library_ops().of(call.op).infer(call);
}
std::shared_ptr<const runtime::Executable> prepare_library_op(const OpCall& call,
                                                              std::span<const Type> outputs) {
    return library_ops().of(call.op).prepare(call, outputs);
}

runtime::Grads grad_of_library_op(const runtime::GradCall& call) {
    const megjit_op& forward = library_ops().of(call.call.op).op;
    const OpDef& backward = runtime::find_op(registered_name(forward.gradient));
    Tensors operands;
    for (size_t i = 0; i < call.outputs.size(); ++i)
        operands.push_back(call.out_grads[i] ? call.out_grads[i]
                                             : runtime::build::zeros_like(call.outputs[i]));
    operands.insert(operands.end(), call.inputs.begin(), call.inputs.end());
    if (operands.size() < backward.inputs.size())
        operands.insert(operands.end(), call.outputs.begin(), call.outputs.end());
    runtime::Attrs attrs;
    for (const runtime::AttrSpec& spec : backward.attrs) {
        attrs.push_back(*spec.fallback);
        for (size_t i = 0; i < call.call.attrs.size(); ++i)
            if (call.call.op.attrs[i].name == spec.name) attrs.back() = call.call.attrs[i];
    }
    runtime::Grads grads = runtime::apply(backward, attrs, operands);
    for (size_t i = 0; i < grads.size(); ++i)
        if (!call.needs[i]) {
            grads[i] = nullptr;
        } else if (grads[i]->dtype() != call.inputs[i]->dtype() ||
                   grads[i]->shape() != call.inputs[i]->shape()) {
            user_error({.what = cat(backward.name, ": gives ", to_string(grads[i]->type()),
                                    " as gradient of ", to_string(call.inputs[i]->type())),
                        .fix = "let it infer the types of the inputs"});
        }
    return grads;
}

Attr fallback_of(const megjit_param& param) {
    switch (static_cast<megjit_param_kind>(param.kind)) {
        case MEGJIT_INTEGER: return param.integer;
        case MEGJIT_REAL: return param.real;
        case MEGJIT_TEXT: return std::string(param.text);
        case MEGJIT_INTEGERS:
            return std::vector<int64_t>(param.integers, param.integers + param.count);
        case MEGJIT_REALS: return text_of({param.reals, param.count});
    }
    user_error({.what = cat("parameter ", param.name, " has the unknown kind ", param.kind)});
}

OpDef op_def(const megjit_op& op, uint32_t gradient_inputs) {
    OpDef def{.name = registered_name(op.name), .doc = op.doc};
    for (uint32_t i = 0; i < op.input_count; ++i) def.inputs.emplace_back(op.inputs[i].name);
    for (uint32_t i = 0; i < op.param_count; ++i) {
        const Attr fallback = fallback_of(op.params[i]);
        // Attr and AttrKind have one order.
        def.attrs.push_back({op.params[i].name, static_cast<AttrKind>(fallback.index()), fallback});
    }
    def.infer = infer_library_op;
    if (op.gradient) def.grad = grad_of_library_op;
    def.keeps = gradient_inputs > op.output_count + op.input_count ? runtime::Keeps::both
                                                                   : runtime::Keeps::inputs;
    def.checks_values = true;  // it may throw
    return def;
}

// Operands of the op that `op` names as its gradient; UserError where it does not fit.
uint32_t gradient_inputs_of(const megjit_op& op, const megjit_library& library) {
    if (!op.gradient) return 0;
    for (const megjit_op& backward : std::span(library.ops, library.op_count)) {
        if (std::strcmp(backward.name, op.gradient) != 0) continue;
        const uint32_t least = op.output_count + op.input_count;
        if (backward.output_count != op.input_count ||
            (backward.input_count != least && backward.input_count != least + op.output_count))
            user_error({.what = cat("custom op ", op.name, ": its gradient ", op.gradient, " has ",
                                    backward.input_count, " inputs and ", backward.output_count,
                                    " outputs"),
                        .why = cat("it takes the gradients of ", op.output_count, " outputs, then ",
                                   op.input_count,
                                   " inputs, then perhaps the outputs, and gives a "
                                   "gradient for each input")});
        return backward.input_count;
    }
    user_error({.what = cat("custom op ", op.name, ": the library has no op ", op.gradient,
                            ", its gradient")});
}

const megjit_library& open_library(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // NOLINT: never closed
    if (!handle) user_error({.what = dlerror()}, runtime::ErrorKind::runtime);
    using Entry = const megjit_library* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(handle, "megjit_custom_ops"));
    if (!entry)
        user_error({.what = cat(path,
                                " is not a library of custom ops: it has no function "
                                "megjit_custom_ops"),
                    .fix = "include megbrain/custom/custom.h, and register an op"});
    const megjit_library* library = entry();
    if (library->abi != MEGJIT_CUSTOM_OP_ABI)
        user_error({.what = cat(path, " was made for version ", library->abi,
                                " of the interface of custom ops"),
                    .why = cat("this is version ", MEGJIT_CUSTOM_OP_ABI),
                    .fix = "build it again"});
    return *library;
}

// Makes all ops of a library ops of the registry, or none. The caller holds the GIL.
const megjit_library& load_library(const std::string& path) {
    static std::set<const megjit_library*> loaded;
    const megjit_library& library = open_library(path);
    if (loaded.contains(&library)) return library;
    std::vector<OpDef> defs;
    std::set<std::string_view> names;
    for (const megjit_op& op : std::span(library.ops, library.op_count)) {
        if (!names.insert(op.name).second || runtime::find_op_or_null(registered_name(op.name)))
            user_error(
                {.what = cat("custom op ", op.name, " of ", path, ": there is one of this name"),
                 .why = "graphs that exist call it by this name",
                 .fix = "start a new process, or give it another name"});
        defs.push_back(op_def(op, gradient_inputs_of(op, library)));
    }
    for (const megjit_op& op : std::span(library.ops, library.op_count)) library_ops().add(op);
    for (OpDef& def : defs) {
#ifdef MEGJIT_WITH_CPU
        cpu::register_kernel(def.name, prepare_library_op);
#endif
        runtime::register_op(std::move(def));
    }
    loaded.insert(&library);
    return library;
}

}  // namespace

void bind_library_ops(nb::module_& m) {
    m.def("load_library_ops",
          [](const std::string& path) {
        nb::list ops;
        const megjit_library& library = load_library(path);
        for (const megjit_op& op : std::span(library.ops, library.op_count)) {
            nb::dict kinds;
            for (const megjit_param& param : std::span(op.params, op.param_count))
                kinds[param.name] = kKinds[param.kind];
            ops.append(nb::make_tuple(
                op.name, op_function(runtime::find_op(registered_name(op.name))), kinds));
        }
        return ops;
    }, nb::arg("path"),
          "Ops of a shared library (megjit/custom_op.h) join the registry. Of each: its name, its "
          "function, and the kinds of its attributes by name; reals are given as text.");
}

}  // namespace megjit::python
