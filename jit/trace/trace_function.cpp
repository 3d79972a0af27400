#include "jit/trace/trace_function.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>

#include "jit/trace/first_places.h"
#include "runtime/eager/prepared_ops.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/size_text.h"

namespace megjit::jit {

namespace {

// "cancel (true_div at train.py:41)"
std::string in_words(const BitChange& change) {
    constexpr size_t kShown = 3;
    std::string ops;
    for (size_t i = 0; i < std::min(change.ops.size(), kShown); ++i)
        ops += (i ? ", " : "") + change.ops[i];
    if (change.ops.size() > kShown)
        ops += runtime::cat(" and ", change.ops.size() - kShown, " more");
    return std::string(change.pass) + (ops.empty() ? "" : " (" + ops + ")");
}

}  // namespace

CallKey key_of(std::span<const TensorRef> arguments) {
    CallKey key;
    key.arguments.reserve(arguments.size());
    FirstPlaces places(arguments.size());
    for (const TensorRef& argument : arguments) {
        key.arguments.push_back(
            {argument->type(), &argument->device(), places.add(argument->id())});
    }
    key.hash = hash_of(arguments);
    return key;
}

size_t hash_of(std::span<const TensorRef> arguments) {
    size_t hash = 0;
    for (const TensorRef& argument : arguments) hash = hash_value(argument->type(), hash);
    return hash;
}

bool CallKey::describes(std::span<const TensorRef> others) const {
    if (others.size() != arguments.size()) return false;
    FirstPlaces places(others.size());
    for (size_t i = 0; i < others.size(); ++i)
        if (!(others[i]->type() == arguments[i].type) ||
            &others[i]->device() != arguments[i].device ||
            places.add(others[i]->id()) != arguments[i].same_as)
            return false;
    return true;
}

std::vector<TensorRef> CompiledSegment::run(const Record& record, std::vector<TensorRef>& bound,
                                            const std::vector<TensorRef>& made) const {
    std::vector<TensorRef> inputs;
    inputs.reserve(step->inputs.size());
    for (const Input& input : step->inputs)
        inputs.push_back(input.kind == Input::Kind::made
                             ? made[at(input.value)]
                             : std::move(bound[record[input.value].slot]));
    try {
        return program->run(inputs);
    } catch (...) {
        for (size_t i = 0; i < inputs.size(); ++i)
            if (const Input& input = step->inputs[i]; input.kind != Input::Kind::made)
                bound[record[input.value].slot] = std::move(inputs[i]);
        throw;
    }
}

LoweringOptions Version::lowering_of(const TraceOptions& options) const {
    return {.function = options.name,
            .check = runtime::debug().check,
            .profile = options.profiling,
            .memory_limit = options.pipeline.memory.limit,
            .spill = options.pipeline.memory.spill,
            .arenas = arenas,
            .weights = weights};
}

std::vector<RecordId> Version::arguments() const {
    std::vector<RecordId> values;
    size_t slots = 0;
    for (const CallKey::Argument& argument : key.arguments)
        values.push_back(argument.same_as == values.size() ? record.inputs[slots++].value
                                                           : values[argument.same_as]);
    return values;
}

void Version::set_updates(std::vector<Output> updates) {
    Slot old;  // goes after the lock
    const std::lock_guard lock(mutex_);
    if (updates == record.outputs) return;
    record.outputs = std::move(updates);
    if (!slots_.empty()) old = std::exchange(slots_.back(), {});
    ++drops_;
}

PipelineOptions Version::passes_of(const Step& step, const TraceOptions& options) {
    PipelineOptions passes = options.pipeline;
    if (codegen::compile_mode() == codegen::CompileMode::off) {
        passes.opt_level = std::min(passes.opt_level, 2);
        passes.fuse = false;
    }
    passes.device = &step.graph.device();
    passes.step = &step;
    passes.measured_costs = options.profiling;  // others are planned alike in every process
    return passes;
}

void Version::begin(uint32_t index, const TraceOptions& options) {
    std::unique_lock lock(mutex_);
    const uint64_t drops = drops_;
    const Record now = record;
    lock.unlock();
    const auto step = std::make_shared<const Step>(extract_segment(now, index));
    auto made =
        std::make_shared<PendingProgram>(step, passes_of(*step, options), lowering_of(options));
    lock.lock();
    if (drops != drops_) return;
    slots_[index].step = step;
    slots_[index].pending = std::move(made);
}

void Version::give(uint32_t index, uint64_t drops, std::shared_ptr<Program> program,
                   bool is_final) {
    if (!program) return;
    std::unique_lock lock(mutex_);
    if (drops != drops_) return;  // the record has changed since
    slots_[index].program.swap(program);
    if (is_final) slots_[index].pending.reset();
    lock.unlock();
    if (!program) return;
    runtime::Allocator& allocator = program->graph().device().allocator();
    program.reset();
    allocator.trim();  // the old program's memory is not kept beside the new one's
}

void Version::drop(uint32_t index) {
    std::shared_ptr<Program> old;  // goes after the lock
    const std::lock_guard lock(mutex_);
    old.swap(slots_[index].program);
}

// Takes one step towards a program. True where there is a program for this call.
bool Version::make(uint32_t index, const TraceOptions& options, bool waits) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<PendingProgram> pending = slots_[index].pending;
    const bool has_program = slots_[index].program != nullptr;
    const uint64_t drops = drops_;
    lock.unlock();
    const bool is_ready = pending && pending->is_ready();
    if (has_program && (!pending || (!waits && !is_ready))) return true;
    if (is_ready) {
        drop(index);  // frees what the old program holds first
        give(index, drops, pending->finish(), true);
    } else if (!pending) {
        begin(index, options);
    } else if (waits) {
        codegen::KernelService::instance().wait(pending->requests(), pending->deadline());
    } else {
        give(index, drops, pending->without_kernels(), false);
    }
    return false;
}

