#include "jit/api/model.h"

#include <algorithm>
#include <fstream>
#include <mutex>
#include <numeric>

#include "jit/api/report.h"
#include "jit/export.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"

namespace megjit::api {

using runtime::cat;

namespace {

std::vector<Port> inputs_of(const jit::Model& file) {
    std::vector<Port> ports;
    for (const std::string& name : file.inputs) ports.push_back({name, {}});
    for (const jit::Node& node : file.graph.nodes())
        if (node.kind == jit::NodeKind::input)
            ports[static_cast<size_t>(node.slot)].type = file.graph.type(node.outputs[0]);
    return ports;
}

std::vector<Port> parameters_of(const jit::Model& file) {
    std::vector<Port> ports;
    for (const jit::ValueId id : file.params) {
        const size_t node = jit::at(file.graph.value(id).producer);
        ports.push_back(
            {node < file.node_names.size() ? file.node_names[node] : "", file.graph.type(id)});
    }
    return ports;
}

jit::PipelineOptions passes_of(const ModelOptions& options, runtime::Device& device) {
    if (options.opt_level < 0 || options.opt_level > 3)
        runtime::user_error(
            {.what = cat("opt_level is ", options.opt_level), .fix = "it is 0, 1, 2 or 3"});
    if (!options.compiler.empty()) codegen::refuse_unknown_backend(options.compiler);
    jit::PipelineOptions passes{.opt_level = options.opt_level,
                                .exact = options.exact,
                                .backend = options.compiler,
                                .memory = {.limit = options.memory_limit},
                                .device = &device};
    if (codegen::compile_mode() == codegen::CompileMode::off)
        passes.opt_level = std::min(passes.opt_level, 2);
    return passes;
}

}  // namespace

std::shared_ptr<const jit::Model> read_model(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::string bytes;
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (!error) bytes.resize(size);
    if (error || !stream.read(bytes.data(), static_cast<std::streamsize>(size)))
        runtime::user_error({.what = cat("cannot read the model ", path.string()),
                             .why = error ? error.message() : "the file could not be read",
                             .fix = "give the path of a file that dump() wrote"},
                            runtime::ErrorKind::runtime);
    return std::make_shared<const jit::Model>(jit::from_bytes(bytes, path.filename().string()));
}

// ---- models

Model::Model(std::shared_ptr<const jit::Model> file, const ModelOptions& options)
    : file_(std::move(file)),
      device_(options.device ? options.device : &runtime::host_device()),
      inputs_(inputs_of(*file_)),
      parameters_(parameters_of(*file_)) {
    std::vector<size_t> wanted(file_->outputs.size());
    std::iota(wanted.begin(), wanted.end(), size_t{0});
    if (options.outputs) wanted = *options.outputs;
    auto graph = std::make_shared<jit::Graph>(jit::graph_for(*file_, wanted));
    graph->set_device(*device_);
    for (size_t i = 0; i < wanted.size(); ++i)
        outputs_.push_back({file_->outputs[wanted[i]], graph->type(graph->outputs[i])});
    pending_ = std::make_unique<jit::PendingProgram>(
        std::move(graph), passes_of(options, *device_),
        jit::LoweringOptions{.function = "a loaded model",
                             .check = runtime::debug().check,
                             .profile = options.profile,
                             .arenas = jit::Arenas::make("a loaded model"),
                             .weights = std::make_shared<jit::BoundWeights>()});
    give_back(make_program());  // what cannot be compiled, or does not fit, is told now
}

TensorRef Model::parameter_value(size_t index) const {
    return runtime::row_major(file_->graph.producer(file_->params.at(index)).constant);
}

std::shared_ptr<jit::Program> Model::make_program() {
    const runtime::Turn::Held turn = turn_.take();
    std::shared_ptr<jit::Program> program;
    while (!program) {
        codegen::KernelService::instance().wait(pending_->requests(), pending_->deadline());
        program = pending_->finish();
    }
    const std::lock_guard lock(mutex_);
    idle_.reserve(programs_.size() + 1);
    programs_.push_back(program);
    return program;
}

std::shared_ptr<jit::Program> Model::take_program() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            std::shared_ptr<jit::Program> program = std::move(idle_.back());
            idle_.pop_back();
            return program;
        }
    }
    return make_program();
}

void Model::give_back(std::shared_ptr<jit::Program> program) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(program));
}

std::string Model::json(std::string_view what) const {
    std::unique_lock lock(mutex_);
    const std::vector<std::shared_ptr<jit::Program>> programs = programs_;
    lock.unlock();
    if (what == "plan") return json_of(programs.front()->plan());
    if (what == "kernels") return json_of(programs.front()->kernels());
    if (what == "profile") return profiles_json(programs);
    runtime::user_error(
        {.what = cat("there is no report ", what), .fix = "ask for plan, kernels or profile"});
}

// ---- contexts

Context::Context(std::shared_ptr<Model> model)
    : model_(std::move(model)), program_(model_->take_program()) {}

Context::~Context() { model_->give_back(std::move(program_)); }

std::vector<TensorRef> Context::run(std::vector<TensorRef> inputs) {
    const std::vector<Port>& ports = model_->inputs();
    if (inputs.size() != ports.size())
        runtime::user_error({.what = cat("the model was given ", inputs.size(), " inputs"),
                             .why = cat("it has ", ports.size()),
                             .fix = "give each input once"});
    for (size_t i = 0; i < inputs.size(); ++i) {
        const Type &given = inputs[i]->type(), &wanted = ports[i].type;
        if (given.dtype != wanted.dtype || !(given.shape == wanted.shape))
            runtime::user_error(
                {.what = cat("input ", ports[i].name, " is ", to_string(given)),
                 .why = cat("the model has ", to_string(wanted),
                            "; a dumped graph is made for the shapes of the recorded call"),
                 .fix = "convert it, or dump the model with this shape"});
        inputs[i] = runtime::readable_on(model_->device(), inputs[i]);
    }
    return program_->run(inputs);
}

}  // namespace megjit::api
