// jit/trace/trace_function.h -- what stands behind one decorated function: its options and its
// versions (one record for each combination of input types that was seen), newest use first.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/plan/passes/passes.h"
#include "jit/plan/pipeline.h"
#include "jit/plan/step_costs.h"
#include "jit/run/pending_program.h"
#include "jit/run/program.h"
#include "jit/trace/file_notes.h"
#include "jit/trace/kept_versions.h"
#include "jit/trace/record.h"
#include "runtime/host/turn.h"

namespace megjit::jit {

struct TraceOptions {
    std::string name = "the traced function";  // "step (train.py:41)"
    bool symbolic = false;
    bool symbolic_shape = true;  // x.shape is a Tensor in the body
    bool capture_as_const = false;
    bool record_only = false;
    bool profiling = false;  // programs measure their steps
    bool records_mismatches = false;  // a body that does something else makes another version
    bool only_plan = false;  // a call is recorded and planned; it leaves everything as it was
    PipelineOptions pipeline = {};
    size_t version_bytes = size_t{512} << 20;  // versions may hold so much in all, beside the arena
};

// What a call is looked up by: the types of its positional tensors, and which of them are one
// tensor.
struct CallKey {
    struct Argument {
        Type type = {};
        const runtime::Device* device = nullptr;
        uint32_t same_as = 0;  // index of the first argument that is this very tensor
        bool operator==(const Argument&) const = default;
    };
    std::vector<Argument> arguments = {};
    size_t hash = 0;  // of `arguments`
    bool operator==(const CallKey& other) const {
        return hash == other.hash && arguments == other.arguments;
    }
    bool describes(std::span<const TensorRef> others) const;  // are they of such a call?
};
CallKey key_of(std::span<const TensorRef> arguments);
size_t hash_of(std::span<const TensorRef> arguments);  // of their key

// A segment and the program that runs it.
struct CompiledSegment {
    std::shared_ptr<const Step> step;
    std::shared_ptr<Program> program;

    // Runs it on values of the record: `bound` by slot, `made` by earlier segments, by id. Takes
    // what it reads out of `bound`, so that the program may take storage over; `bound` has it
    // back when the run fails.
    std::vector<TensorRef> run(const Record& record, std::vector<TensorRef>& bound,
                               const std::vector<TensorRef>& made = {}) const;
};

// A segment as it would run on a device that is for plans alone.
struct SegmentPlan {
    MemoryPlan plan;
    std::vector<StepCost> costs;  // a row for each step of the plan
};

// One record and its programs. Several threads may call it at once: they take programs out, which
// stay whole while others take their place.
class Version {
public:
    Record record;  // once others see the version, only what a call keeps and rebinds changes, by
                    // add_outputs() and set_updates()
    CallKey key;
    std::string reason;  // why it was recorded: for fn.explain()
    std::atomic<bool> retypes = false;  // what it rebinds gets another type, for which later calls
                                        // make another version
    FileNotes notes;  // for dump
    std::atomic<bool> came_back = false;  // a call used it again (KeptVersions)
    std::atomic<bool> has_left = false;  // the function keeps it no longer
    std::atomic<uint64_t> calls = 0;
    std::atomic<double> compile_ms = 0;

    // Memory of the function, for all its programs.
    std::shared_ptr<Arenas> arenas;
    std::shared_ptr<BoundWeights> weights;

