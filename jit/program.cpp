#include "jit/program.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <unordered_map>

#include "codegen/checked_kernel.h"
#include "codegen/launcher.h"
#include "jit/host_copy.h"
#include "jit/plan_ladder.h"
#include "memory/aliasing_validator.h"
#include "memory/validator.h"
#include "runtime/error.h"
#include "runtime/rematerializer.h"

namespace megjit::jit {
namespace {

using runtime::Executable;
using runtime::Ref;
using runtime::Storage;

constexpr size_t kAlign = 64;

// What a node becomes before memory is planned.
struct Prepared {
    NodeId node = {};
    std::shared_ptr<const Executable> executable = {};  // null: a view
    std::string backend = {};  // compiler of the kernel
};

// Stands for a kernel where only its needs are asked for.
void not_to_be_run(void* const*, void* const*, const int64_t*, const int64_t*, int64_t, int64_t) {}

std::string describe(const Graph& graph, ValueId id) {
    const Node& node = graph.producer(id);
    std::string name = node.kind == NodeKind::input      ? "input"
                       : node.kind == NodeKind::constant ? "const"
                       : node.kind == NodeKind::fused    ? "fused"
                                                         : node.op->name;
    return runtime::cat("%", at(id), " ", name, " ", to_string(graph.type(id)),
                        node.where.empty() ? "" : " ", node.where);
}

BufferUse use_of(const Graph& graph, ValueId id, const std::vector<bool>& is_parameter) {
    const Node& node = graph.producer(id);
    if (node.kind == NodeKind::constant) return BufferUse::constant;
    if (node.kind == NodeKind::input) {
        const auto slot = static_cast<size_t>(node.slot);
        return slot < is_parameter.size() && is_parameter[slot] ? BufferUse::parameter
                                                                : BufferUse::input;
    }
    if (node.role.is_recomputed) return BufferUse::recomputed;
    return node.role.is_backward ? BufferUse::gradient : BufferUse::activation;
}

// What runs again, as a part of what runs once; a kernel's flops are its instructions.
double recompute_flops_ratio(const Graph& graph) {
    double once = 0, again = 0;
    for (const Node& node : graph.nodes()) {
        double flops = 0;
        if (node.kind == NodeKind::op && !node.op->is_view) {
            const std::vector<Type> inputs = graph.types(node.inputs);
            flops =
                runtime::cost_of({*node.op, node.attrs, inputs}, graph.types(node.outputs)).flops;
        } else if (node.kind == NodeKind::fused) {
            for (const codegen::LaunchShape& launch : launches_of(node))
                flops += static_cast<double>(launch.numel()) * node.kernel->kernel.program.size();
        }
        (node.role.is_recomputed ? again : once) += flops;
    }
    return once > 0 ? again / once : 0;
}

// The planner's problem: values, then one workspace value for each step that needs one.
class ScheduleBuilder {
public:
    ScheduleBuilder(const Graph& graph, const std::vector<bool>& donatable) : graph_(graph) {
        for (size_t id = 0; id < graph.value_count(); ++id) {
            const auto value_id = static_cast<ValueId>(id);
            const Node& producer = graph.producer(value_id);
            memory::Value value{.bytes = graph.type(value_id).bytes()};
            if (producer.op == &to_host()) value.kind = memory::ValueKind::kHost;
            if (producer.kind == NodeKind::constant) value.kind = memory::ValueKind::kConstant;
            if (producer.kind == NodeKind::input) {
                value.kind = memory::ValueKind::kInput;
                const auto slot = static_cast<size_t>(producer.slot);
                value.donatable = slot < donatable.size() && donatable[slot];
            }
            schedule.values.push_back(value);
        }
        for (ValueId output : graph.outputs) {
            memory::Value& value = schedule.values[at(output)];
            if (value.kind == memory::ValueKind::kTemp) value.kind = memory::ValueKind::kOutput;
            if (value.kind == memory::ValueKind::kInput)
                value.donatable = false;  // handed back as it is
        }
    }

