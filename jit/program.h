// jit/program.h -- Program: a flat list of (executable, operands) over one planned arena.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "codegen/compiler.h"
#include "jit/graph.h"
#include "jit/step_times.h"
#include "memory/inplace.h"
#include "runtime/device.h"

namespace megjit::jit {

// What a buffer is to a training step: the colours of the pictures. It follows the first value that
// lies there.
enum class BufferUse : uint8_t {
    input,
    parameter,
    constant,
    activation,
    gradient,
    recomputed,
    workspace
};

// One buffer of the plan, for fn.memory_plan() and the pictures.
struct PlannedBuffer {
    memory::Place place = memory::Place::kArena;
    size_t offset = 0;  // bytes from the arena's start; on the host: from that of the host's
    size_t bytes = 0;
    memory::Lifetime live = {};
    BufferUse use = BufferUse::activation;
    std::vector<std::string> values = {};  // "%3 relu f32[8, 64] model.py:41"
};

// One of the plans that a search found: what a call takes, and what its steps are estimated to
// cost.
struct CurvePoint {
    size_t bytes = 0;  // as planned_bytes, before kernels join steps
    double seconds = 0;
    bool is_chosen = false;
};

struct MemoryPlan {
    size_t unplanned_bytes = 0;  // one buffer per recorded value
    size_t planned_bytes = 0;  // inputs, state, outputs and the arena
    size_t peak_live_bytes = 0;  // the lower bound
    size_t arena_bytes = 0;
    size_t workspace_bytes = 0;  // part of the arena
    size_t host_bytes = 0;  // of the host's memory, for what waits there: beside planned_bytes
    size_t transferred_bytes = 0;  // to the host and back in one call
    double recompute_flops_ratio = 0;
    std::vector<PlannedBuffer> buffers = {};
    std::vector<std::string> steps = {};  // what runs at each step
    std::vector<CurvePoint> curve =
        {};  // from the cheapest to the smallest; empty where none was searched for
};

struct LoweringOptions {
    std::string function = "a compiled graph";  // "step (train.py:41)", for errors
    bool check = false;  // MEGJIT_CHECK: validate the plan, compare kernels with the interpreter
    std::vector<bool> donatable = {};  // by slot: the caller gives its last reference
    std::vector<bool> is_parameter = {};  // by slot: from outside, and no argument
    bool profile = false;  // measure the time of each step
    bool only_plan = false;  // allocate nothing: plan() can be asked, run() cannot
    std::vector<CurvePoint> curve = {};  // for the plan; bytes of the arena
    // For each fused node, in order; null: the device runs it without generated code
    // (codegen/launcher.h). Not given: the service is asked for each.
    std::optional<std::vector<std::shared_ptr<const codegen::CompiledKernel>>> kernels = {};
};

// A generated kernel and one place where the program runs it.
struct KernelUse {
    std::shared_ptr<const codegen::CompiledKernel> compiled;
    std::vector<std::string> ops = {};
    std::string where = {};
    size_t bytes = 0;  // read and written by one run
};

// What one step cost, summed over the profiled runs.
struct StepProfile {
    std::vector<std::string> ops =
        {};  // what the step stands for: one op, all ops of a kernel, or "copy"
    std::string where = {};  // the user's line
    size_t step = 0;  // of MemoryPlan::steps; a copy: the one that it is made for
    std::string backend = {};  // compiler of the kernel; empty: an operation of the device
    size_t bytes = 0;  // read and written by one run
    double seconds = 0;
};
struct Profile {
    uint64_t runs = 0;
    std::vector<StepProfile> steps = {};
};

class Program {
public:
    // Prepares every node for `device`, plans memory. `recorded` is the graph before the passes:
    // what unplanned_bytes counts.
    Program(Graph graph, const Graph& recorded, runtime::Device& device,
            const LoweringOptions& options);
    ~Program();

    // Runs on `inputs` (by slot) and returns the outputs. A donated input whose storage nobody else
    // holds is overwritten. Holds no Python lock; one run at a time, others wait.
    std::vector<TensorRef> run(std::span<TensorRef> inputs);

    const Graph& graph() const { return graph_; }
    const MemoryPlan& plan() const { return plan_; }
    Profile profile();  // no steps unless LoweringOptions asked for it
    const std::vector<KernelUse>& kernels() const { return kernels_; }

private:
    struct Step {
        std::shared_ptr<const runtime::Executable> executable = {};  // null: copy of copy_bytes
        size_t copy_bytes = 0;
        uint32_t first_operand = 0;  // into operands_: inputs, then outputs
        uint32_t inputs = 0;
        size_t workspace = 0;  // offset in the arena
    };
    // Where an operand's address comes from: known now, or patched at each run.
    struct Patch {
        uint32_t operand = 0;  // into operands_
        uint32_t source = 0;  // slot or output
        size_t offset = 0;
    };
    struct Result {
        Type type;
        enum class From : uint8_t { fresh, donated } from = From::fresh;
        uint32_t source = 0;  // donated: slot
        ValueId value = {};
    };
    void plan_memory(const Graph& recorded, const LoweringOptions& options);
    void allocate_arena();
    runtime::Ref<runtime::Storage> allocate_result(const Result& result);
    runtime::Ref<runtime::Storage> allocate_copy(const Type& type);
    void run_step(const Step& step);
    void run_profiled_steps();
    void bind(std::span<const TensorRef> inputs);
    std::shared_ptr<const runtime::Executable> prepare_fused(const Node& node,
                                                             const LoweringOptions& options,
                                                             size_t index);
    StepProfile profile_of(const Node& node) const;

    Graph graph_;
    std::string function_;
    runtime::Device& device_;
    bool is_profiled_ = false;
    MemoryPlan plan_;
    Profile profile_;  // a row for each of steps_, or none
    std::vector<StepTimes::Row*> times_;  // by step, as profile_; null: no op of its own
    std::vector<Step> steps_;
    std::vector<void*> operands_;
    std::vector<Patch> input_patches_, output_patches_;
    std::vector<Result> results_;  // distinct output buffers
    std::vector<uint32_t> overwritten_;  // slots whose storage holds temporary values only
    std::vector<int>
        result_of_output_;  // graph output -> results_, or -1 - slot for an input passed through
    std::vector<KernelUse> kernels_;
    void* arena_ = nullptr;
    size_t arena_bytes_ = 0;
    std::unique_ptr<std::byte[]> host_arena_;
    std::vector<TensorRef> bound_;  // what the prologue gave
    std::vector<uint64_t> bound_ids_;  // of the tensors that it read
    std::mutex mutex_;
};

}  // namespace megjit::jit
