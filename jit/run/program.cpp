#include "jit/run/program.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "jit/step/host_copy.h"
#include "runtime/core/rematerializer.h"
#include "runtime/core/side_stream.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"
#include "runtime/host/profiler_range.h"
#include "runtime/host/user_line.h"

namespace megjit::jit {

using runtime::Ref;
using runtime::Storage;

namespace {

// Are these a few kernels, and nothing that waits, loops or calls the host?
bool is_brief(const PreparedGraph& prepared, const MemoryPlan& plan) {
    constexpr size_t kFewNodes = 4, kFewBytes = size_t{16} << 10;
    return prepared.nodes.size() <= kFewNodes && plan.planned_bytes <= kFewBytes &&
           std::ranges::all_of(prepared.nodes, [&](const PreparedNode& each) {
        const Node& node = prepared.graph.node(each.node);
        return node.kind == NodeKind::fused || (node.op && node.op->is_elementwise());
    });
}

}  // namespace

Program::Program(Graph graph, const Step& step, const LoweringOptions& options)
    : function_(options.function),
      prepared_(prepare(std::move(graph), options.kernels, options.check)),
      device_(prepared_.graph.device()),
      arenas_(options.arenas ? options.arenas : Arenas::make(function_)),
      spill_(options.spill),
      weights_(options.weights ? options.weights : std::make_shared<BoundWeights>()),
      is_profiled_(options.profile) {
    const size_t limit = options.memory_limit;
    const BufferPlan buffers = plan_buffers(prepared_, step, options.check);
    plan_ = report_of(prepared_, buffers, step, options);
    layout_ = lay_out(prepared_, buffers);
    if (limit) {
        const size_t elsewhere =
            plan_.planned_bytes - std::min(plan_.planned_bytes, plan_.arena_bytes);
        most_idle_ = limit - std::min(limit, elsewhere);
    }
    survives_.resize(layout_.results.size());
    for (size_t k = 0; k < step.outputs.size(); ++k)
        if (const auto [from, index] = layout_.outputs[k];
            step.outputs[k].replaces >= 0 && from == ProgramLayout::Output::From::result)
            survives_[index] = true;
    for (const KeptCopy& copy : prepared_.graph.copies)
        survives_[layout_.outputs[copy.written].index] = true;
    if (const auto& prologue = prepared_.graph.prologue)
        for (const Node& node : prologue->nodes())
            if (node.kind == NodeKind::input)
                bound_ids_.emplace_back(static_cast<size_t>(node.slot), 0);
    if (is_profiled_) start_profile();
    const auto is_copy = [](const Node& node) { return is_host_copy(node); };
    if (device_.is_host() && std::ranges::any_of(prepared_.graph.nodes(), is_copy)) open_file();
    is_repeated_ = !is_profiled_ && !layout_.has_transfers && !waits_for_values(prepared_);
    past_.resize(layout_.has_transfers ? layout_.steps.size() : 0);
    takes_a_while_ = !device_.stream().is_inline() || file_ || prepared_.graph.prologue ||
                     options.check || !is_brief(prepared_, plan_);
}

Program::~Program() {
    if (host_arena_ || file_) try {  // queued transfers use them
            beside().synchronize();
        } catch (...) {}
    bound_.clear();
    constants_.clear();
    weights_->release_unused();
}

Arenas::Lease Program::take_arena() {
    try {
        return arenas_->take(device_, layout_.arena_bytes, arena_, most_idle_);
    } catch (runtime::OutOfMemory& error) {
        std::string holds;
        for (const std::string& buffer : largest_at_peak(plan_, 2))
            holds += (holds.empty() ? " with " : ", ") + buffer;
        error.say_what_for(runtime::cat("the arena of ", function_, holds, ","));
        throw;
    }
}

const TensorRef& Program::constant(uint32_t value) {
    TensorRef& there = constants_[value];
    if (!there)
        there =
            weights_->readable_on(device_, graph().producer(static_cast<ValueId>(value)).constant);
    return there;
}

// Sets addresses that are known from the first run on, and lists those that each run tells.
void Program::resolve_operands() {
    if (layout_.host_bytes && file_) file_arena_ = file_->take(layout_.host_bytes);
    else if (layout_.host_bytes) host_arena_ = device_.host_memory(layout_.host_bytes);
    std::vector<void*> operands;
    for (std::vector<Patch>* patches : {&input_patches_, &output_patches_, &arena_patches_})
        patches->clear();  // drops those of an attempt that found no memory
    const auto behind = [](void* start, size_t offset) -> void* {
        return static_cast<std::byte*>(start) + offset;
    };
    for (const ProgramLayout::Operand& operand : layout_.operands) {
        const auto index = static_cast<uint32_t>(operands.size());
        operands.push_back(nullptr);
        switch (operand.place) {
            case memory::Place::kArena: arena_patches_.push_back({index, 0, operand.offset}); break;
            case memory::Place::kHost:
                operands.back() =
                    behind(file_ ? file_arena_->place() : host_arena_.get(), operand.offset);
                break;
            case memory::Place::kConstant:
                operands.back() = behind(constant(operand.source)->data(), operand.offset);
                break;
            case memory::Place::kInput:
                input_patches_.push_back({index, operand.source, operand.offset});
                break;
            case memory::Place::kOutput:
                output_patches_.push_back({index, operand.source, operand.offset});
                break;
        }
    }
    operands_ = std::move(operands);
}

void Program::move_arena(std::byte* to) {
    if (to == arena_) return;
    arena_ = to;
    for (const Patch& patch : arena_patches_) operands_[patch.operand] = arena_ + patch.offset;
}

size_t Program::held_bytes() const {
    constexpr size_t kOfAStep = size_t{16} << 10;  // measured: graphs, layout and plan
    size_t bytes = bound_bytes_ + (file_ ? 0 : layout_.host_bytes);
    for (const PreparedNode& node : prepared_.nodes)
        bytes += kOfAStep + (node.executable ? node.executable->held_bytes() : 0);
    return bytes;
}

// Where transfers run.
runtime::Stream& Program::beside() const {
    if (file_) return *file_;
    return device_.stream().is_inline() ? runtime::side_stream() : device_.copy_stream();
}

// ---- one run

// Computes what the prologue gives, unless its inputs are the tensors that they were: a tensor
// never changes.
void Program::bind(std::span<const TensorRef> inputs) {
    bool is_same = !bound_.empty();
    for (auto& [slot, id] : bound_ids_) {
        const TensorRef& given = inputs[slot];
        const uint64_t now = given ? given->data_id() : 0;
        is_same = is_same && id == now;
        id = now;
    }
    if (is_same) return;
    bound_.clear();  // frees their memory first
    weights_->release_unused();
    BoundWeights::Values values = weights_->get(*graph().prologue, inputs);
    bound_bytes_ = values.fresh_bytes;
    bound_ = std::move(values.outputs);
}

void Program::bind_constants() {
    const runtime::Turn::Held turn = turn_.take();
    if (graph().prologue && bound_ids_.empty()) bind({});
}

// ---- copies that outlive a run

void Program::take_copies() {
    for (const KeptCopy& copy : graph().copies) call_.kept.push_back(kept_copy(copy));
}

// Takes the copy from its value, for a run that fails may have written over either. Without one, or
// with one of another type, it is made.
TensorRef Program::kept_copy(const KeptCopy& copy) const {
    const TensorRef& value = call_.given[static_cast<size_t>(copy.of)];
    if (!value || !value->has_data()) return nullptr;  // take_inputs refuses the value
    if (TensorRef kept = value->take_copy();
        kept && kept->type() == copy.type() && &kept->device() == &device_)
        return kept;
    TensorRef made = interpret(*copy.maker, {&value, 1})[0];
    runtime::Rematerializer::instance().keep(*made);
    // It is computed on values that are there: a failure before it does not lose it.
    made->storage()->set_ready(value->storage()->ready());
    return made;
}

// Leaves what was written over the copies with the values that it belongs to.
void Program::keep_copies() {
    for (size_t i = 0; i < graph().copies.size(); ++i) {
        const KeptCopy& copy = graph().copies[i];
        TensorRef& kept = call_.kept[i];
        const TensorRef& value = call_.outputs[copy.successor];
        const size_t result = layout_.outputs[copy.written].index;
        if (call_.results[result] == kept->storage() && value->storage()->is_owned())
            value->keep_copy(std::move(kept));
    }
}

const TensorRef& Program::input(size_t slot) const {
    if (slot < call_.given.size()) return call_.given[slot];
    slot -= call_.given.size();
    return slot < bound_.size() ? bound_[slot] : call_.kept[slot - bound_.size()];
}

// May the program write over the input?
bool Program::owns(size_t slot) const {
    const TensorRef& given = input(slot);
    return given->unique() && given->storage()->unique();
}

// A child of a fork has a file of its own.
void Program::open_file() {
    if (file_ && !file_->is_inherited()) return;
    operands_.clear();
    arena_ = nullptr;
    file_arena_.reset();
    file_ = runtime::SpillFile::in(spill_);
}

// An input that lies outside is written to our file if it was made in memory or in another file.
// The memory goes back if nobody else reads it.
void Program::move_inputs_outside() {
    bool has_left = false;
    for (const uint32_t slot : layout_.slots_outside) {
        const TensorRef& given = call_.given[slot];
        if (!given || !given->has_data()) {
            call_.extents.emplace_back();
            continue;
        }
        Storage& storage = *given->storage();
        if (auto* there = dynamic_cast<Extent*>(storage.backing());
            there && &there->file() == file_.get()) {
            storage.leave();
            call_.extents.push_back(there->shared_from_this());
            continue;
        }
        std::shared_ptr<Extent> extent = file_->take(given->type().bytes());
        extent->write(storage.data());
        if (owns(slot)) {
            storage.leave_to(extent);
            has_left = true;
        }
        call_.extents.push_back(std::move(extent));
    }
    if (has_left) device_.allocator().trim();  // to the system: an arena of another size follows
}

void Program::take_inputs() {
    runtime::Stream& stream = device_.stream();
    const bool is_queued = !stream.is_inline();
    for (const Patch& patch : input_patches_) {
        const TensorRef& given = input(patch.source);
        if (!given || !given->has_data())
            runtime::user_error(
                {.what = "an input of a traced function has no value",
                 .why = "it was made inside another trace and was not part of its results",
                 .fix = "return it from that traced function"},
                runtime::ErrorKind::runtime);
        if (is_queued) stream.refuse_lost(given->storage()->ready());
    }
    auto outside = layout_.slots_outside.begin();
    auto extent = call_.extents.begin();
    for (uint32_t slot = 0; slot < call_.given.size(); ++slot) {
        const TensorRef& given = call_.given[slot];
        const bool is_outside = outside != layout_.slots_outside.end() && *outside == slot;
        if (is_outside) call_.data.push_back((*extent++)->place()), ++outside;
        else call_.data.push_back(given ? given->data() : nullptr);
    }
    for (const TensorRef& given : bound_) call_.data.push_back(given->data());
    for (const TensorRef& kept : call_.kept) call_.data.push_back(kept ? kept->data() : nullptr);
}

// Where somebody else still reads an input that is to be overwritten, the run works on a copy.
void Program::take_results() {
    for (size_t i = 0; i < layout_.results.size(); ++i) {
        const ProgramLayout::Result& result = layout_.results[i];
        if (result.is_donated && owns(result.slot)) {
            call_.results.push_back(input(result.slot)->storage());
            continue;
        }
        call_.results.push_back(place_of_result(i));
        if (!result.is_donated) continue;
        void* copy = call_.results.back()->data();
        device_.stream().copy(copy, call_.data[result.slot], graph().type(result.value).bytes());
        call_.data[result.slot] = copy;
    }
    // Temporary values may lie over an input too, if this call gave it away.
    for (uint32_t slot : layout_.overwritten) {
        if (owns(slot)) continue;
        call_.copies.push_back(copy_of(input(slot)->type(), call_.data[slot]));
        call_.data[slot] = call_.copies.back()->data();
    }
}

// Nothing that the run reads or gives elsewhere may lie in the caller's memory.
bool Program::takes_result(const TensorRef& output, ValueId value) const {
    if (!output || &output->device() != &device_ || !(output->type() == graph().type(value)))
        return false;
    const auto overlaps = [&output](const TensorRef& other) {
        if (!other || !other->has_data()) return false;
        const auto *mine = output->as<std::byte>(), *its = other->as<std::byte>();
        return mine < its + other->type().bytes() && its < mine + output->type().bytes();
    };
    return std::ranges::none_of(call_.given, overlaps) &&
           std::ranges::count_if(call_.outputs, overlaps) == 1;  // itself
}

Ref<Storage> Program::place_of_result(size_t result) {
    const TensorRef& output = call_.outputs[layout_.first_outputs[result]];
    const ValueId value = layout_.results[result].value;
    if (is_host_copy(graph().producer(value))) {
        const size_t bytes = graph().type(value).bytes();
        return Storage::elsewhere(device_, bytes, file_->take(bytes));
    }
    return takes_result(output, value) ? output->storage() : allocate_result(value);
}

Ref<Storage> Program::copy_of(const Type& type, const void* data) {
    try {
        Ref<Storage> copy = Storage::make(device_, type.bytes());
        device_.stream().copy(copy->data(), data, type.bytes());
        return copy;
    } catch (runtime::OutOfMemory& error) {
        error.say_what_for(
            runtime::cat("a copy of an input of ", function_, ", ", to_string(type), ","));
        throw;
    }
}

Ref<Storage> Program::allocate_result(ValueId value) {
    const Node& node = graph().producer(value);
    const Type& type = graph().type(value);
    const std::string& op = name_of(node);
    try {
        Ref<Storage> storage = Storage::make(device_, type.bytes());
        if (storage->is_worth_listing()) storage->list(op, type, node.where);
        return storage;
    } catch (runtime::OutOfMemory& error) {
        error.say_what_for(
            runtime::cat("a result of ", function_, ", ", op, " ", to_string(type), ","));
        throw;
    }
}

void Program::patch() {
    for (const Patch& patch : input_patches_)
        operands_[patch.operand] = static_cast<std::byte*>(call_.data[patch.source]) + patch.offset;
    for (const Patch& patch : output_patches_) {
        const Storage& result = *call_.results[patch.source];
        const auto* there = static_cast<const Extent*>(result.backing());
        operands_[patch.operand] =
            (there ? there->place() : static_cast<std::byte*>(result.data())) + patch.offset;
    }
}

// Work may run later: an error must tell what failed.
void Program::enqueue_named(const ProgramLayout::Step& step, runtime::Stream& stream) {
    const Node& node = prepared_.node(step.node);
    const std::string& name = name_of(node);
    const runtime::ProfilerRange range(name);
    stream.name_next(name, node.where);
    enqueue(prepared_, step, operands_.data() + step.first_operand, arena_, stream);
}

// Transfers run beside the work, between what they depend on and what depends on them.
void Program::enqueue_steps() {
    runtime::Stream &stream = device_.stream(), &transfers = beside();
    const bool is_inline = stream.is_inline();
    for (size_t i = 0; i < layout_.steps.size(); ++i) {
        const ProgramLayout::Step& step = layout_.steps[i];
        runtime::Stream& on = step.is_transfer ? transfers : stream;
        if (step.is_transfer) transfers.wait(stream, stream.record());
        else if (step.waits_for != memory::kNone) stream.wait(transfers, past_[step.waits_for]);
        if (is_profiled_) clock_.steps[i].first = on.record_time();
        if (is_inline) enqueue(prepared_, step, operands_.data() + step.first_operand, arena_, on);
        else enqueue_named(step, on);
        if (is_profiled_) clock_.steps[i].second = on.record_time();
        if (step.is_transfer) past_[i] = transfers.record();
    }
}

void Program::enqueue_all() {
    runtime::Stream &stream = device_.stream(), &transfers = beside();
    const bool has_transfers = layout_.has_transfers;
    if (is_profiled_) {
        clock_.begin = clock_.begin_of_transfers = stream.record_time();
        if (has_transfers) {
            transfers.wait(stream, stream.record());
            clock_.begin_of_transfers = transfers.record_time();
        }
    }
    if (is_repeated_) stream.repeat(kept_, [this] { enqueue_steps(); });
    else enqueue_steps();
    if (has_transfers) stream.wait(transfers, transfers.record());
    if (is_profiled_) clock_.end = stream.record_time();
}

void Program::give_outputs() {
    using From = ProgramLayout::Output::From;
    for (size_t i = 0; i < layout_.outputs.size(); ++i) {
        const auto [from, index] = layout_.outputs[i];
        TensorRef& output = call_.outputs[i];
        if (from == From::constant) output = copied_to(constant(index), device_);
        else if (from == From::input)  // the same bytes in a tensor of its own
            output =
                runtime::make_tensor(call_.given[index]->type(), call_.given[index]->storage());
        else if (!output || output->storage() != call_.results[index])
            output = runtime::make_tensor(graph().type(graph().outputs[i]), call_.results[index]);
        else output->keep_copy(nullptr);  // the caller's tensor has another value now
    }
}

void Program::end_call() {
    call_.given = call_.outputs = {};
    call_.data.clear();
    call_.results.clear();
    call_.kept.clear();
    call_.copies.clear();
    call_.extents.clear();
}

std::vector<TensorRef> Program::run(std::span<TensorRef> inputs) {
    std::vector<TensorRef> outputs(layout_.outputs.size() - graph().copies.size());
    run(inputs, outputs);
    return outputs;
}

void Program::run(std::span<TensorRef> inputs, std::span<TensorRef> outputs) {
    const runtime::Turn::Held turn = turn_.take();
    const runtime::ProfilerRange range(function_);
    if (graph().prologue) bind(inputs);
    // Everything that can fail for want of memory comes before the first kernel.
    if (file_) open_file();
    std::optional<runtime::Turn::Held> file_turn;
    if (file_) file_turn.emplace(file_->turn.take());
    if (operands_.empty()) resolve_operands();
    struct End {
        Program& program;
        ~End() { program.end_call(); }
    } const end{*this};
    call_.given = inputs;
    call_.outputs = outputs;
    take_copies();
    std::vector<TensorRef>
        written;  // also what is written to copies, which the caller does not get
    if (!call_.kept.empty()) {
        written.assign(outputs.begin(), outputs.end());
        written.resize(layout_.outputs.size());
        call_.outputs = written;
    }
    move_inputs_outside();
    const Arenas::Lease arena = take_arena();
    move_arena(arena.data());
    const runtime::Pins pins(inputs);
    take_inputs();
    take_results();
    patch();
    try {
        enqueue_all();
    } catch (...) {  // transfers use the arena, and what the call holds
        if (layout_.has_transfers) try {
                beside().synchronize();
            } catch (...) {}
        throw;
    }
    if (is_profiled_) note_times();
    const runtime::Ticket done = device_.stream().record();
    for (size_t i = 0; i < call_.results.size(); ++i)
        if (!survives_[i]) call_.results[i]->set_ready(done);
    give_outputs();
    keep_copies();
    if (!written.empty())
        std::move(written.begin(), written.begin() + static_cast<std::ptrdiff_t>(outputs.size()),
                  outputs.begin());
}

// ---- profiles

void Program::start_profile() {
    for (const ProgramLayout::Step& step : layout_.steps) {
        const Node& node = prepared_.node(step.node);
        StepProfile row{.ops = {"copy"}, .step = step.node, .bytes = 2 * step.copy_bytes};
        ProfiledTimes::Row* times = nullptr;
        if (!step.is_copy) {
            row = {.ops = node.kind == NodeKind::fused ? node.ops : std::vector{node.op->name},
                   .where = node.where,
                   .step = step.node,
                   .backend = prepared_.nodes[step.node].backend,
                   .bytes = bytes_moved(graph(), node),
                   .launches = 1 + node.more_launches.size()};
            if (node.kind == NodeKind::op)
                times = &ProfiledTimes::of(device_).row(
                    {*node.op, node.attrs, graph().types(node.inputs)},
                    graph().types(node.outputs));
        }
        row.is_transfer = step.is_transfer;
        profile_.steps.push_back(std::move(row));
        times_.push_back(times);
    }
    clock_.steps.resize(layout_.steps.size());
}

void Program::note_times() {
    runtime::Stream &stream = device_.stream(), &transfers = beside();
    stream.synchronize();
    struct Span {
        double begin = 0, seconds = 0;
    };
    std::vector<Span> spans;  // streams have locks of their own: they are asked without ours
    for (size_t i = 0; i < layout_.steps.size(); ++i) {
        const auto& [begin, end] = clock_.steps[i];
        const bool is_transfer = layout_.steps[i].is_transfer;
        const runtime::Stream& on = is_transfer ? transfers : stream;
        const runtime::Ticket start = is_transfer ? clock_.begin_of_transfers : clock_.begin;
        spans.push_back({on.seconds_between(start, begin), on.seconds_between(begin, end)});
        if (times_[i]) ProfiledTimes::of(device_).note(*times_[i], spans.back().seconds);
    }
    const double seconds = stream.seconds_between(clock_.begin, clock_.end);
    const std::lock_guard lock(profile_mutex_);
    // The first run on a GPU loads code: it counts only where there is no other.
    const bool begins_anew = profile_.runs == 1 && !device_.is_host() && !is_first_run_out_;
    if (begins_anew) {
        is_first_run_out_ = true;
        profile_.runs = 0;
        profile_.seconds = 0;
        for (StepProfile& row : profile_.steps) row.seconds = 0;
    }
    for (size_t i = 0; i < spans.size(); ++i) {
        StepProfile& row = profile_.steps[i];
        row.last_begin = spans[i].begin;
        row.last_seconds = spans[i].seconds;
        row.seconds += spans[i].seconds;
    }
    profile_.last_seconds = seconds;
    profile_.seconds += seconds;
    ++profile_.runs;
}

Profile Program::profile() const {
    const std::lock_guard lock(profile_mutex_);
    return profile_;
}

}  // namespace megjit::jit
