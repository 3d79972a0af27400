#include "jit/plan/memory_plan.h"

#include <algorithm>

#include "jit/step/host_copy.h"
#include "memory/lower_bound.h"
#include "runtime/host/error.h"
#include "runtime/host/size_text.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

std::string describe(const Graph& graph, ValueId id) {
    const Node& node = graph.producer(id);
    const std::string name = graph.name(id);
    const bool is_input = node.kind == NodeKind::input;
    const std::string what = is_input                          ? name.empty() ? "input" : name
                             : node.kind == NodeKind::constant ? "const"
                             : node.kind == NodeKind::fused    ? "fused"
                                                               : node.op->name;
    return runtime::cat("%", at(id), " ", what, " ", to_string(graph.type(id)),
                        node.where.empty() ? "" : " ", node.where,
                        is_input || name.empty() ? "" : " (" + name + ")");
}

BufferUse use_of(const Graph& graph, ValueId id, const Step& step) {
    const Node& node = graph.producer(id);
    if (node.kind == NodeKind::constant) return BufferUse::constant;
    if (node.kind == NodeKind::input) {
        if (std::ranges::find(graph.copies, node.slot, &KeptCopy::slot) != graph.copies.end())
            return BufferUse::state;
        const Input input = step.input(node.slot);
        return !input.is_from_outside() ? BufferUse::input
               : input.is_state()       ? BufferUse::state
                                        : BufferUse::parameter;
    }
    if (node.role.is_recomputed) return BufferUse::recomputed;
    return node.role.is_backward ? BufferUse::gradient : BufferUse::activation;
}

