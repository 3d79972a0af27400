#include "jit/plan/program_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "jit/plan/costs.h"
#include "jit/plan/failure_rule.h"
#include "jit/plan/passes/relister.h"
#include "jit/step/host_copy.h"
#include "memory/aliasing_validator.h"
#include "memory/validator.h"
#include "runtime/core/spill_file.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/user_line.h"

namespace megjit::jit {
namespace {

using runtime::Executable;

// The planner's problem: values, then one workspace value for each step that needs one.
class ScheduleBuilder {
public:
    ScheduleBuilder(const Graph& graph, const Step& of)
        : graph_(graph), lies_in_(graph.value_count()) {
        const std::vector<bool> outside = lies_outside(graph);
        for (size_t id = 0; id < graph.value_count(); ++id) {
            const auto value_id = static_cast<ValueId>(id);
            const Node& producer = graph.producer(value_id);
            memory::Value value{.bytes = graph.type(value_id).bytes()};
            if (producer.op == &to_host()) {
                value.kind = memory::ValueKind::kHost;
                value.align = runtime::SpillFile::kAlign;
            }
            if (outside[id]) {  // it takes no memory of the device
                value.bytes = 0;
                value.kind = memory::ValueKind::kTemp;
            }
            if (producer.kind == NodeKind::constant) value.kind = memory::ValueKind::kConstant;
            if (producer.kind == NodeKind::input) {
                value.kind = memory::ValueKind::kInput;
                const Input& input = of.input(producer.slot);
                const bool is_number = input.kind == Input::Kind::constant &&
                                       value.bytes <= kNumberBytes && !graph.device().is_host();
                value.donatable = input.is_released && !is_number && !outside[id];
            }
            schedule.values.push_back(value);
        }
        for (ValueId output : graph.outputs) {
            memory::Value& value = schedule.values[at(output)];
            if (value.kind == memory::ValueKind::kTemp) value.kind = memory::ValueKind::kOutput;
            if (value.kind == memory::ValueKind::kInput)
                value.donatable = false;  // the caller gets it back as it is
        }
        note_copies();
        std::iota(lies_in_.begin(), lies_in_.end(), 0u);
        guards_updates_ = FailureRule(graph.device()).guards_updates();
        for (const Node& node : graph.nodes())
            if (node.kind == NodeKind::input)
                for (size_t k = 0; k < of.outputs.size(); ++k)
                    if (of.outputs[k].replaces == node.slot)
                        updates_[static_cast<uint32_t>(at(node.outputs[0]))].insert(
                            static_cast<uint32_t>(at(graph.outputs[k])));
    }

    // Returns the id of the step's workspace value, or kNone.
    uint32_t add(const PreparedNode& prepared) {
        const Node& node = graph_.node(prepared.node);
        memory::StepAccess step;
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
                schedule.values.push_back(
                    {.bytes = bytes, .align = prepared.executable->workspace_align()});
                step.writes.push_back(workspace);
            }
        }
        renew_copies(step);
        if (guards_updates_) leave_inputs_to_updates(step);
        // A value that replaces an input best lies there: others may look at that memory, too.
        std::stable_partition(step.aliases.begin(), step.aliases.end(),
                              [&](const memory::Alias& alias) {
            const auto found = updates_.find(alias.input);
            return found != updates_.end() && found->second.contains(alias.output);
        });
        schedule.steps.push_back(std::move(step));
        return workspace;
    }

