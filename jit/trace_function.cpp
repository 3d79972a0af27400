#include "jit/trace_function.h"

#include <algorithm>
#include <chrono>

#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::jit {

void Version::begin(uint32_t index, const TraceOptions& options,
                    std::unique_lock<std::mutex>& lock) {
    segments[index] = extract_segment(record, index);
    const Segment& segment = segments[index];
    LoweringOptions lowering{.function = options.name,
                             .check = runtime::debug().check,
                             .profile = options.profiling,
                             .only_plan = options.only_plan};
    for (RecordId input : segment.inputs) {
        const RecordedValue& value = record.values[input];
        const bool is_argument = std::find(argument_slots.begin(), argument_slots.end(),
                                           value.slot) != argument_slots.end();
        lowering.is_parameter.push_back(value.origin == Origin::outside && !is_argument);
    }
    // Only the last segment runs when the caller has let go of what it has rebound.
    if (index + 1 == record.segments)
        for (RecordId input : segment.inputs) {
            const RecordedValue& value = record.values[input];
            lowering.donatable.push_back(value.origin == Origin::outside &&
                                         value.slot < donatable.size() && donatable[value.slot]);
        }
    PipelineOptions passes = options.pipeline;
    if (codegen::compile_mode() == codegen::CompileMode::off) {
        passes.opt_level = std::min(passes.opt_level, 2);
        passes.fuse = false;
    }
    // The arenas of all segments are held together.
    for (size_t other = 0; other < programs.size() && passes.memory.limit; ++other)
        if (other != index && programs[other])
            passes.memory.limit -=
                std::min(passes.memory.limit - 1, programs[other]->plan().arena_bytes);
    passes.device = &runtime::default_device();
    passes.donatable = lowering.donatable;
    for (size_t i = 0; i < lowering.is_parameter.size(); ++i)
        passes.fixed.push_back(lowering.is_parameter[i] &&
                               !(i < lowering.donatable.size() && lowering.donatable[i]));
    passes.measured_costs = options.profiling;  // others are planned alike in every process
    auto graph = std::make_shared<const Graph>(segment.graph);
    const uint64_t drops = drops_;
    lock.unlock();  // a search may take long, and Ctrl-C needs the Python lock
    auto made = std::make_unique<PendingProgram>(std::move(graph), passes, std::move(lowering));
    lock.lock();
    if (drops == drops_ && !programs[index] && !pending[index]) pending[index] = std::move(made);
}

std::shared_ptr<Program> Version::program(uint32_t index, const TraceOptions& options,
                                          std::unique_lock<std::mutex>& lock, bool final) {
    if (index < programs.size() && programs[index] && !pending[index]) return programs[index];
    // What fits with kernels may not fit without.
    const bool waits = final || codegen::compile_mode() == codegen::CompileMode::sync ||
                       options.pipeline.memory.limit;
    for (;;) {
        programs.resize(record.segments);
        pending.resize(record.segments);
        segments.resize(record.segments);
        if (programs[index] && !pending[index]) return programs[index];
        const auto start = std::chrono::steady_clock::now();
        if (!pending[index]) {
            begin(index, options, lock);
        } else if (pending[index]->is_ready()) {
            programs[index].reset();  // its arena first
            programs[index] = pending[index]->finish();
            if (programs[index]) pending[index].reset();
        } else if (!waits && !programs[index]) {
            programs[index] = pending[index]->without_kernels();
        }
        if (pending[index] && waits) {
            const codegen::KernelRequests requests = pending[index]->requests();
            const auto until = pending[index]->deadline();
            lock.unlock();  // others may replay, and Ctrl-C needs the Python lock
            codegen::KernelService::instance().wait(requests, until);
            lock.lock();
        }
        compile_ms +=
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                .count();
        if (!waits && programs[index]) return programs[index];
    }
}

void Version::drop_program(uint32_t index) {
    if (index < programs.size()) programs[index].reset();
    if (index < pending.size()) pending[index].reset();
    ++drops_;
}

std::string TraceFunction::reason_for(const CallKey& key) const {
    const std::lock_guard lock(mutex);
    if (versions.empty()) return "it was the first call";
    const CallKey& last = versions.front()->key;
    if (last.types.size() != key.types.size())
        return runtime::cat("the call has ", key.types.size(), " tensors, not ", last.types.size());
    for (size_t i = 0; i < key.types.size(); ++i)
        if (!(key.types[i] == last.types[i]))
            return runtime::cat("argument ", i, " is ", to_string(key.types[i]), ", not ",
                                to_string(last.types[i]));
    return "two arguments are one tensor, or no longer are";
}

std::shared_ptr<Version> TraceFunction::find(const CallKey& key) {
    const std::lock_guard lock(mutex);
    for (const auto& version : versions)
        if (version->key == key) return version;
    return nullptr;
}

std::shared_ptr<Version> TraceFunction::find_alternative(
    const Version& like, uint32_t event, const std::function<bool(const Version&)>& fits) {
    const std::lock_guard lock(mutex);
    for (const auto& version : versions)
        if (version.get() != &like && version->record.same_prefix(like.record, event) &&
            fits(*version))
            return version;
    return nullptr;
}

void TraceFunction::add(std::shared_ptr<Version> version) {
    std::vector<std::shared_ptr<Version>> old;  // goes after the lock
    const std::lock_guard lock(mutex);
    versions.push_front(std::move(version));
    while (versions.size() > options.max_versions) {
        old.push_back(std::move(versions.back()));
        versions.pop_back();
        ++dropped;
    }
}

void TraceFunction::touch(const std::shared_ptr<Version>& version) {
    const std::lock_guard lock(mutex);
    auto found = std::find(versions.begin(), versions.end(), version);
    if (found == versions.end() || found == versions.begin()) return;
    std::rotate(versions.begin(), found, found + 1);
}

void TraceFunction::clear() {
    std::deque<std::shared_ptr<Version>> old;  // goes after the lock
    const std::lock_guard lock(mutex);
    old.swap(versions);
}

std::string TraceFunction::explain() const {
    const std::lock_guard lock(mutex);
    std::string text =
        runtime::cat(versions.size(), versions.size() == 1 ? " version" : " versions");
    if (dropped)
        text += runtime::cat(" (", dropped, " older ones were dropped; at most ",
                             options.max_versions, " are kept)");
    text += "\n";
    for (const auto& version : versions) {
        std::string types;
        for (const Type& type : version->key.types)
            types += (types.empty() ? "" : ", ") + to_string(type);
        text += runtime::cat("  (", types, "): ", version->record.ops.size(), " ops, ",
                             version->record.segments, " segment(s), ", version->calls,
                             " replays, compiled in ", static_cast<int>(version->compile_ms),
                             " ms; recorded because ", version->reason, "\n");
    }
    return text;
}

}  // namespace megjit::jit