CompiledSegment Version::compiled_before(uint32_t index) const {
    const std::lock_guard lock(mutex_);
    const bool is_final = index < slots_.size() && !slots_[index].pending;
    return is_final ? CompiledSegment(slots_[index]) : CompiledSegment();
}

CompiledSegment Version::compiled(uint32_t index, const TraceOptions& options, bool final) {
    // What fits with kernels may not fit without.
    const bool waits = final || codegen::compile_mode() == codegen::CompileMode::sync ||
                       options.pipeline.memory.limit;
    const auto current = [&](bool may_be_pending) {
        const std::lock_guard lock(mutex_);
        slots_.resize(record.segments());
        const Slot& slot = slots_[index];
        return slot.program && (may_be_pending || !slot.pending) ? CompiledSegment(slot)
                                                                 : CompiledSegment();
    };
    if (CompiledSegment there = current(false); there.program) return there;
    std::optional<runtime::Turn::Held> turn = turn_.try_take();
    if (!turn && !waits)  // another thread makes it
        if (CompiledSegment there = current(true); there.program) return there;
    if (!turn) turn.emplace(turn_.take());
    const runtime::Planning planning;  // for the passes and for the program
    for (;;) {
        const auto start = std::chrono::steady_clock::now();
        const bool is_made = make(index, options, waits);
        compile_ms = compile_ms + std::chrono::duration<double, std::milli>(
                                      std::chrono::steady_clock::now() - start)
                                      .count();
        if (!is_made) continue;
        if (CompiledSegment there = current(!waits); there.program) return there;
    }
}

std::vector<CompiledSegment> Version::all_compiled(const TraceOptions& options) {
    std::vector<CompiledSegment> result;
    for (uint32_t i = 0; i < record.segments(); ++i) result.push_back(compiled(i, options, true));
    return result;
}

std::vector<SegmentPlan> Version::planned_on(runtime::Device& device,
                                             const TraceOptions& options) const {
    std::vector<SegmentPlan> plans;
    std::unique_lock lock(mutex_);
    const Record now = record;
    lock.unlock();
    for (uint32_t index = 0; index < now.segments(); ++index) {
        Step step = extract_segment(now, index);
        step.graph.set_device(device);
        PlannedGraph planned = plan_graph(step, passes_of(step, options), lowering_of(options));
        const PreparedGraph prepared = prepare_to_plan(std::move(planned.graph), {});
        const ProgramLayout layout = lay_out(prepared, plan_buffers(prepared, step, false));
        plans.push_back({std::move(planned.plan), step_costs(prepared, layout)});
    }
    return plans;
}