    // A value may be read twice by one step: an output may lie on it only if each of these reads
    // allows it.
    static void add_aliases(const Executable& executable, memory::StepAccess& step) {
        std::unordered_map<uint32_t, std::vector<int>>
            places;  // by value: where it stands among the reads
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

    static void add_parts(const Executable& executable, memory::StepAccess& step) {
        for (size_t in = 0; in < step.reads.size(); ++in) {
            const std::optional<Executable::Part> part = executable.part(static_cast<int>(in));
            if (!part || part->offset % kOperandAlign != 0) continue;
            const memory::AliasKind kind =
                part->of_output ? memory::AliasKind::kPart : memory::AliasKind::kSlice;
            step.aliases.push_back({.output = step.writes[0],
                                    .input = step.reads[in],
                                    .kind = kind,
                                    .offset = part->offset});
        }
    }

    // Where work after a failure is not left out, an input that is to be replaced must be whole
    // until its update, which sees the failure: nothing else may lie on it, or on a view of it.
    void leave_inputs_to_updates(memory::StepAccess& step) {
        for (const memory::Alias& alias : step.aliases)
            if (alias.kind == memory::AliasKind::kView || alias.kind == memory::AliasKind::kSlice)
                lies_in_[alias.output] = lies_in_[alias.input];
        std::erase_if(step.aliases, [&](const memory::Alias& alias) {
            const auto found = updates_.find(lies_in_[alias.input]);
            return alias.kind == memory::AliasKind::kInPlace && found != updates_.end() &&
                   !found->second.contains(alias.output);
        });
    }

    // A value is still read until the link has moved it to the host, by the device's speeds.
    void keep_until_stored(const PreparedGraph& prepared) {
        const auto& nodes = graph_.nodes();
        if (graph_.device().is_host() || std::none_of(nodes.begin(), nodes.end(), is_host_copy))
            return;  // costs take time; spill has placed what moves to a file
        Timetable times(graph_);
        std::vector<std::pair<double, uint32_t>> stores;  // the end of each, and its value
        for (size_t s = 0; s < prepared.nodes.size(); ++s) {
            const Node& node = prepared.node(s);
            std::erase_if(stores,
                          [&](const auto& store) { return store.first <= times.begins[s]; });
            for (const auto& [until, value] : stores) schedule.steps[s].reads.push_back(value);
            if (node.op != &to_host()) continue;
            const auto value = static_cast<uint32_t>(at(node.inputs[0]));
            stores.emplace_back(
                times.transferred(times.begins[s + 1], schedule.values[value].bytes), value);
        }
    }

    // A step that runs beside others keeps its bytes until another step waits for its result, but
    // for an operand that the result may lie on. An operand larger than the result (a gradient of
    // which this process gets its part) is kept until the next exchange begins: a step that takes
    // its place then waits for it.
    void keep_until_exchanged(const PreparedGraph& prepared) {
        size_t next = prepared.nodes.size() - 1;  // after the next exchange
        for (size_t s = prepared.nodes.size(); s-- > 0;) {
            if (!prepared.nodes[s].is_ordered) continue;
            const std::vector<ValueId>& results = prepared.node(s).outputs;
            const ValueId operand = viewed_by(graph_, prepared.node(s).inputs[0]);
            const size_t reader =
                first_reader(prepared, s, results).value_or(prepared.nodes.size() - 1);
            for (const uint32_t value : schedule.steps[s].writes) keep_until(reader, value, s);
            if (!prepared.nodes[s].executable->may_alias(0, 0) ||
                first_reader(prepared, s, {&operand, 1}))
                keep_until(graph_.type(operand).bytes() > graph_.type(results[0]).bytes()
                               ? std::min(reader, next)
                               : reader,
                           schedule.steps[s].reads[0], s);
            next = s;
        }
    }

    void keep_inputs_until_no_step_can_fail(const PreparedGraph& prepared) {
        const auto last =
            FailureRule(graph_.device())
                .keeps_inputs_until(graph_, schedule.steps.size(),
                                    [&](size_t s) -> const Node& { return prepared.node(s); });
        if (!last) return;
        memory::StepAccess& step = schedule.steps[*last];
        if (prepared.nodes[*last].is_ordered)
            std::erase_if(step.aliases, [&](const memory::Alias& alias) {
                return schedule.values[alias.input].kind == memory::ValueKind::kInput;
            });
        for (uint32_t id = 0; id < graph_.value_count(); ++id)
            if (schedule.values[id].donatable &&
                std::find(step.reads.begin(), step.reads.end(), id) == step.reads.end())
                step.reads.push_back(id);
    }

    memory::Schedule schedule;

private:
    // A copy's place is that of what is written to it, which takes its first bytes and leaves the
    // others.
    void note_copies() {
        for (const KeptCopy& copy : graph_.copies) {
            const auto written = static_cast<uint32_t>(at(graph_.outputs[copy.written]));
            for (const Node& node : graph_.nodes()) {
                if (node.kind != NodeKind::input || node.slot != copy.slot) continue;
                const auto read = static_cast<uint32_t>(at(node.outputs[0]));
                renewed_[written] = read;
                updates_[read].insert(written);
                schedule.values[read].donatable = true;
                schedule.values[written].bytes = schedule.values[read].bytes;
            }
        }
    }

    // A step that writes to a copy comes after all that read it, as one that reads it itself.
    void renew_copies(memory::StepAccess& step) {
        for (const uint32_t output : step.writes) {
            const auto found = renewed_.find(output);
            if (found == renewed_.end()) continue;
            step.reads.push_back(found->second);
            step.aliases.push_back({.output = output, .input = found->second});
        }
    }

    void keep_until(size_t reader, uint32_t value, size_t since) {
        std::vector<uint32_t>& reads = schedule.steps[reader].reads;
        if (reader != since && std::find(reads.begin(), reads.end(), value) == reads.end())
            reads.push_back(value);
    }

    // The first step after `after` that reads one of `values` and is not ordered.
    std::optional<size_t> first_reader(const PreparedGraph& prepared, size_t after,
                                       std::span<const ValueId> values) const {
        for (size_t s = after + 1; s < prepared.nodes.size(); ++s) {
            if (!prepared.nodes[s].executable || prepared.nodes[s].is_ordered) continue;
            for (ValueId input : prepared.node(s).inputs)
                if (std::ranges::count(values, viewed_by(graph_, input))) return s;
        }
        return {};
    }

    const Graph& graph_;
    std::map<uint32_t, std::set<uint32_t>> updates_;  // by input: the values that replace it
    std::map<uint32_t, uint32_t> renewed_;  // by what is written to a copy: the copy
    bool guards_updates_ = false;
    std::vector<uint32_t> lies_in_;  // by value: the value that it may be a view or slice of
};

// Makes steps and their operands from what memory/ decided.
class LayoutBuilder {
public:
    LayoutBuilder(const PreparedGraph& prepared, const BufferPlan& plan)
        : prepared_(prepared), plan_(plan), buffers_(plan.aliasing.buffers) {}

