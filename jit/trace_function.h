// jit/trace_function.h -- what stands behind one decorated function: its options and its versions
// (one record for each combination of input types that was seen), newest use first.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/passes/passes.h"
#include "jit/pending_program.h"
#include "jit/program.h"
#include "jit/record.h"

namespace megjit::jit {

struct TraceOptions {
    std::string name = "the traced function";  // "step (train.py:41)"
    bool symbolic = false;
    bool capture_as_const = false;
    bool record_only = false;
    bool profiling = false;  // programs measure their steps
    bool only_plan = false;  // a call is recorded and planned; it leaves everything as it was
    PipelineOptions pipeline = {};
    size_t max_versions = 16;
};

// What a call is looked up by: the types of its positional tensors, and which of them are one
// tensor.
struct CallKey {
    std::vector<Type> types;
    std::vector<uint32_t> same_as;  // index of the first argument that is this very tensor
    bool operator==(const CallKey&) const = default;
};

// One record and its programs.
struct Version {
    Version() = default;
    Version(const Version&) = delete;  // owns programs, and has a mutex

    Record record;
    CallKey key;
    std::vector<uint32_t> argument_slots;  // outside slot of each positional tensor
    std::string reason;  // why it was recorded: for fn.explain()
    std::vector<Segment> segments;
    std::vector<std::shared_ptr<Program>> programs;  // by segment, compiled when first run
    std::vector<std::unique_ptr<PendingProgram>>
        pending;  // by segment: takes over when its kernels are there
    std::vector<bool> donatable;  // by outside slot, decided when recording ended
    // For dump, kept with capture_as_const only:
    std::vector<RecordId> results;  // what the body returned, flat
    std::vector<TensorRef> captured;  // by slot: what is no argument and yet varies (random keys)
    std::unordered_map<RecordId, std::string> names;  // given by the program
    uint64_t calls = 0;
    double compile_ms = 0;
    // Calls from several threads record alone and replay together; segments run, and programs are
    // made and dropped, one at a time. Never wait for the Python lock while holding it.
    std::mutex mutex;

    // The program of segment `index`, compiled at the first use: the one that runs now, or
    // (`final`) the one with all kernels. `lock` is of `mutex`; it is given up while memory is
    // planned and kernels are waited for, and Ctrl-C may throw then.
    std::shared_ptr<Program> program(uint32_t index, const TraceOptions& options,
                                     std::unique_lock<std::mutex>& lock, bool final = false);
    void drop_program(uint32_t index);

private:
    void begin(uint32_t index, const TraceOptions& options, std::unique_lock<std::mutex>& lock);
    uint64_t drops_ = 0;  // of programs: what was being made meanwhile is of yesterday
};

class TraceFunction {
public:
    explicit TraceFunction(TraceOptions options) : options(std::move(options)) {}

    // The version last used with these types, or null.
    std::shared_ptr<Version> find(const CallKey& key);
    // Why no version fits: for fn.explain().
    std::string reason_for(const CallKey& key) const;
    // Another version that began as `like` did up to `event`, and for which `fits` holds.
    std::shared_ptr<Version> find_alternative(const Version& like, uint32_t event,
                                              const std::function<bool(const Version&)>& fits);
    void add(std::shared_ptr<Version> version);
    void touch(const std::shared_ptr<Version>& version);
    void clear();
    std::string explain() const;

    TraceOptions options;
    mutable std::mutex mutex;  // of `versions`; held for a moment only
    std::deque<std::shared_ptr<Version>> versions;  // newest use first
    uint64_t dropped = 0;  // versions that the bound pushed out
};

}  // namespace megjit::jit