    std::vector<RecordId> arguments() const;  // by positional tensor: the value that stands for it
    // Segment `index`, compiled at the first use, with the program that runs now, or (`final`) the
    // one with all kernels. No lock is held while memory is planned and kernels are waited for, and
    // Ctrl-C may throw then.
    CompiledSegment compiled(uint32_t index, const TraceOptions& options, bool final = false);
    // Gives the segment if it has all kernels already, else no program.
    CompiledSegment compiled_before(uint32_t index) const;
    std::vector<CompiledSegment> all_compiled(const TraceOptions& options);  // final ones
    // Plans for another device than the record's, one that is for plans alone
    // (Device::is_for_plans).
    std::vector<SegmentPlan> planned_on(runtime::Device& device, const TraceOptions& options) const;
    size_t held_bytes() const;  // about; without the arena
    // The segments that have a program now, for callers that do not want to wait.
    std::vector<CompiledSegment> compiled_so_far() const;
    // Changes of bits in its programs, by passes that do not keep every bit, which run again here.
    std::vector<BitChange> bit_changes(const TraceOptions& options) const;
    // These values are results from here on, because a call keeps them. It returns false
    // and does nothing where another segment than the last would have to give one.
    bool add_outputs(std::span<const RecordId> values);
    // Takes what the call at hand rebinds, each value once. Calls rebind alike, or the last segment
    // is compiled again.
    void set_updates(std::vector<Output> updates);
    // The record's first events, as another version begins that goes on differently.
    Record prefix(uint32_t events) const;

private:
    struct Slot : CompiledSegment {
        std::shared_ptr<PendingProgram> pending;  // takes over when its kernels are there
    };
    // These need the turn:
    bool make(uint32_t index, const TraceOptions& options, bool waits);
    void begin(uint32_t index, const TraceOptions& options);
    void drop(uint32_t index);
    void give(uint32_t index, uint64_t drops, std::shared_ptr<Program> program, bool is_final);
    LoweringOptions lowering_of(const TraceOptions& options) const;
    static PipelineOptions passes_of(const Step& step, const TraceOptions& options);
    std::vector<Slot> slots_;  // by segment
    uint64_t drops_ = 0;  // counts dropped programs: a program that was begun before is not taken
    mutable runtime::Mutex mutex_{"the programs of a version"};  // the two above
    // The thread that makes programs has it; others may drop programs meanwhile.
    runtime::Turn turn_{"the compilation of a traced function"};
};

class TraceFunction {
public:
    explicit TraceFunction(TraceOptions options)
        : options(std::move(options)), arenas_(Arenas::make(this->options.name)) {}

    // The version last used with these types, or null.
    std::shared_ptr<Version> find(const CallKey& key);
    size_t count_like(const CallKey& key) const;  // versions for these types
    bool always_retypes(const CallKey& key) const;  // each of them changes types (Version::retypes)
    // Why no version fits: for fn.explain().
    std::string reason_for(const CallKey& key) const;
    // Another version that began as `like` did up to `event`, and for which `fits` holds.
    std::shared_ptr<Version> find_alternative(const Version& like, uint32_t event,
                                              const std::function<bool(const Version&)>& fits);
    void lend_memory(Version& version) const;  // before its programs are made
    void add(std::shared_ptr<Version> version);
    void note_use(const std::shared_ptr<Version>& version);  // a call has ended well
    uint64_t dropped() const;  // counts versions dropped for TraceOptions::version_bytes
    // Returns whether versions have left since the last time that this was asked.
    bool take_left() { return has_left_.exchange(false); }
    void forget(const CallKey& key);  // drops what was recorded for such calls
    // Before the first call: the memory of functions that run one after the other.
    void share_arena(const TraceFunction& other) { arenas_ = other.arenas_; }
    void keep_idle_arenas_within(size_t bytes) { arenas_->keep_idle_within(bytes); }
    void clear();
    std::string explain() const;

    std::vector<std::shared_ptr<Version>> versions() const;  // newest use first
    size_t version_count() const;
    std::shared_ptr<Version> latest() const;  // what the last call ran, or null
    // The segments of the latest version with all kernels, for which the call waits. UserError
    // before the first call.
    std::vector<CompiledSegment> compiled() const;
    std::vector<SegmentPlan> planned_on(runtime::Device& device) const;  // likewise

    const TraceOptions options;

private:
    std::shared_ptr<Arenas> arenas_;
    const std::shared_ptr<BoundWeights> weights_ = std::make_shared<BoundWeights>();
    mutable runtime::Mutex mutex_{"the versions of a function"};
    KeptVersions versions_;
    std::atomic<bool> has_left_ = false;
    std::shared_ptr<Version> latest_;
};

}  // namespace megjit::jit