    ProgramLayout run() {
        layout_.arena_bytes = plan_.arena_bytes;
        layout_.host_bytes = plan_.host_bytes;
        const std::vector<bool> outside = lies_outside(prepared_.graph);
        for (uint32_t id = 0; id < outside.size(); ++id)
            if (outside[id] &&
                prepared_.graph.producer(static_cast<ValueId>(id)).kind == NodeKind::input)
                layout_.slots_outside.push_back(slot_of(id));
        std::ranges::sort(layout_.slots_outside);
        add_results();
        add_outputs();
        for (uint32_t s = 0; s < prepared_.nodes.size(); ++s) {
            add_copies(s);
            if (prepared_.nodes[s].executable) add_step(s);  // a view: nothing runs
        }
        add_copies(static_cast<uint32_t>(prepared_.nodes.size()));
        if (layout_.has_transfers) {
            start_early();
            wait_for_transfers();
            keep_at_hand();
        }
        return std::move(layout_);
    }

private:
    uint32_t slot_of(uint32_t value) const {
        return static_cast<uint32_t>(prepared_.graph.producer(static_cast<ValueId>(value)).slot);
    }

    void add_results() {
        result_of_buffer_.resize(buffers_.size());
        for (size_t b = 0; b < buffers_.size(); ++b) {
            const memory::SharedBuffer& buffer = buffers_[b];
            const bool is_input = buffer.place == memory::Place::kInput;
            if (buffer.output == memory::kNone) {
                if (is_input && buffer.overwritten)
                    layout_.overwritten.push_back(slot_of(buffer.value));
                continue;
            }
            result_of_buffer_[b] = static_cast<uint32_t>(layout_.results.size());
            layout_.results.push_back({.value = static_cast<ValueId>(buffer.output),
                                       .is_donated = is_input,
                                       .slot = is_input ? slot_of(buffer.value) : 0});
        }
    }

