#include "jit/api/model.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>

#include "jit/api/report.h"
#include "jit/file/export.h"
#include "jit/file/other_batch.h"
#include "jit/plan/pipeline.h"
#include "runtime/core/host_view.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"

namespace megjit::api {

using runtime::cat;

namespace {

std::shared_ptr<const jit::Model> with_batch(const std::shared_ptr<const jit::Model>& function,
                                             int64_t batch) {
    if (batch == 0) return function;
    auto resized = std::make_shared<jit::Model>(*function);
    resized->graph = jit::with_batch(*function, batch);
    resized->order.clear();  // the plan is for the recorded batch
    return resized;
}

std::vector<Port> inputs_of(const jit::Model& function) {
    const std::vector<Type> types = function.input_types();
    std::vector<Port> ports;
    for (const std::string& name : function.input_names)
        ports.push_back({name, types[ports.size()]});
    return ports;
}

std::vector<Port> parameters_of(const jit::Model& function) {
    std::vector<Port> ports;
    for (const jit::ValueId id : function.params) {
        const size_t node = jit::at(function.graph.value(id).producer);
        ports.push_back({node < function.node_names.size() ? function.node_names[node] : "",
                         function.graph.type(id)});
    }
    return ports;
}

size_t limit_of(const ModelOptions& options, const jit::Model& function) {
    return options.memory_limit ? options.memory_limit : function.memory_limit;
}

jit::PipelineOptions passes_of(const ModelOptions& options, const jit::Model& function,
                               runtime::Device& device) {
    if (options.opt_level < -1 || options.opt_level > 3)
        runtime::user_error({.what = cat("opt_level is ", options.opt_level),
                             .fix = "it is 0, 1, 2 or 3, or -1 for that of the recorded function"});
    if (!options.compiler.empty()) codegen::refuse_unknown_backend(options.compiler);
    jit::PipelineOptions passes{
        .opt_level = options.opt_level < 0 ? function.opt_level : options.opt_level,
        .exact = options.exact.value_or(function.exact),
        .backend = options.compiler,
        .memory = {.limit = limit_of(options, function), .known_order = function.order},
        .device = &device};
    if (codegen::compile_mode() == codegen::CompileMode::off)
        passes.opt_level = std::min(passes.opt_level, 2);
    return passes;
}

jit::LoweringOptions lowering_of(const ModelOptions& options, const jit::Model& function,
                                 std::shared_ptr<jit::BoundWeights> weights) {
    return {.function = "a loaded model",
            .check = runtime::debug().check,
            .profile = options.profile,
            .memory_limit = limit_of(options, function),
            .arenas = jit::Arenas::make("a loaded model"),
            .weights = std::move(weights)};
}

// Packs constants under a limit, where that leaves room for them.
void with_room_for_weights(jit::PipelineOptions& passes, const std::function<void()>& make) {
    if (!passes.memory.limit) return make();
    passes.binds_under_limit = true;
    try {
        make();
    } catch (const jit::OverLimit&) {
        passes.binds_under_limit = false;
        make();
    }
}

}  // namespace

// ---- models

void compile(const File& file, const ModelOptions& options) {
    const std::shared_ptr<const jit::Model>& function = file.function(options.function);
    const jit::Step step = jit::step_for(*function, *options.device);
    const jit::LoweringOptions lowering = lowering_of(options, *function, nullptr);
    jit::PipelineOptions passes = passes_of(options, *function, *options.device);
    with_room_for_weights(passes, [&] {
        const jit::PreparedGraph made =
            jit::prepare(jit::plan_graph(step, passes, lowering).graph, {}, false);
        if (made.graph.prologue) jit::prepare(*made.graph.prologue, {}, false);
        for (const jit::KeptCopy& copy : made.graph.copies) jit::prepare(*copy.maker, {}, false);
    });
}

Model::Model(std::shared_ptr<File> file, const ModelOptions& options)
    : file_(std::move(file)),
      function_(with_batch(file_->function(options.function), options.batch)),
      device_(options.device ? options.device : &runtime::host_device()),
      inputs_(inputs_of(*function_)),
      parameters_(parameters_of(*function_)),
      weights_(std::make_shared<jit::BoundWeights>(file_->packed())) {
    if (options.trusts_kernels) file_->trust_kernels();
    std::vector<size_t> wanted(function_->output_names.size());
    std::iota(wanted.begin(), wanted.end(), size_t{0});
    if (options.outputs) wanted = *options.outputs;
    const auto step =
        std::make_shared<const jit::Step>(jit::step_for(*function_, *device_, options.outputs));
    for (size_t i = 0; i < wanted.size(); ++i)
        outputs_.push_back({function_->output_names[wanted[i]],
                            step->graph.type(step->graph.outputs[i]), step->outputs[i].counted_by});
    const jit::LoweringOptions lowering = lowering_of(options, *function_, weights_);
    jit::PipelineOptions passes = passes_of(options, *function_, *device_);
    with_room_for_weights(passes, [&] {
        pending_ = std::make_unique<jit::PendingProgram>(step, passes, lowering);
        give_back(make_program());  // a model that cannot be compiled, or does not fit, fails now
    });
    device_->allocator().trim();  // frees what weights were packed from
}

TensorRef Model::parameter_value(size_t index) const {
    return runtime::row_major(function_->graph.producer(function_->params.at(index)).constant);
}

std::shared_ptr<jit::Program> Model::make_program() {
    const runtime::Turn::Held turn = turn_.take();
    std::shared_ptr<jit::Program> program;
    while (!program) {
        codegen::KernelService::instance().wait(pending_->requests(), pending_->deadline());
        program = pending_->finish();
    }
    program->bind_constants();
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
    if (what == "metadata")  // its schema is later than 1, which has pickles
        return function_->metadata.starts_with('{') ? function_->metadata : "null";
    runtime::user_error({.what = cat("there is no report ", what),
                         .fix = "ask for plan, kernels, profile or metadata"});
}

// ---- contexts

Context::Context(std::shared_ptr<Model> model)
    : model_(std::move(model)), program_(model_->take_program()) {}

Context::~Context() { model_->give_back(std::move(program_)); }

void Context::run(std::span<TensorRef> inputs, std::span<TensorRef> outputs) {
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
    if (model_->function_->count(jit::Output::Kind::count)) return run_bounded(inputs, outputs);
    model_->file()->run(*model_->function_, *program_, inputs, outputs);
}

void Context::run_bounded(std::span<TensorRef> inputs, std::span<TensorRef> outputs) {
    std::vector<TensorRef> results(outputs.begin(), outputs.end());
    results.resize(outputs.size() + model_->function_->count(jit::Output::Kind::count));
    model_->file()->run(*model_->function_, *program_, inputs, results);
    for (size_t i = 0; i < outputs.size(); ++i) {
        const Port& port = model_->outputs()[i];
        TensorRef& result = results[i];
        if (port.count >= 0) {
            const runtime::HostView view(results[outputs.size() + static_cast<size_t>(port.count)]);
            Type type = result->type();
            const int64_t rows = *view.as<int32_t>();
            if (rows < 0 || rows > type.shape[0])  // dump() did not write the file
                runtime::user_error({.what = cat("output ", port.name, " has ", rows, " rows"),
                                     .why = cat("its file allows ", type.shape[0]),
                                     .fix = "dump the model anew"},
                                    runtime::ErrorKind::runtime);
            type.shape[0] = rows;
            result = runtime::make_tensor(type, result->storage());
        }
        outputs[i] = std::move(result);
    }
}

std::vector<TensorRef> Context::run(std::vector<TensorRef> inputs) {
    std::vector<TensorRef> outputs(model_->outputs().size());
    run(inputs, outputs);
    return outputs;
}

}  // namespace megjit::api