size_t Version::held_bytes() const {
    constexpr size_t kOfAnOp = 512;  // a record's
    size_t bytes = record.op_count() * kOfAnOp;
    for (const CompiledSegment& compiled : compiled_so_far())
        bytes += compiled.program->held_bytes();
    return bytes;
}

std::vector<CompiledSegment> Version::compiled_so_far() const {
    const std::lock_guard lock(mutex_);
    std::vector<CompiledSegment> result;
    for (const Slot& slot : slots_)
        if (slot.program) result.push_back(slot);
    return result;
}

std::vector<BitChange> Version::bit_changes(const TraceOptions& options) const {
    std::vector<BitChange> changes;
    for (const CompiledSegment& compiled : compiled_so_far()) {
        const Step& step = *compiled.step;
        for (BitChange& change : jit::bit_changes(step.graph, passes_of(step, options)))
            changes.push_back(std::move(change));
    }
    return changes;
}

bool Version::add_outputs(std::span<const RecordId> values) {
    Slot old;  // goes after the lock
    const std::lock_guard lock(mutex_);
    std::vector<RecordId> added;
    for (RecordId id : values)
        if (!record[id].is_output) added.push_back(id);
    for (RecordId id : added)
        if (record.segment_of(id) + 1 != record.segments()) return false;
    if (added.empty()) return true;
    for (RecordId id : added) record[id].is_output = true;
    if (!slots_.empty()) old = std::exchange(slots_.back(), {});
    ++drops_;
    return true;
}

Record Version::prefix(uint32_t events) const {
    const std::lock_guard lock(mutex_);
    return record.prefix(events);
}

std::string TraceFunction::reason_for(const CallKey& key) const {
    const std::lock_guard lock(mutex_);
    const VersionRef newest = versions_.newest();
    if (!newest) return "it was the first call";
    const auto &now = key.arguments, &last = newest->key.arguments;
    if (last.size() != now.size())
        return runtime::cat("the call has ", now.size(), " tensors, not ", last.size());
    for (size_t i = 0; i < now.size(); ++i)
        if (!(now[i].type == last[i].type))
            return runtime::cat("argument ", i, " is ", to_string(now[i].type), ", not ",
                                to_string(last[i].type));
    for (size_t i = 0; i < now.size(); ++i)
        if (now[i].device != last[i].device)
            return runtime::cat("argument ", i, " is on ", now[i].device->name(), ", not on ",
                                last[i].device->name());
    return "two arguments are one tensor, or no longer are";
}

size_t TraceFunction::count_like(const CallKey& key) const {
    const std::lock_guard lock(mutex_);
    return versions_.like(key).size();
}

bool TraceFunction::always_retypes(const CallKey& key) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(versions_.like(key),
                               [](const auto& version) -> bool { return version->retypes; });
}

std::shared_ptr<Version> TraceFunction::find(const CallKey& key) {
    const std::lock_guard lock(mutex_);
    return versions_.find(key);
}

std::shared_ptr<Version> TraceFunction::find_alternative(
    const Version& other, uint32_t event, const std::function<bool(const Version&)>& fits) {
    std::vector<std::shared_ptr<Version>> versions;  // constants are compared without the lock
    {
        const std::lock_guard lock(mutex_);
        versions = versions_.like(other.key);
    }
    for (const auto& version : versions)
        if (version.get() != &other && version->record.same_prefix(other.record, event) &&
            fits(*version))
            return version;
    return nullptr;
}

void TraceFunction::lend_memory(Version& version) const {
    version.arenas = arenas_;
    version.weights = weights_;
}

void TraceFunction::add(std::shared_ptr<Version> version) {
    std::vector<VersionRef> left;  // goes after the lock
    const std::shared_ptr<Version> before = latest();
    const size_t bytes = before ? before->held_bytes() : 0;  // which its last uses did not tell
    const std::lock_guard lock(mutex_);
    if (before && versions_.is_settled(*before)) versions_.note_use(before, bytes);
    versions_.add(std::move(version), options.version_bytes, left);
    if (!left.empty()) has_left_ = true;
}