    void add_outputs() {
        using From = ProgramLayout::Output::From;
        for (ValueId output : prepared_.graph.outputs) {
            const Node& producer = prepared_.graph.producer(output);
            if (producer.kind == NodeKind::input)
                layout_.outputs.push_back({From::input, static_cast<uint32_t>(producer.slot)});
            else if (producer.kind == NodeKind::constant)
                layout_.outputs.push_back({From::constant, static_cast<uint32_t>(output)});
            else
                layout_.outputs.push_back(
                    {From::result, result_of_buffer_[plan_.aliasing.buffer_of[at(output)]]});
        }
        layout_.first_outputs.resize(layout_.results.size());
        for (size_t i = layout_.outputs.size(); i-- > 0;)
            if (const auto [from, index] = layout_.outputs[i]; from == From::result)
                layout_.first_outputs[index] = static_cast<uint32_t>(i);
    }

    // `offset`: bytes into the value.
    void add_operand(uint32_t value, size_t offset = 0) {
        const uint32_t b = plan_.aliasing.buffer_of[value];
        const memory::SharedBuffer& buffer = buffers_[b];
        ProgramLayout::Operand operand{.place = buffer.place,
                                       .offset = plan_.aliasing.offset_of[value] + offset};
        switch (buffer.place) {
            case memory::Place::kArena:
            case memory::Place::kHost: operand.offset += plan_.offsets[b]; break;
            case memory::Place::kConstant: operand.source = buffer.value; break;
            case memory::Place::kInput: operand.source = slot_of(buffer.value); break;
            case memory::Place::kOutput: operand.source = result_of_buffer_[b]; break;
        }
        layout_.operands.push_back(operand);
    }

    void add_copies(uint32_t step) {
        const std::vector<memory::Copy>& copies = plan_.aliasing.copies_needed;
        for (; next_copy_ < copies.size() && copies[next_copy_].step <= step; ++next_copy_) {
            const memory::Copy& copy = copies[next_copy_];
            layout_.steps.push_back(
                {.node = std::min(step, static_cast<uint32_t>(prepared_.nodes.size() - 1)),
                 .is_copy = true,
                 .copy_bytes = plan_.schedule.values[copy.to].bytes,
                 .first_operand = static_cast<uint32_t>(layout_.operands.size()),
                 .inputs = 1});
            add_operand(copy.from, copy.offset);
            add_operand(copy.to);
        }
    }

    void add_step(uint32_t s) {
        const Node& node = prepared_.node(s);
        ProgramLayout::Step step{
            .node = s,
            .first_operand = static_cast<uint32_t>(layout_.operands.size()),
            .inputs = static_cast<uint32_t>(node.inputs.size()),
            .is_transfer = is_host_copy(node) || prepared_.nodes[s].is_ordered};
        layout_.has_transfers |= step.is_transfer;
        for (ValueId input : node.inputs) add_operand(static_cast<uint32_t>(at(input)));
        for (ValueId output : node.outputs) add_operand(static_cast<uint32_t>(at(output)));
        if (plan_.workspaces[s] != memory::kNone)
            step.workspace = plan_.offsets[plan_.aliasing.buffer_of[plan_.workspaces[s]]];
        layout_.steps.push_back(step);
    }

    // ---- transfers

