// jit/api/model.h -- Model: a dumped graph, compiled once; Context: what runs it, one call at a
// time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/api/file.h"
#include "jit/run/pending_program.h"

namespace megjit::api {

struct ModelOptions {
    std::string function = {};  // empty: the file's first
    runtime::Device* device = nullptr;  // null: the host's
    size_t memory_limit = 0;  // bytes of a run; 0: that of the file, or none
    int opt_level = -1;  // 0 to 3; -1: the record's
    std::optional<bool> exact = {};  // numerics="exact"; not given: the record's
    std::string compiler = {};  // empty: MGB_JIT_BACKEND, or the device's best
    bool profile = false;
    bool trusts_kernels = false;  // uses the kernels that the file brings
    int64_t batch = 0;  // size of all inputs; 0: the recorded one
    // Positions in the file's outputs; not given: all.
    std::optional<std::vector<size_t>> outputs = {};
};

// Any thread may run it. All programs are made of one graph, so that they hold the same weights.
class Model {
public:
    // Compiles, and waits for the kernels. Throws OverLimit, or UserError for an option.
    Model(std::shared_ptr<File> file, const ModelOptions& options);

    const std::vector<Port>& inputs() const { return inputs_; }
    const std::vector<Port>& outputs() const { return outputs_; }
    const std::vector<Port>& parameters() const { return parameters_; }
    TensorRef parameter_value(size_t index) const;  // on the host, row-major
    runtime::Device& device() const { return *device_; }
    const std::shared_ptr<File>& file() const { return file_; }

    // "plan", "kernels", "profile" or "metadata"; UserError for another word.
    std::string json(std::string_view what) const;

private:
    friend class Context;
    friend class File;
    std::shared_ptr<jit::Program> make_program();
    std::shared_ptr<jit::Program> take_program();
    void give_back(std::shared_ptr<jit::Program> program) noexcept;

    const std::shared_ptr<File> file_;
    const std::shared_ptr<const jit::Model> function_;
    runtime::Device* device_;
    std::vector<Port> inputs_, outputs_, parameters_;
    const std::shared_ptr<jit::BoundWeights> weights_;
    std::unique_ptr<jit::PendingProgram> pending_;  // makes a program for each context
    runtime::Turn turn_{"the compilation of a model"};  // held to use pending_
    mutable runtime::Mutex mutex_{"the programs of a model"};  // guards what follows
    // One program for each context that lived beside others; idle_ has room for all.
    std::vector<std::shared_ptr<jit::Program>> programs_, idle_;
};

class Context {
public:
    explicit Context(std::shared_ptr<Model> model);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    Model& model() const { return *model_; }

    // Queues a run on inputs by position, on any device: HostView of a result waits. UserError for
    // another number, dtype or shape. `outputs`, as many as the model has: see Program::run. It
    // waits for a bounded one, which becomes a tensor of the rows that count, in the same memory.
    void run(std::span<TensorRef> inputs, std::span<TensorRef> outputs);
    std::vector<TensorRef> run(std::vector<TensorRef> inputs);

private:
    void run_bounded(std::span<TensorRef> inputs, std::span<TensorRef> outputs);

    std::shared_ptr<Model> model_;
    std::shared_ptr<jit::Program> program_;
};

// Asks for all code that a model with these options runs, also for a device that is not there
// (described_gpu). The cache then has what compilers make. Throws OverLimit.
void compile(const File& file, const ModelOptions& options);

}  // namespace megjit::api
