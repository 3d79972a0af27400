// jit/run/program.h -- Program: the steps of a layout over an arena, on the stream of the device.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/plan/costs.h"
#include "jit/plan/memory_plan.h"
#include "jit/plan/program_layout.h"
#include "jit/run/arenas.h"
#include "jit/run/bound_weights.h"
#include "runtime/core/spill_file.h"
#include "runtime/host/turn.h"

namespace megjit::jit {

// What one step cost, summed over the profiled runs.
struct StepProfile {
    std::vector<std::string> ops =
        {};  // what the step stands for: one op, all ops of a kernel, or "copy"
    std::string where = {};  // the user's line
    size_t step = 0;  // of MemoryPlan::steps; a copy: the one that it is made for
    std::string backend = {};  // compiler of the kernel; empty: an operation of the device
    size_t bytes = 0;  // read and written by one run
    size_t launches = 0;  // of generated code in one run; an op of the device counts as one
    bool is_transfer = false;  // runs beside the others, on the copy stream
    double seconds = 0;  // of all runs
    double last_begin = 0, last_seconds = 0;  // of the last run, which begins at 0
};
struct Profile {
    uint64_t runs = 0;
    double seconds = 0;  // of all runs; less than the steps' where transfers ran beside the others
    double last_seconds = 0;  // of the last run
    std::vector<StepProfile> steps = {};
};

class Program {
public:
    // Makes every node ready for the graph's device and plans memory, which each run takes.
    // `graph` is that of the step after the passes.
    Program(Graph graph, const Step& step, const LoweringOptions& options);
    ~Program();

    // Queues one run on `inputs` (by slot) and returns the outputs. A donated input whose storage
    // nobody else holds is overwritten. Needs no lock of the host; one run at a time, others wait
    // in turn.
    std::vector<TensorRef> run(std::span<TensorRef> inputs);
    // Computes the value of a given output, of the graph's type, in its memory, if no input or
    // other output has that memory: else a tensor with the value replaces the output.
    void run(std::span<TensorRef> inputs, std::span<TensorRef> outputs);

    // Computes now what depends on constants alone, so that the first run does not.
    void bind_constants();

    const Graph& graph() const { return prepared_.graph; }
    // Is a run worth letting other threads have the host's lock? Not where it is a few kernels over
    // a few kilobytes on the calling thread: to give the lock and take it costs more.
    bool takes_a_while() const { return takes_a_while_; }
    const MemoryPlan& plan() const { return plan_; }
    size_t held_bytes() const;  // about, between runs; without the arena
    Profile profile() const;  // no steps unless LoweringOptions asked for it
    const std::vector<KernelUse>& kernels() const { return prepared_.kernels; }

private:
    using Extent = runtime::SpillFile::Extent;

    // An operand whose address each run tells.
    struct Patch {
        uint32_t operand = 0;  // into operands_
        uint32_t source = 0;  // slot or result
        size_t offset = 0;
    };
    // What one run holds; its lists keep their memory for the next.
    struct Call {
        std::span<TensorRef> given, outputs;
        std::vector<TensorRef> kept = {};  // by graph().copies: what this run reads
        std::vector<void*> data = {};  // by slot; then what the prologue gave, then `kept`
        std::vector<runtime::Ref<runtime::Storage>> results = {}, copies = {};
        std::vector<std::shared_ptr<Extent>> extents = {};  // by layout_.slots_outside
    };

    Arenas::Lease take_arena();
    void resolve_operands();
    void move_arena(std::byte* to);
    void start_profile();
    runtime::Stream& beside() const;
    void bind(std::span<const TensorRef> inputs);
    void take_copies();
    TensorRef kept_copy(const KeptCopy& copy) const;
    void keep_copies();
    const TensorRef& input(size_t slot) const;
    bool owns(size_t slot) const;
    void open_file();
    void move_inputs_outside();
    void take_inputs();
    void take_results();
    void patch();
    bool takes_result(const TensorRef& output, ValueId value) const;
    runtime::Ref<runtime::Storage> place_of_result(size_t result);
    runtime::Ref<runtime::Storage> allocate_result(ValueId value);
    runtime::Ref<runtime::Storage> copy_of(const Type& type, const void* data);
    void enqueue_named(const ProgramLayout::Step& step, runtime::Stream& stream);
    void enqueue_steps();
    void enqueue_all();
    void note_times();
    void give_outputs();
    void end_call();
    const TensorRef& constant(uint32_t value);

    std::string function_;
    PreparedGraph prepared_;
    ProgramLayout layout_;
    MemoryPlan plan_;
    runtime::Device& device_;
    std::vector<void*> operands_;  // as layout_.operands
    std::vector<Patch> input_patches_, output_patches_, arena_patches_;
    std::vector<bool> survives_;  // by result: does it hold the old value if the run fails?
    Call call_;  // of the thread whose turn it is
    std::unique_ptr<runtime::Stream::Kept> kept_;
    bool is_repeated_ = false;  // all runs on one stream, without a look at the clock
    bool takes_a_while_ = true;
    std::vector<runtime::Ticket> past_;  // by step: of a transfer
    std::unordered_map<uint32_t, TensorRef> constants_;  // by value: on the device
    const std::shared_ptr<Arenas> arenas_;
    std::byte* arena_ = nullptr;  // of this run, or of the run before
    size_t most_idle_ = SIZE_MAX;  // bytes that arenas may have beside a run
    std::shared_ptr<std::byte[]> host_arena_;
    std::string spill_;  // the folder
    // Where the program moves values; null: it moves none.
    std::shared_ptr<runtime::SpillFile> file_;
    std::shared_ptr<Extent> file_arena_;  // in place of the host's
    const std::shared_ptr<BoundWeights> weights_;
    std::vector<TensorRef> bound_;  // what the prologue gave
    std::atomic<size_t> bound_bytes_ = 0;  // of those values that no other program held before
    // Slots that the prologue reads, and the ids of the tensors that they held.
    std::vector<std::pair<size_t, uint64_t>> bound_ids_;
    // When the last profiled run and its steps began and ended.
    struct Clock {
        runtime::Ticket begin = 0, end = 0;
        runtime::Ticket begin_of_transfers = 0;  // the same moment, on their stream
        std::vector<std::pair<runtime::Ticket, runtime::Ticket>> steps;
    };

    bool is_profiled_ = false;
    bool is_first_run_out_ = false;  // profile_ does not count it any more
    Clock clock_;
    Profile profile_;  // a row for each step, or none
    mutable runtime::Mutex profile_mutex_{"a profile"};  // a report does not wait for a run
    std::vector<ProfiledTimes::Row*> times_;  // by step, as profile_; null: no op of its own
    runtime::Turn turn_{"a run of a traced function"};
};

}  // namespace megjit::jit