    struct Range {
        uint32_t buffer = memory::kNone;  // kNone: the arena, which buffers share
        size_t begin = 0, end = 0;  // bytes
        bool is_written = false;
        bool meets(const Range& other) const {
            return buffer == other.buffer && begin < other.end && other.begin < end &&
                   (is_written || other.is_written);
        }
    };

    std::vector<Range> ranges_of(const ProgramLayout::Step& step) const {
        std::vector<Range> ranges;
        const auto add = [&](uint32_t value, bool is_written) {
            const uint32_t b = plan_.aliasing.buffer_of[value];
            const memory::Place place = buffers_[b].place;
            if (place == memory::Place::kHost || place == memory::Place::kConstant) return;
            const bool in_arena = place == memory::Place::kArena;
            const size_t begin =
                (in_arena ? plan_.offsets[b] : 0) + plan_.aliasing.offset_of[value];
            ranges.push_back({in_arena ? memory::kNone : b, begin,
                              begin + plan_.schedule.values[value].bytes, is_written});
        };
        for (ValueId input : prepared_.node(step.node).inputs)
            add(static_cast<uint32_t>(at(input)), false);
        for (uint32_t value : plan_.schedule.steps[step.node].writes) add(value, true);
        return ranges;
    }

    bool meet(const ProgramLayout::Step& a, const ProgramLayout::Step& b) const {
        if (a.is_copy || b.is_copy) return true;
        for (const Range& x : ranges_of(a))
            for (const Range& y : ranges_of(b))
                if (x.meets(y)) return true;
        return false;
    }

    // A transfer is queued right after the last step that its place of the arena, or an earlier
    // transfer, has something to do with.
    void start_early() {
        std::vector<ProgramLayout::Step>& steps = layout_.steps;
        for (size_t i = 0; i < steps.size(); ++i) {
            if (!steps[i].is_transfer) continue;
            size_t to = i;
            while (to > 0 && !steps[to - 1].is_transfer && !meet(steps[to - 1], steps[i])) --to;
            std::rotate(steps.begin() + static_cast<std::ptrdiff_t>(to),
                        steps.begin() + static_cast<std::ptrdiff_t>(i),
                        steps.begin() + static_cast<std::ptrdiff_t>(i + 1));
        }
    }

    bool may_fail(const ProgramLayout::Step& transfer) const {
        return prepared_.graph.device().is_host() || !is_host_copy(prepared_.node(transfer.node));
    }
    bool overwrites_input(const ProgramLayout::Step& step) const {
        const std::vector<uint32_t>& writes = plan_.schedule.steps[step.node].writes;
        return !step.is_copy && std::any_of(writes.begin(), writes.end(), [&](uint32_t value) {
            return buffers_[plan_.aliasing.buffer_of[value]].place == memory::Place::kInput;
        });
    }

    // Each other step waits for the last transfer before it whose bytes it writes, or reads where
    // the transfer wrote them. Earlier transfers are over then, too. A step that overwrites an
    // input waits for all that may fail by themselves: exchanges, and copies to and from a file.
    // (What a GPU does not copy, it does not survive.)
    void wait_for_transfers() {
        std::vector<ProgramLayout::Step>& steps = layout_.steps;
        std::vector<uint32_t> pending;
        for (uint32_t i = 0; i < steps.size(); ++i) {
            if (steps[i].is_transfer) {
                pending.push_back(i);
                continue;
            }
            const bool overwrites = overwrites_input(steps[i]);
            for (size_t k = pending.size(); k-- > 0;) {
                if (!(overwrites && may_fail(steps[pending[k]])) &&
                    !meet(steps[pending[k]], steps[i]))
                    continue;
                steps[i].waits_for = pending[k];
                pending.erase(pending.begin(),
                              pending.begin() + static_cast<std::ptrdiff_t>(k) + 1);
                break;
            }
        }
    }