    // Returns the id of the step's workspace value, or kNone.
    uint32_t add(const Prepared& prepared) {
        const Node& node = graph_.node(prepared.node);
        memory::Step step;
        for (ValueId input : node.inputs) step.reads.push_back(static_cast<uint32_t>(at(input)));
        for (ValueId output : node.outputs)
            step.writes.push_back(static_cast<uint32_t>(at(output)));
        uint32_t workspace = memory::kNone;
        if (!prepared.executable) {
            step.aliases.push_back({.output = step.writes[0],
                                    .input = step.reads[0],
                                    .kind = memory::AliasKind::kView});
        } else {
            add_aliases(*prepared.executable, step);
            add_parts(*prepared.executable, step);
            if (const size_t bytes = prepared.executable->workspace_bytes()) {
                workspace = static_cast<uint32_t>(schedule.values.size());
                schedule.values.push_back({.bytes = bytes});
                step.writes.push_back(workspace);
            }
        }
        schedule.steps.push_back(std::move(step));
        checks_values_.push_back(node.op && node.op->checks_values);
        return workspace;
    }

    // A value may be read twice by one step: an output may lie on it only if each of these reads
    // allows it.
    static void add_aliases(const Executable& executable, memory::Step& step) {
        std::unordered_map<uint32_t, std::vector<int>> places;  // of a value among the reads
        for (size_t in = 0; in < step.reads.size(); ++in)
            places[step.reads[in]].push_back(static_cast<int>(in));
        for (size_t out = 0; out < step.writes.size(); ++out)
            for (size_t in = 0; in < step.reads.size(); ++in) {
                if (!executable.may_alias(static_cast<int>(out), static_cast<int>(in))) continue;
                const std::vector<int>& same = places[step.reads[in]];
                if (std::all_of(same.begin(), same.end(), [&](int other) {
                    return executable.may_alias(static_cast<int>(out), other);
                }))
                    step.aliases.push_back({.output = step.writes[out], .input = step.reads[in]});
            }
    }

    // Kernels expect operands where an allocator would have put them.
    static void add_parts(const Executable& executable, memory::Step& step) {
        for (size_t in = 0; in < step.reads.size(); ++in) {
            const std::optional<Executable::Part> part = executable.part(static_cast<int>(in));
            if (!part || part->offset % kAlign != 0) continue;
            const memory::AliasKind kind =
                part->of_output ? memory::AliasKind::kPart : memory::AliasKind::kSlice;
            step.aliases.push_back({.output = step.writes[0],
                                    .input = step.reads[in],
                                    .kind = kind,
                                    .offset = part->offset});
        }
    }

    // A step that checks values may fail, and what the body issued is then computed again from the
    // inputs: until the last such step nothing lies over them. (A check comes before the step
    // writes.)
    void keep_inputs_until_no_step_can_fail() {
        for (size_t s = schedule.steps.size(); s-- > 0;) {
            if (!checks_values_[s]) continue;
            memory::Step& step = schedule.steps[s];
            for (uint32_t id = 0; id < graph_.value_count(); ++id)
                if (schedule.values[id].donatable &&
                    std::find(step.reads.begin(), step.reads.end(), id) == step.reads.end())
                    step.reads.push_back(id);
            return;
        }
    }