// The flops that run again over those that run once; a kernel's flops are its instructions, and
// an exchange has none.
double recompute_flops_ratio(const Graph& graph) {
    double once = 0, again = 0;
    for (const Node& node : graph.nodes()) {
        double flops = 0;
        if (node.kind == NodeKind::op && !node.op->is_view && !runtime::is_ordered(*node.op)) {
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

size_t recorded_bytes(const Graph& recorded) {
    size_t bytes = 0;
    for (const Node& node : recorded.nodes())
        if (node.kind != NodeKind::constant)
            for (ValueId output : node.outputs) bytes += recorded.type(output).bytes();
    return bytes;
}

// Constants of which the program reads packed copies stay beside these copies.
size_t unpacked_bytes(const Graph& graph) {
    size_t bytes = 0;
    if (graph.prologue)
        for (const Node& node : graph.prologue->nodes())
            if (node.kind == NodeKind::constant)
                bytes += graph.prologue->type(node.outputs[0]).bytes();
    return bytes;
}

// Gives a text for each prepared node.
std::vector<std::string> step_texts(const PreparedGraph& prepared) {
    std::vector<std::string> texts;
    for (size_t s = 0; s < prepared.nodes.size(); ++s) {
        texts.push_back(describe(prepared.graph, prepared.node(s).outputs[0]));
        const auto& executable = prepared.nodes[s].executable;
        const std::string_view remark = executable ? executable->remark() : "";
        if (!remark.empty()) texts.back() += runtime::cat(" (", remark, ")");
    }
    return texts;
}

void fill_buffers(MemoryPlan& plan, const PreparedGraph& prepared, const BufferPlan& buffers,
                  const Step& step) {
    const memory::Aliasing& aliasing = buffers.aliasing;
    for (size_t b = 0; b < aliasing.buffers.size(); ++b) {
        const memory::SharedBuffer& buffer = aliasing.buffers[b];
        plan.buffers.push_back({.place = buffer.place,
                                .offset = buffers.offsets[b],
                                .bytes = buffer.bytes,
                                .live = buffer.live});
    }
    for (size_t value = 0; value < prepared.graph.value_count(); ++value) {
        PlannedBuffer& buffer = plan.buffers[aliasing.buffer_of[value]];
        const auto id = static_cast<ValueId>(value);
        if (buffer.values.empty()) buffer.use = use_of(prepared.graph, id, step);
        buffer.values.push_back(describe(prepared.graph, id));
    }
    for (size_t s = 0; s < buffers.workspaces.size(); ++s) {
        const uint32_t workspace = buffers.workspaces[s];
        if (workspace == memory::kNone) continue;
        PlannedBuffer& buffer = plan.buffers[aliasing.buffer_of[workspace]];
        buffer.use = BufferUse::workspace;
        buffer.values.push_back("workspace of " + plan.steps[s]);
        plan.workspace_bytes =
            std::max(plan.workspace_bytes, buffers.schedule.values[workspace].bytes);
    }
}

constexpr size_t kMostOfBound = 6;  // values that are told

MemoryPlan::Bound bound_of(const PreparedGraph& prepared, const BufferPlan& buffers,
                           size_t beside) {
    memory::Schedule schedule = buffers.schedule;
    // Further reads of a step only keep the order in which these steps run: the bound drops them.
    for (size_t s = 0; s < prepared.nodes.size(); ++s)
        schedule.steps[s].reads.resize(prepared.node(s).inputs.size());
    const memory::LowerBound least = memory::lower_bound(schedule);
    MemoryPlan::Bound bound{.bytes = least.bytes + beside};
    if (least.step == memory::kNone) {
        bound.why = "inputs, parameters and results";
        return bound;
    }
    std::vector<uint32_t> values = least.values;
    std::stable_sort(values.begin(), values.end(), [&](uint32_t a, uint32_t b) {
        return schedule.values[a].bytes > schedule.values[b].bytes;
    });
    bound.why = "beside inputs, parameters and results, in any order of the steps";
    for (size_t i = 0; i < std::min(values.size(), kMostOfBound); ++i)
        bound.why +=
            runtime::cat(i ? "; " : " ", runtime::size_text(schedule.values[values[i]].bytes), " ",
                         values[i] < prepared.graph.value_count()
                             ? describe(prepared.graph, static_cast<ValueId>(values[i]))
                             : "of workspace");
    if (values.size() > kMostOfBound)
        bound.why += runtime::cat("; ", values.size() - kMostOfBound, " more");
    bound.why +=
        runtime::cat(" at ", describe(prepared.graph, prepared.node(least.step).outputs[0]));
    return bound;
}

}  // namespace

MemoryPlan report_of(const PreparedGraph& prepared, const BufferPlan& buffers, const Step& step,
                     const LoweringOptions& options) {
    MemoryPlan plan{.steps = step_texts(prepared)};
    fill_buffers(plan, prepared, buffers, step);
    for (size_t s = 0; s < prepared.nodes.size(); ++s)
        if (const Node& node = prepared.node(s); is_host_copy(node)) {
            const size_t bytes = prepared.graph.type(node.outputs[0]).bytes();
            plan.transferred_bytes += bytes;
            if (node.op == &to_host()) plan.written_bytes += bytes;
        }
    const memory::MemorySummary summary =
        memory::summarize(buffers.schedule, buffers.aliasing, buffers.arena_bytes);
    plan.recompute_flops_ratio = recompute_flops_ratio(prepared.graph);
    plan.unplanned_bytes = recorded_bytes(step.graph);
    const size_t beside = unpacked_bytes(prepared.graph) + step.held_bytes;
    plan.planned_bytes = summary.planned_bytes + beside;
    plan.peak_live_bytes = summary.peak_live_bytes + beside;
    plan.held_bytes = step.held_bytes;
    plan.arena_bytes = buffers.arena_bytes;
    plan.host_bytes = buffers.host_bytes;
    const std::vector<bool> outside = lies_outside(prepared.graph);
    for (size_t value = 0; value < outside.size(); ++value)
        if (outside[value])
            plan.host_bytes += prepared.graph.type(static_cast<ValueId>(value)).bytes();
    plan.curve = options.curve;
    plan.transfers = options.transfers;
    if (options.memory_limit && plan.planned_bytes > options.memory_limit)
        plan.bound = bound_of(prepared, buffers, beside);
    return plan;
}

MemoryPlan plan_of(Graph graph, const Step& step, const LoweringOptions& options) {
    const PreparedGraph prepared = prepare_to_plan(std::move(graph), options.kernels);
    return report_of(prepared, plan_buffers(prepared, step, options.check), step, options);
}

namespace {

// The largest of `buffers`, at most `count` and no more than make up `share` of them all; the last
// text counts the others.
std::vector<std::string> largest_of(std::vector<const PlannedBuffer*> buffers, size_t count,
                                    double share) {
    std::stable_sort(buffers.begin(), buffers.end(),
                     [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
    size_t all = 0, told = 0;
    for (const PlannedBuffer* buffer : buffers) all += buffer->bytes;
    std::vector<std::string> texts;
    for (const PlannedBuffer* buffer : buffers) {
        if (texts.size() == count || static_cast<double>(told) >= share * static_cast<double>(all))
            break;
        texts.push_back(runtime::size_text(buffer->bytes) + " " + buffer->values.front());
        told += buffer->bytes;
    }
    if (const size_t others = buffers.size() - texts.size(); others && told < all)
        texts.push_back(runtime::cat(runtime::size_text(all - told), " in ", others, " more"));
    return texts;
}

}  // namespace

std::vector<std::string> largest_at_peak(const MemoryPlan& plan, size_t count, double share) {
    std::vector<size_t> alive(plan.steps.size() + 2);
    for (const PlannedBuffer& buffer : plan.buffers)
        if (buffer.place == memory::Place::kArena)
            for (uint32_t step = buffer.live.first; step < buffer.live.last; ++step)
                alive[step] += buffer.bytes;
    const auto peak =
        static_cast<uint32_t>(std::max_element(alive.begin(), alive.end()) - alive.begin());
    std::vector<const PlannedBuffer*> buffers;
    for (const PlannedBuffer& buffer : plan.buffers)
        if (buffer.place == memory::Place::kArena && buffer.live.first <= peak &&
            peak < buffer.live.last)
            buffers.push_back(&buffer);
    return largest_of(std::move(buffers), count, share);
}

std::vector<std::string> largest_outside_arena(const MemoryPlan& plan, size_t count) {
    std::vector<const PlannedBuffer*> buffers;
    for (const PlannedBuffer& buffer : plan.buffers)
        if (buffer.place != memory::Place::kArena && buffer.place != memory::Place::kHost)
            buffers.push_back(&buffer);
    return largest_of(std::move(buffers), count, 1);
}

std::string_view name_of(memory::Place place) {
    switch (place) {
        case memory::Place::kArena: return "arena";
        case memory::Place::kInput: return "input";
        case memory::Place::kConstant: return "constant";
        case memory::Place::kOutput: return "output";
        case memory::Place::kHost: return "host";
    }
    return "";
}

std::string_view name_of(BufferUse use) {
    switch (use) {
        case BufferUse::input: return "input";
        case BufferUse::parameter: return "parameter";
        case BufferUse::state: return "state";
        case BufferUse::constant: return "constant";
        case BufferUse::activation: return "activation";
        case BufferUse::gradient: return "gradient";
        case BufferUse::recomputed: return "recomputed";
        case BufferUse::workspace: return "workspace";
    }
    return "";
}

}  // namespace megjit::jit