    // An exchange that the next step waits for runs on that step's stream.
    void keep_at_hand() {
        std::vector<ProgramLayout::Step>& steps = layout_.steps;
        for (size_t i = steps.size(); i-- > 0;) {
            if (!steps[i].is_transfer || is_host_copy(prepared_.node(steps[i].node))) continue;
            const bool is_last = i + 1 == steps.size();
            if (!is_last && steps[i + 1].waits_for != i) continue;
            if (!is_last) steps[i + 1].waits_for = memory::kNone;
            steps[i].is_transfer = false;
            // The exchange does not run before transfers that are still on their way.
            size_t past = 0;
            for (size_t k = i; k-- > past;) {
                if (steps[k].waits_for != memory::kNone)
                    past = std::max<size_t>(past, steps[k].waits_for + 1);
                if (!steps[k].is_transfer) continue;
                steps[i].waits_for = static_cast<uint32_t>(k);
                break;
            }
        }
    }

    const PreparedGraph& prepared_;
    const BufferPlan& plan_;
    const std::vector<memory::SharedBuffer>& buffers_;
    std::vector<uint32_t> result_of_buffer_;
    size_t next_copy_ = 0;
    ProgramLayout layout_;
};

}  // namespace

BufferPlan plan_buffers(const PreparedGraph& prepared, const Step& step, bool check) {
    ScheduleBuilder builder(prepared.graph, step);
    BufferPlan plan;
    for (const PreparedNode& node : prepared.nodes) plan.workspaces.push_back(builder.add(node));
    builder.keep_inputs_until_no_step_can_fail(prepared);
    builder.keep_until_stored(prepared);
    builder.keep_until_exchanged(prepared);
    plan.schedule = std::move(builder.schedule);
    plan.aliasing = memory::share_buffers(plan.schedule);
    plan.offsets.resize(plan.aliasing.buffers.size());
    const auto place = [&](memory::Place where) {
        const std::vector<memory::Buffer> buffers = memory::arena_buffers(plan.aliasing, where);
        const memory::Plan placed = memory::plan_arena(buffers);
        for (size_t i = 0; i < buffers.size(); ++i) plan.offsets[buffers[i].id] = placed.offsets[i];
        if (check)
            if (std::string fault = memory::fault_of(buffers, placed); !fault.empty())
                throw runtime::InternalError(fault);
        return placed.arena_bytes;
    };
    if (check)
        if (std::string fault = memory::fault_of_aliasing(plan.schedule, plan.aliasing);
            !fault.empty())
            throw runtime::InternalError(fault);
    plan.arena_bytes = place(memory::Place::kArena);
    plan.host_bytes = place(memory::Place::kHost);
    return plan;
}

std::optional<ProgramLayout::Operand> ProgramLayout::copied_from(size_t output) const {
    const auto [from, index] = outputs[output];
    if (from == Output::From::result && first_outputs[index] == output) return {};
    using memory::Place;
    return Operand{.place = from == Output::From::input      ? Place::kInput
                            : from == Output::From::constant ? Place::kConstant
                                                             : Place::kOutput,
                   .source = index};
}

ProgramLayout lay_out(const PreparedGraph& prepared, const BufferPlan& buffers) {
    ProgramLayout layout = LayoutBuilder(prepared, buffers).run();
    runtime::debug().dump("plan", {{".txt", [&] { return print(layout, prepared); }}});
    return layout;
}

void enqueue(const PreparedGraph& prepared, const ProgramLayout::Step& step, void* const* operands,
             std::byte* arena, runtime::Stream& stream) {
    if (step.is_copy) return stream.copy(operands[1], operands[0], step.copy_bytes);
    const PreparedNode& node = prepared.nodes[step.node];
    const auto run = [&] {
        node.executable->enqueue(stream, operands, operands + step.inputs, arena + step.workspace);
    };
    if (!node.is_ordered) return run();
    const runtime::AtUserLine at(prepared.node(step.node).where);
    run();
}

}  // namespace megjit::jit