    memory::Schedule schedule;

private:
    const Graph& graph_;
    std::vector<bool> checks_values_;  // by step
};

size_t recorded_bytes(const Graph& recorded) {
    size_t bytes = 0;
    for (const Node& node : recorded.nodes())
        if (node.kind != NodeKind::constant)
            for (ValueId output : node.outputs) bytes += recorded.type(output).bytes();
    return bytes;
}

}  // namespace

Program::Program(Graph graph, const Graph& recorded, runtime::Device& device,
                 const LoweringOptions& options)
    : graph_(std::move(graph)),
      function_(options.function),
      device_(device),
      is_profiled_(options.profile) {
    plan_memory(recorded, options);
}

Program::~Program() {
    if (!arena_) return;
    device_.live().remove(arena_);
    device_.allocator().release(arena_, arena_bytes_);
}

std::shared_ptr<const Executable> Program::prepare_fused(const Node& node,
                                                         const LoweringOptions& options,
                                                         size_t index) {
    const codegen::KernelIR& kernel = node.kernel->kernel;
    const codegen::LaunchKernel launcher = codegen::launcher(device_.name());
    if (options.only_plan && !options.kernels)
        return launcher(not_to_be_run, kernel, launches_of(node));
    const auto compiled = options.kernels ? (*options.kernels)[index]
                                          : codegen::KernelService::instance().get(kernel);
    auto executable = launcher(compiled ? compiled->fn : nullptr, kernel, launches_of(node));
    if (!compiled) return executable;
    kernels_.push_back({.compiled = compiled,
                        .ops = node.ops,
                        .where = node.where,
                        .bytes = profile_of(node).bytes});
    if (!options.check) return executable;
    std::string name = runtime::cat("the ", compiled->backend, " kernel of");
    for (const std::string& op : node.ops) name += " " + op;
    return codegen::checked(std::move(executable), kernel, launches_of(node),
                            runtime::cat(name, " (", node.where, ")"));
}

void Program::plan_memory(const Graph& recorded, const LoweringOptions& options) {
    std::vector<Prepared> prepared;
    size_t fused = 0;
    for (size_t id = 0; id < graph_.nodes().size(); ++id) {
        const Node& node = graph_.nodes()[id];
        if (node.kind == NodeKind::input || node.kind == NodeKind::constant) continue;
        Prepared entry{static_cast<NodeId>(id)};
        if (node.kind == NodeKind::fused) {
            const size_t kernels = kernels_.size();
            entry.executable = prepare_fused(node, options, fused++);
            if (kernels_.size() > kernels) entry.backend = kernels_.back().compiled->backend;
        } else if (is_host_copy(node)) {
            const size_t bytes = graph_.type(node.outputs[0]).bytes();
            entry.executable = host_copy(*node.op, device_, bytes);
            plan_.transferred_bytes += bytes;
        } else if (!node.op->is_view) {
            const std::vector<Type> inputs = graph_.types(node.inputs);
            entry.executable =
                device_.prepare({*node.op, node.attrs, inputs}, graph_.types(node.outputs));
        }
        prepared.push_back(std::move(entry));
    }

    ScheduleBuilder builder(graph_, options.donatable);
    std::vector<uint32_t> workspaces;
    for (const Prepared& entry : prepared) workspaces.push_back(builder.add(entry));
    builder.keep_inputs_until_no_step_can_fail();
    const memory::Schedule& schedule = builder.schedule;
    const memory::Aliasing aliasing = memory::share_buffers(schedule);
    const std::vector<memory::Buffer> to_place = memory::arena_buffers(aliasing);
    const memory::Plan placed = memory::plan_arena(to_place);
    const std::vector<memory::Buffer> on_host =
        memory::arena_buffers(aliasing, memory::Place::kHost);
    const memory::Plan placed_on_host = memory::plan_arena(on_host);
    if (options.check) {
        if (std::string fault = memory::fault_of_aliasing(schedule, aliasing); !fault.empty())
            throw runtime::InternalError(fault);
        if (std::string fault = memory::fault_of(to_place, placed); !fault.empty())
            throw runtime::InternalError(fault);
    }

    std::vector<size_t> offset_of_buffer(aliasing.buffers.size());
    for (size_t i = 0; i < to_place.size(); ++i)
        offset_of_buffer[to_place[i].id] = placed.offsets[i];
    for (size_t i = 0; i < on_host.size(); ++i)
        offset_of_buffer[on_host[i].id] = placed_on_host.offsets[i];
    for (size_t b = 0; b < aliasing.buffers.size(); ++b) {
        const memory::SharedBuffer& buffer = aliasing.buffers[b];
        plan_.buffers.push_back({.place = buffer.place,
                                 .offset = offset_of_buffer[b],
                                 .bytes = buffer.bytes,
                                 .live = buffer.live});
    }
    for (const Prepared& entry : prepared) {
        plan_.steps.push_back(describe(graph_, graph_.node(entry.node).outputs[0]));
        const std::string_view remark = entry.executable ? entry.executable->remark() : "";
        if (!remark.empty()) plan_.steps.back() += cat(" (", remark, ")");
    }
    for (size_t value = 0; value < graph_.value_count(); ++value) {
        PlannedBuffer& buffer = plan_.buffers[aliasing.buffer_of[value]];
        if (buffer.values.empty())
            buffer.use = use_of(graph_, static_cast<ValueId>(value), options.is_parameter);
        buffer.values.push_back(describe(graph_, static_cast<ValueId>(value)));
    }
    for (size_t s = 0; s < workspaces.size(); ++s)
        if (workspaces[s] != memory::kNone) {
            PlannedBuffer& buffer = plan_.buffers[aliasing.buffer_of[workspaces[s]]];
            buffer.use = BufferUse::workspace;
            buffer.values.push_back("workspace of " + plan_.steps[s]);
        }
    arena_bytes_ = placed.arena_bytes;
    plan_.host_bytes = placed_on_host.arena_bytes;
    if (arena_bytes_ && !options.only_plan) allocate_arena();
    if (plan_.host_bytes && !options.only_plan) host_arena_.reset(new std::byte[plan_.host_bytes]);

    // Results: one per buffer that ends as an output.
    std::vector<int> result_of_buffer(aliasing.buffers.size(), -1);
    for (size_t b = 0; b < aliasing.buffers.size(); ++b) {
        const memory::SharedBuffer& buffer = aliasing.buffers[b];
        if (buffer.output == memory::kNone) continue;
        Result result{.type = graph_.type(static_cast<ValueId>(buffer.output)),
                      .value = static_cast<ValueId>(buffer.output)};
        if (buffer.place == memory::Place::kInput) {
            result.from = Result::From::donated;
            result.source =
                static_cast<uint32_t>(graph_.producer(static_cast<ValueId>(buffer.value)).slot);
        }
        result_of_buffer[b] = static_cast<int>(results_.size());
        results_.push_back(result);
    }
    for (const memory::SharedBuffer& buffer : aliasing.buffers)
        if (buffer.place == memory::Place::kInput && buffer.output == memory::kNone &&
            buffer.overwritten)
            overwritten_.push_back(
                static_cast<uint32_t>(graph_.producer(static_cast<ValueId>(buffer.value)).slot));
    for (ValueId output : graph_.outputs) {
        const Node& producer = graph_.producer(output);
        if (producer.kind == NodeKind::input) result_of_output_.push_back(-1 - producer.slot);
        else if (producer.kind == NodeKind::constant)
            result_of_output_.push_back(std::numeric_limits<int>::min());
        else result_of_output_.push_back(result_of_buffer[aliasing.buffer_of[at(output)]]);
    }

    // The addresses are known now, or patched at each run; there are none where only a plan is
    // wanted.
    const auto in_arena = [&](void* arena, size_t at) {
        return options.only_plan ? nullptr : static_cast<std::byte*>(arena) + at;
    };
    const auto add_operand = [&](uint32_t value) {
        const uint32_t b = aliasing.buffer_of[value];
        const memory::SharedBuffer& buffer = aliasing.buffers[b];
        const size_t offset = aliasing.offset_of[value];
        const auto operand = static_cast<uint32_t>(operands_.size());
        operands_.push_back(nullptr);
        switch (buffer.place) {
            case memory::Place::kArena:
                operands_.back() = in_arena(arena_, offset_of_buffer[b] + offset);
                break;
            case memory::Place::kHost:
                operands_.back() = in_arena(host_arena_.get(), offset_of_buffer[b] + offset);
                break;
            case memory::Place::kConstant:
                operands_.back() =
                    graph_.producer(static_cast<ValueId>(buffer.value)).constant->as<std::byte>() +
                    offset;
                break;
            case memory::Place::kInput:
                input_patches_.push_back(
                    {operand,
                     static_cast<uint32_t>(
                         graph_.producer(static_cast<ValueId>(buffer.value)).slot),
                     offset});
                break;
            case memory::Place::kOutput:
                output_patches_.push_back(
                    {operand, static_cast<uint32_t>(result_of_buffer[b]), offset});
                break;
        }
        return operand;
    };
    size_t next_copy = 0;
    const auto add_copies = [&](uint32_t step) {
        for (; next_copy < aliasing.copies_needed.size() &&
               aliasing.copies_needed[next_copy].step <= step;
             ++next_copy) {
            const memory::Copy& copy = aliasing.copies_needed[next_copy];
            Step made{.copy_bytes = schedule.values[copy.to].bytes};
            made.first_operand = add_operand(copy.from);
            const size_t patched = input_patches_.size() + output_patches_.size();
            if (copy.offset) {
                if (operands_.back())
                    operands_.back() = static_cast<std::byte*>(operands_.back()) + copy.offset;
                else if (!input_patches_.empty() &&
                         input_patches_.back().operand == made.first_operand)
                    input_patches_.back().offset += copy.offset;
                else if (patched) output_patches_.back().offset += copy.offset;
            }
            add_operand(copy.to);
            if (options.profile)
                profile_.steps.push_back({.ops = {"copy"},
                                          .step = std::min<size_t>(step, prepared.size() - 1),
                                          .bytes = 2 * made.copy_bytes});
            if (options.profile) times_.push_back(nullptr);
            steps_.push_back(std::move(made));
        }
    };
    for (size_t s = 0; s < prepared.size(); ++s) {
        add_copies(static_cast<uint32_t>(s));
        const Node& node = graph_.node(prepared[s].node);
        if (!prepared[s].executable) continue;  // a view: nothing runs
        Step step{.executable = prepared[s].executable};
        step.first_operand = static_cast<uint32_t>(operands_.size());
        step.inputs = static_cast<uint32_t>(node.inputs.size());
        for (ValueId input : node.inputs) add_operand(static_cast<uint32_t>(at(input)));
        for (ValueId output : node.outputs) add_operand(static_cast<uint32_t>(at(output)));
        if (workspaces[s] != memory::kNone) {
            step.workspace = offset_of_buffer[aliasing.buffer_of[workspaces[s]]];
            plan_.workspace_bytes =
                std::max(plan_.workspace_bytes, schedule.values[workspaces[s]].bytes);
        }
        if (options.profile) {
            profile_.steps.push_back(profile_of(node));
            profile_.steps.back().backend = prepared[s].backend;
            profile_.steps.back().step = s;
            times_.push_back(
                node.kind == NodeKind::op
                    ? &StepTimes::instance().row({*node.op, node.attrs, graph_.types(node.inputs)},
                                                 graph_.types(node.outputs))
                    : nullptr);
        }
        steps_.push_back(std::move(step));
    }
    add_copies(static_cast<uint32_t>(prepared.size()));

    const memory::MemorySummary summary = memory::summarize(schedule, aliasing, placed.arena_bytes);
    plan_.recompute_flops_ratio = recompute_flops_ratio(graph_);
    plan_.unplanned_bytes = recorded_bytes(recorded);
    plan_.planned_bytes = summary.planned_bytes;
    plan_.peak_live_bytes = summary.peak_live_bytes;
    plan_.arena_bytes = placed.arena_bytes;
    plan_.curve = options.curve;
    for (CurvePoint& point : plan_.curve) point.bytes += plan_.planned_bytes - plan_.arena_bytes;
}

void Program::allocate_arena() {
    try {
        arena_ = runtime::allocate(device_, arena_bytes_);
    } catch (runtime::OutOfMemory& error) {
        std::string holds;
        for (const std::string& buffer : largest_at_peak(plan_, 2))
            holds += (holds.empty() ? " with " : ", ") + buffer;
        error.say_what_for(runtime::cat("the arena of ", function_, holds, ","));
        throw;
    }
    if (arena_bytes_ >= runtime::LiveBlocks::kLeastBytes)
        device_.live().add(arena_, {.bytes = arena_bytes_, .what = "arena of " + function_});
}

Ref<Storage> Program::allocate_copy(const Type& type) {
    try {
        return Storage::make(device_, type.bytes());
    } catch (runtime::OutOfMemory& error) {
        error.say_what_for(
            runtime::cat("a copy of an input of ", function_, ", ", to_string(type), ","));
        throw;
    }
}

Ref<Storage> Program::allocate_result(const Result& result) {
    const Node& node = graph_.producer(result.value);
    const std::string& op = node.kind == NodeKind::fused ? node.ops.back() : node.op->name;
    try {
        Ref<Storage> storage = Storage::make(device_, result.type.bytes());
        if (storage->is_worth_listing()) storage->list(op, result.type, node.where);
        return storage;
    } catch (runtime::OutOfMemory& error) {
        error.say_what_for(
            runtime::cat("a result of ", function_, ", ", op, " ", to_string(result.type), ","));
        throw;
    }
}

inline void Program::run_step(const Step& step) {
    void* const* operands = operands_.data() + step.first_operand;
    if (step.executable)
        step.executable->run(operands, operands + step.inputs,
                             static_cast<std::byte*>(arena_) + step.workspace);
    else std::memcpy(operands[1], operands[0], step.copy_bytes);
}

void Program::run_profiled_steps() {
    using Clock = std::chrono::steady_clock;
    for (size_t i = 0; i < steps_.size(); ++i) {
        const auto start = Clock::now();
        run_step(steps_[i]);
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        profile_.steps[i].seconds += seconds;
        if (times_[i]) StepTimes::instance().note(*times_[i], seconds);
    }
    ++profile_.runs;
}

StepProfile Program::profile_of(const Node& node) const {
    StepProfile row{
        .ops = node.kind == NodeKind::fused ? node.ops : std::vector<std::string>{node.op->name},
        .where = node.where};
    for (const Type& type : graph_.types(node.inputs)) row.bytes += type.bytes();
    for (const Type& type : graph_.types(node.outputs)) row.bytes += type.bytes();
    return row;
}

Profile Program::profile() {
    std::lock_guard lock(mutex_);
    return profile_;
}

// Computes what the prologue gives, unless its inputs are the tensors that they were: a tensor
// never changes.
void Program::bind(std::span<const TensorRef> inputs) {
    std::vector<uint64_t> ids;
    for (const Node& node : graph_.prologue->nodes())
        if (node.kind == NodeKind::input)
            ids.push_back(inputs[static_cast<size_t>(node.slot)]
                              ? inputs[static_cast<size_t>(node.slot)]->id()
                              : 0);
    if (!bound_.empty() && ids == bound_ids_) return;
    bound_.clear();  // its memory first
    bound_ = interpret(*graph_.prologue, inputs);
    for (const TensorRef& tensor : bound_) runtime::Rematerializer::instance().keep(*tensor);
    bound_ids_ = std::move(ids);
}

std::vector<TensorRef> Program::run(std::span<TensorRef> inputs) {
    std::lock_guard lock(mutex_);
    if (graph_.prologue) bind(inputs);
    const auto input_of = [&](size_t slot) -> TensorRef& {
        return slot < inputs.size() ? inputs[slot] : bound_[slot - inputs.size()];
    };
    // Everything that can fail for want of memory comes before the first kernel.
    const runtime::Pins pins(inputs);
    std::vector<Ref<Storage>> storages, copies;
    std::vector<void*> input_data(inputs.size() + bound_.size());
    for (const Patch& patch : input_patches_)
        if (!input_of(patch.source) || !input_of(patch.source)->has_data())
            runtime::user_error(
                {.what = "an input of a traced function has no value",
                 .why = "it was made inside another trace and was not part of its results",
                 .fix = "return it from that traced function"},
                runtime::ErrorKind::runtime);
    for (size_t slot = 0; slot < input_data.size(); ++slot)
        input_data[slot] = input_of(slot) ? input_of(slot)->data() : nullptr;
    storages.reserve(results_.size());
    for (const Result& result : results_) {
        if (result.from == Result::From::donated) {
            TensorRef& input = inputs[result.source];
            if (input->unique() && input->storage()->unique() && input->storage()->is_owned()) {
                storages.push_back(input->storage());
                continue;
            }
        }
        storages.push_back(allocate_result(result));
        if (result.from == Result::From::donated) {
            // Somebody else still reads the input: work on a copy.
            std::memcpy(storages.back()->data(), input_data[result.source], result.type.bytes());
            input_data[result.source] = storages.back()->data();
        }
    }
    // Temporary values may lie over an input too, if this call gave it away.
    for (uint32_t slot : overwritten_) {
        const TensorRef& input = inputs[slot];
        if (input->unique() && input->storage()->unique() && input->storage()->is_owned()) continue;
        copies.push_back(allocate_copy(input->type()));
        std::memcpy(copies.back()->data(), input_data[slot], input->type().bytes());
        input_data[slot] = copies.back()->data();
    }
    for (const Patch& patch : input_patches_)
        operands_[patch.operand] = static_cast<std::byte*>(input_data[patch.source]) + patch.offset;
    for (const Patch& patch : output_patches_)
        operands_[patch.operand] =
            static_cast<std::byte*>(storages[patch.source]->data()) + patch.offset;

    if (is_profiled_) run_profiled_steps();
    else
        for (const Step& step : steps_) run_step(step);

    std::vector<TensorRef> outputs;
    outputs.reserve(graph_.outputs.size());
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
        const int result = result_of_output_[i];
        if (result == std::numeric_limits<int>::min())
            outputs.push_back(graph_.producer(graph_.outputs[i]).constant);
        else if (result < 0) outputs.push_back(inputs[-1 - result]);
        else
            outputs.push_back(
                runtime::make_tensor(graph_.type(graph_.outputs[i]), storages[result]));
    }
    return outputs;
}

}  // namespace megjit::jit