void TraceFunction::note_use(const std::shared_ptr<Version>& version) {
    std::shared_ptr<Version> old;  // goes after the lock
    std::unique_lock lock(mutex_);
    if (latest_ == version && versions_.is_settled(*version)) return;
    lock.unlock();
    old = version;
    const size_t bytes = version->held_bytes();
    lock.lock();
    old.swap(latest_);
    versions_.note_use(version, bytes);
}

void TraceFunction::forget(const CallKey& key) {
    std::vector<VersionRef> left;  // goes after the lock
    const std::lock_guard lock(mutex_);
    versions_.forget(key, left);
}

void TraceFunction::clear() {
    std::vector<VersionRef> left;  // goes after the lock
    std::shared_ptr<Version> latest;
    std::unique_lock lock(mutex_);
    versions_.clear(left);
    latest.swap(latest_);
    lock.unlock();
    arenas_->give_up();
}

std::vector<std::shared_ptr<Version>> TraceFunction::versions() const {
    const std::lock_guard lock(mutex_);
    return versions_.all();
}

size_t TraceFunction::version_count() const {
    const std::lock_guard lock(mutex_);
    return versions_.size();
}

std::shared_ptr<Version> TraceFunction::latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
}

uint64_t TraceFunction::dropped() const {
    const std::lock_guard lock(mutex_);
    return versions_.dropped();
}

namespace {

Version& called(const std::shared_ptr<Version>& version) {
    if (!version)
        runtime::user_error({.what = "no call of this function has run yet",
                             .fix = "call it once first; plan() needs no call"},
                            runtime::ErrorKind::runtime);
    return *version;
}

}  // namespace

std::vector<CompiledSegment> TraceFunction::compiled() const {
    return called(latest()).all_compiled(options);
}

std::vector<SegmentPlan> TraceFunction::planned_on(runtime::Device& device) const {
    return called(latest()).planned_on(device, options);
}

namespace {

// "1 op", "2 ops".
std::string counted(uint64_t count, std::string_view what) {
    return runtime::cat(count, " ", what, count == 1 ? "" : "s");
}

// The line of each product and what computes it, with the number of products of that text.
std::vector<std::pair<std::string, uint64_t>> products_of(const Version& version) {
    std::vector<std::pair<std::string, uint64_t>> products;
    for (const auto& [recorded, program] : version.compiled_so_far())
        for (const Node& node : program->graph().nodes()) {
            if (node.choice.empty()) continue;
            const char* who = node.kind == NodeKind::fused ? "generated" : "the library's";
            const std::string text = runtime::cat(node.where, ": ", who, " (", node.choice, ")");
            const auto known =
                std::ranges::find(products, text, [](auto& row) { return row.first; });
            if (known == products.end()) products.emplace_back(text, 1);
            else ++known->second;
        }
    return products;
}

}  // namespace

std::string TraceFunction::explain() const {
    const std::vector<std::shared_ptr<Version>> all = versions();
    std::string text = counted(all.size(), "version");
    {
        const std::lock_guard lock(mutex_);
        if (const uint64_t dropped = versions_.dropped())
            text +=
                runtime::cat(" (", dropped, " older ones were dropped: they held more than ",
                             runtime::size_text(options.version_bytes), ", MEGJIT_VERSION_MEMORY)");
        if (const uint64_t dropped = versions_.dropped_once())
            text += runtime::cat(" (", dropped, " that were called once were dropped)");
    }
    text += "\n";
    for (const auto& version : all) {
        std::string types;
        for (const CallKey::Argument& argument : version->key.arguments)
            types += (types.empty() ? "" : ", ") + to_string(argument.type);
        text += runtime::cat("  (", types, "): ", counted(version->record.op_count(), "op"), ", ",
                             counted(version->record.segments(), "segment"), ", ",
                             counted(version->calls, "replay"), ", compiled in ",
                             static_cast<int>(version->compile_ms), " ms; recorded because ",
                             version->reason, "\n");
        for (const BitChange& change : version->bit_changes(options))
            text += runtime::cat("    not bit for bit as eager mode: ", in_words(change), "\n");
        for (const auto& [product, count] : products_of(*version))
            text += runtime::cat("    product at ", product,
                                 count > 1 ? runtime::cat(", ", count, " of them") : "", "\n");
    }
    return text;
}

}  // namespace megjit::jit
