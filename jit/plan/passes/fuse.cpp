// Groups of nodes that become one kernel each. A node joins the group of one of its operands when
//   1. it is element-wise, a broadcast or a reduction, on dtypes that a kernel computes (no complex
//   numbers);
//   2. its result has the group's shape and layout, so that one iteration space serves both (its
//   other
//      operands may be smaller: they are broadcast by their access), or, in a group with
//      reductions, the shape that is left of it: one value a row;
//   3. a reduction runs over the axes that the group's other reductions run over, in the group's
//   layout (which is
//      row-major on a host: assign_layouts), and leaves enough rows to keep all threads busy
//      (kMinRows, unless there is little to do): the eager kernel cuts long rows, a generated one
//      does not;
//   4. nothing that is slow to compute stands before the group's first reduction: each pass over a
//   row would
//      compute it again;
//   5. the group stays small: kMaxOps ops, kMaxOperands operands (registers and compile time); what
//   reads a
//      row value of the group may go up to kMaxRowOps, for a kernel cannot be left between two
//      passes;
//   6. no path leads out of the group and back in: every operand from elsewhere has a level below
//      the group's. A group's level is one above all its operands; a level can still be raised
//      until somebody outside has read the group.
//   7. memory's peak does not grow: a node that is recorded after other ops (a gradient, say, that
//      reads what forward has) is computed earlier than recorded only if that frees as much as it
//      stores, or if its result is one value a row; and a group waits for a later one only if what
//      it keeps alive meanwhile is no larger than what it need not store. (On a GPU values of few
//      bytes do not count, nor reductions between for a value that no kernel reads: what they read
//      mostly ends there. Nor does an update that replaces an input which others have read by
//      then.)
//   8. what only readers of the sums of a group that is walked once wait for does not join it: it
//   is computed with them;
//   9. a contraction (product_choice.h, makers_of_weights) begins a group of its own: only what
//      makes its weights and element-wise ops of its results join it, and it merges with no other
//      group.
// Groups that reduce the same value along the same axes become one (siblings).
// A group of one node stays as it was: the eager kernel is as good. A value leaves its kernel only
// if something outside of the group reads it, so a group never moves more bytes than its parts.
#include <algorithm>
#include <map>

#include "codegen/expand_math.h"
#include "codegen/strides.h"
#include "jit/plan/passes/fusion_group.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::Layout;
using runtime::Shape;

constexpr size_t kMaxRowOps = 160;
constexpr int64_t kMinRows = 8, kFewElements = 32768;
// A block of a GPU has so many columns, so many blocks keep a GPU busy, and one block alone walks
// over so many elements in the time of two launches.
constexpr int64_t kColumnsOfBlock = 32, kMinBlocks = 128, kShortBlock = 16384;
constexpr size_t kFewBytes = 64 << 10;
constexpr int kHeavyInstructions = 40;  // an op with more has long code

bool is_fusible_type(const Type& type) {
    return type.dtype != runtime::DType::c64 && type.numel() != 0;
}

// The C library computes functions of float64.
bool is_generated(const Graph& graph, const Node& node) {
    if (!node.op->is_elementwise()) return true;
    const std::vector<Type> inputs = graph.types(node.inputs);
    const auto is_double = [](const Type& type) { return type.dtype == runtime::DType::f64; };
    if (std::ranges::none_of(inputs, is_double)) return true;
    runtime::ScalarProgram program;
    runtime::build_expr({*node.op, node.attrs, inputs}, graph.type(node.outputs[0]).dtype, program);
    return codegen::can_expand_math(program);
}

// Is the code of its expression long, in the types that it has here?
bool is_heavy(const Graph& graph, const Node& node) {
    const std::vector<Type> inputs = graph.types(node.inputs);
    const auto kernel =
        codegen::elementwise_kernel({*node.op, node.attrs, inputs}, graph.type(node.outputs[0]))
            .kernel;
    return codegen::expand_math(kernel).program.size() > kHeavyInstructions;
}

// Are there enough rows (or columns, where the last axis is kept) for the threads to share? For a
// GPU: are the blocks so many, or so short, that one block may reduce a row alone?
bool has_rows_enough(const Shape& shape, Layout layout, uint32_t reduced,
                     const runtime::Device& device) {
    int64_t kept = 1;
    for (int axis = 0; axis < shape.rank(); ++axis)
        if (!(reduced >> axis & 1u)) kept *= shape[axis];
    if (shape.numel() <= kFewElements) return true;
    const bool in_columns = !(reduced >> codegen::memory_order(layout, shape.rank()).back() & 1u);
    if (!device.shares_rows()) return kept / (in_columns ? codegen::kColumnBlock : 1) >= kMinRows;
    const int64_t blocks = std::max<int64_t>(1, kept / (in_columns ? kColumnsOfBlock : 1));
    return blocks >= kMinBlocks || shape.numel() / blocks <= kShortBlock;
}

class Fuser {
public:
    Fuser(const Graph& graph, const PipelineOptions& options)
        : options_(options),
          graph_(graph),
          grouping_(graph, options),
          last_use_(graph.value_count(), kNever),
          use_before_(graph.value_count()),
          readers_(graph.value_count()),
          makers_(graph.nodes().size()),
          makes_weights_(graph.nodes().size()) {
        for (size_t n = 0; n < graph.nodes().size(); ++n)
            for (ValueId input : graph.nodes()[n].inputs) {
                NodeId& last = last_use_[at(input)];
                const auto id = static_cast<NodeId>(n);
                if (graph.producer(input).kind != NodeKind::op || last == id) continue;
                if (last != kNever) use_before_[at(input)] = last;
                last = id;
            }
        for (size_t n = 0; n < graph.nodes().size(); ++n)
            for (ValueId input : graph.nodes()[n].inputs)
                readers_[at(input)].push_back(static_cast<NodeId>(n));
        for (ValueId output : graph.outputs) last_use_[at(output)] = kNever;
        if (options.step && !graph.device().is_host()) find_updates(*options.step);
        const std::vector<uint32_t> readers = reader_counts(graph);
        for (size_t n = 0; n < graph.nodes().size(); ++n) {
            makers_[n] = makers_of_weights(graph, options, readers, graph.nodes()[n]);
            for (const NodeId maker : makers_[n].nodes) makes_weights_[at(maker)] = true;
        }
    }

    const Grouping& run() {
        for (size_t id = 0; id < graph_.nodes().size(); ++id) place(static_cast<NodeId>(id));
        grouping_.find_escaping();
        join_siblings(grouping_);
        grouping_.find_escaping();
        return grouping_;
    }

private:
    // Finds which nodes give a new value for an input that they read, and what they alone take for
    // it (guard_updates).
    void find_updates(const Step& step) {
        for (size_t k = 0; k < std::min(step.outputs.size(), graph_.outputs.size()); ++k) {
            const NodeId maker = graph_.value(graph_.outputs[k]).producer;
            const std::vector<ValueId>& inputs = graph_.node(maker).inputs;
            const auto old = std::ranges::find_if(inputs, [&](ValueId input) {
                const Node& read = graph_.producer(input);
                return read.kind == NodeKind::input && read.slot == step.outputs[k].replaces;
            });
            if (old == inputs.end()) continue;
            replaced_.emplace(maker, *old);
            for (const ValueId input : inputs)
                if (readers_[at(input)] == std::vector{maker} && last_use_[at(input)] == maker &&
                    graph_.type(input) == graph_.type(*old))
                    replaced_.emplace(graph_.value(input).producer, *old);
        }
        for (const KeptCopy& copy : graph_.copies) note_copy(copy);
    }

    // The node that writes a copy replaces the input that holds it, when the value's is replaced.
    void note_copy(const KeptCopy& copy) {
        const auto input_in = [&](int slot) {
            const auto input = std::ranges::find_if(graph_.nodes(), [&](const Node& node) {
                return node.kind == NodeKind::input && node.slot == slot;
            });
            return input->outputs[0];
        };
        const ValueId read = input_in(copy.slot);
        replaced_.emplace(graph_.value(graph_.outputs[copy.written]).producer, read);
        copies_.emplace(input_in(copy.of), read);
    }

    int group_of(ValueId id) const { return grouping_.group_of_value(id); }
    Form form_of(ValueId id) const { return grouping_.form_of[at(graph_.value(id).producer)]; }
    Group& group(int g) { return grouping_.group(g); }
    const Group& group(int g) const { return grouping_.group(g); }

    bool can_fuse(NodeId id) const {
        const Node& node = graph_.node(id);
        const Part part = part_of(node);
        if (part == Part::none || node.inputs.empty() || !is_generated(graph_, node)) return false;
        const Type& result = graph_.type(node.outputs[0]);
        if (!is_fusible_type(result)) return false;
        for (ValueId input : node.inputs) {
            const Type& type = graph_.type(input);
            if (!is_fusible_type(type)) return false;
            if (type.shape == result.shape && type.layout != result.layout) return false;
        }
        if (part != Part::reduction) return true;
        if (node.op->contraction)
            return !makers_[at(id)].nodes.empty() || grouping_.choices[at(id)].is_generated();
        const Type& operand = graph_.type(node.inputs[0]);
        const uint32_t axes = reduced_axes(graph_, node);
        return options_.fuse_reduce && !options_.exact && operand.numel() > result.numel() &&
               (graph_.device().shares_rows() ||
                has_rows_enough(operand.shape, operand.layout, axes, graph_.device()));
    }

    // Must several blocks share each row of the group, so that it is walked once alone?
    bool is_walked_once(const Group& of) const {
        return of.reduced && !of.contracts && graph_.device().shares_rows() &&
               !has_rows_enough(of.shape, of.layout, of.reduced, graph_.device());
    }

    void place(NodeId id) {
        const Node& node = graph_.node(id);
        if (makes_weights_[at(id)]) return;  // its group begins with the product
        if (can_fuse(id)) {
            int best = kNoGroup;
            for (ValueId input : node.inputs) {
                const int g = group_of(input);
                if (is_later(g, best) && may_join(id, g)) best = g;
            }
            if (best == kNoGroup && part_of(node) == Part::reduction)
                ++era_;  // it may stay an op of its own
            if (best == kNoGroup && part_of(node) != Part::reshape) best = new_group(id);
            if (best != kNoGroup) {
                join(id, best);
                for (ValueId input : node.inputs) {
                    const int other = group_of(input);
                    if (other != kNoGroup && other != grouping_.group_of[at(id)] &&
                        !only_rows_wait_for(id, other))
                        try_merge(other, grouping_.group_of[at(id)]);
                }
                return;
            }
        }
        int level = 0;
        for (ValueId input : node.inputs) {
            level = std::max(level, grouping_.level_of(graph_.value(input).producer) + 1);
            if (group_of(input) != kNoGroup) note_reader(group_of(input), kNoGroup);
        }
        grouping_.own_level[at(id)] = level;
        const bool is_passing = node.kind != NodeKind::op || node.op->is_view ||
                                node.inputs.empty() || node.op->only_checks;
        if (!is_passing) last_op_ = ++era_;
    }

    // Is g more likely on one path with what reads both? (On a GPU, where that saves a launch, the
    // lower of two groups of one space may still rise to the other.)
    bool is_later(int g, int other) const {
        const bool may_rise = g != kNoGroup && other != kNoGroup && !graph_.device().is_host() &&
                              group(g).shape == group(other).shape && !group(g).reduced &&
                              !group(other).reduced;
        return may_rise ? std::pair(group(g).level, g) > std::pair(group(other).level, other)
                        : g > other;
    }

    // Is all that reads the node behind the sums of g, which is walked once, and so no part of it?
    bool only_rows_wait_for(NodeId id, int g) const {
        const std::vector<NodeId>& readers = readers_[at(graph_.node(id).outputs[0])];
        const auto reads_rows = [&](NodeId reader) {
            return std::ranges::any_of(graph_.node(reader).inputs, [&](ValueId input) {
                return group_of(input) == g && form_of(input) != Form::element;
            });
        };
        return is_walked_once(group(g)) && !readers.empty() &&
               std::ranges::all_of(readers, reads_rows);
    }

    int needed_level(const Node& node, int g) const {
        int level = 0;
        for (ValueId input : node.inputs)
            if (group_of(input) != g || g == kNoGroup)
                level = std::max(level, grouping_.level_of(graph_.value(input).producer) + 1);
        return level;
    }

    // Where the node's result lies in a group's space; nothing if it does not fit.
    std::optional<Form> form_in(const Node& node, int g) const {
        const Group& of = group(g);
        const Type& result = graph_.type(node.outputs[0]);
        const auto inputs_fit = [&](auto fits) {
            return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
                return group_of(input) != g || fits(form_of(input));
            });
        };
        if (of.contracts) {
            const bool is_row =
                part_of(node) == Part::elementwise && result.shape == of.row_shape(Form::row_drop);
            return is_row ? std::optional(Form::row_drop) : std::nullopt;
        }
        if (part_of(node) == Part::reduction) {
            if (node.op->contraction) return {};
            const Type& operand = graph_.type(node.inputs[0]);
            const uint32_t axes = reduced_axes(graph_, node);
            if (!(operand.shape == of.shape) || of.layout != operand.layout ||
                (of.reduced ? of.reduced != axes : of.heavy > 0))
                return {};
            if (!inputs_fit([](Form form) { return form == Form::element; })) return {};
            return result.rank() == operand.rank() ? Form::row_keep : Form::row_drop;
        }
        if (part_of(node) != Part::reshape && result.shape == of.shape &&
            result.layout == of.layout) {
            const bool drop_fits = of.drop_broadcasts_as_row();
            if (inputs_fit([&](Form form) { return form != Form::row_drop || drop_fits; }))
                return Form::element;
            return {};
        }
        if (!of.reduced) return {};
        for (Form form : {Form::row_keep, Form::row_drop}) {
            if (!(result.shape == of.row_shape(form))) continue;
            const bool is_reshape = part_of(node) == Part::reshape;
            if (inputs_fit([&](Form input) {
                return is_reshape ? input != Form::element : input == form;
            }))
                return form;
        }
        return {};
    }

    bool may_join(NodeId id, int g) const {
        const Node& node = graph_.node(id);
        const Group& of = group(g);
        const std::optional<Form> form = form_in(node, g);
        const size_t bytes = counted_bytes(node.outputs[0]);
        const bool is_large = form && (*form == Form::element || of.contracts) && bytes > 0 &&
                              !updates_in_place(id, g);
        if (!form || (is_large && of.era != era_ && bytes > bytes_freed_by(id, g) &&
                      !(of.era >= last_op_ && is_stored_anyway(node.outputs[0]))))
            return false;
        const bool reads_rows = std::any_of(
            node.inputs.begin(), node.inputs.end(),
            [&](ValueId input) { return group_of(input) == g && form_of(input) != Form::element; });
        if (*form == Form::element && is_walked_once(of) &&
            (reads_rows || only_rows_wait_for(id, g)))
            return false;
        const bool needs_rows = of.reduced && (*form != Form::element || reads_rows);
        if (of.nodes.size() >= (needs_rows ? kMaxRowOps : kMaxOps)) return false;
        size_t fresh = 0;
        for (ValueId input : node.inputs)
            if (group_of(input) != g &&
                std::find(of.operands.begin(), of.operands.end(), input) == of.operands.end())
                ++fresh;
        if (of.operands.size() + fresh > kMaxOperands) return false;
        // Raising the level is sound only while no operand depends on this group through another
        // one; if nobody has read it, none does.
        return needed_level(node, g) <= of.level || of.readers.empty();
    }

    // Condition 7: what a value adds to the peak. On a GPU a launch costs more than few bytes.
    size_t counted_bytes(ValueId value) const {
        const size_t bytes = graph_.type(value).bytes();
        return graph_.device().is_host() || bytes > kFewBytes ? bytes : 0;
    }

    // Does the node replace an input, on a GPU, that all others have read when the group runs?
    bool updates_in_place(NodeId id, int g) const {
        const auto found = replaced_.find(id);
        const auto replaces_it = [&](NodeId reader) {
            const auto other = replaced_.find(reader);
            return other != replaced_.end() && other->second == found->second;
        };
        const auto may_be_replaced = [&](ValueId input) {
            return std::ranges::all_of(readers_[at(input)], [&](NodeId reader) {
                return replaces_it(reader) || is_read_by_then(reader, g);
            });
        };
        if (found == replaced_.end() || !may_be_replaced(found->second)) return false;
        const auto copy = copies_.find(found->second);
        return copy == copies_.end() || may_be_replaced(copy->second);
    }

    // Is its last reader, on a GPU, no part of a kernel?
    bool is_stored_anyway(ValueId value) const {
        const NodeId last = last_use_[at(value)];
        return !graph_.device().is_host() && (last == kNever || !can_fuse(last));
    }

    // Has a reader run when the group runs? (A host counts all that stand before the group's last
    // node: under the least limits, which are searched around its kernels, these stay small so.)
    bool is_read_by_then(NodeId reader, int g) const {
        if (graph_.device().is_host()) return reader <= group(g).nodes.back();
        return reader <= group(g).position || grouping_.group_of[at(reader)] == g;
    }

    // Counts the bytes of values that only this node needs after the group.
    size_t bytes_freed_by(NodeId id, int g) const {
        size_t bytes = 0;
        const std::vector<ValueId>& inputs = graph_.node(id).inputs;
        for (auto input = inputs.begin(); input != inputs.end(); ++input) {
            const bool is_only_one =
                last_use_[at(*input)] == id && is_read_by_then(use_before_[at(*input)], g);
            if (is_only_one && std::find(inputs.begin(), input, *input) == input)
                bytes += graph_.type(*input).bytes();
        }
        return bytes;
    }

    // Joined with b, group a runs where b does, which is later than recorded. Its operands live
    // until then, and its results that only b reads are no longer stored: is the first the larger?
    bool waiting_costs_memory(int a, int b) const {
        if (group(a).era == group(b).era) return false;
        size_t kept = 0, spared = 0;
        for (ValueId operand : group(a).operands)
            if (const NodeId last = last_use_[at(operand)];
                last != kNever && grouping_.group_of[at(last)] == a)
                kept += counted_bytes(operand);
        for (NodeId id : group(a).nodes) {
            const ValueId result = graph_.node(id).outputs[0];
            if (const NodeId last = last_use_[at(result)];
                last != kNever && grouping_.group_of[at(last)] == b)
                spared += graph_.type(result).bytes();
        }
        return kept > spared;
    }

    // Two groups that meet in a node become one where the conditions hold for all of it. The lower
    // one is raised to the other's level, so nobody but the other may have read it.
    void try_merge(int a, int b) {
        Group &from = group(a), &to = group(b);
        if (from.contracts || to.contracts) return;
        if (!(from.shape == to.shape) || from.layout != to.layout) return;
        if (from.reduced && to.reduced && from.reduced != to.reduced) return;
        // An element-wise group that is read before a first reduction is walked again by each pass.
        if (from.reduced != to.reduced && (from.reduced ? to : from).heavy > 0 &&
            !reads_rows_only(from.reduced ? b : a, from.reduced ? a : b))
            return;
        if (from.nodes.size() + to.nodes.size() > kMaxOps || waiting_costs_memory(a, b)) return;
        const bool a_is_read = is_read_outside(a, b), b_is_read = is_read_outside(b, a);
        if ((from.level < to.level && a_is_read) || (to.level < from.level && b_is_read)) return;
        if (grouping_.joint_operands(a, b).size() > kMaxOperands || !rows_stay_rows(a, b)) return;
        grouping_.absorb(a, b);
        if (a_is_read || b_is_read) group(b).readers.push_back(kNoGroup);
    }

    // A row value of either group is an operand of the other by its own form, or not at all.
    bool rows_stay_rows(int a, int b) const {
        const uint32_t reduced = group(a).reduced | group(b).reduced;
        const Group whole{.shape = group(a).shape, .layout = group(a).layout, .reduced = reduced};
        for (const auto& [g, other] : {std::pair{a, b}, std::pair{b, a}})
            for (NodeId id : group(g).nodes)
                for (ValueId input : graph_.node(id).inputs) {
                    if (group_of(input) != other || form_of(input) == Form::element) continue;
                    const Form reader = grouping_.form_of[at(id)];
                    if (reader == Form::element && is_walked_once(whole)) return false;
                    const bool fits = reader == Form::element ? form_of(input) == Form::row_keep ||
                                                                    whole.drop_broadcasts_as_row()
                                                              : reader == form_of(input);
                    if (!fits || part_of(graph_.node(id)) == Part::reduction) return false;
                }
        return true;
    }

    // Does group `reader` read nothing of `g` but row values? (Then it stands after g's
    // reductions.)
    bool reads_rows_only(int reader, int g) const {
        bool reads = false;
        for (NodeId id : group(reader).nodes)
            for (ValueId input : graph_.node(id).inputs) {
                if (group_of(input) != g) continue;
                if (form_of(input) == Form::element) return false;
                reads = true;
            }
        return reads;
    }

    // Does anything but group `other` read group g?
    bool is_read_outside(int g, int other) const {
        return std::any_of(group(g).readers.begin(), group(g).readers.end(),
                           [&](int reader) { return reader != other; });
    }
    void note_reader(int g, int reader) {
        std::vector<int>& readers = group(g).readers;
        if (std::find(readers.begin(), readers.end(), reader) == readers.end())
            readers.push_back(reader);
    }

    int new_group(NodeId id) {
        const Node& node = graph_.node(id);
        const bool reduces = part_of(node) == Part::reduction;
        const Type& result = graph_.type(node.outputs[0]);
        Group fresh;
        fresh.shape = reduces ? reduced_space(graph_, node) : result.shape;
        fresh.layout = reduces ? graph_.type(node.inputs[0]).layout : result.layout;
        fresh.level = needed_level(node, kNoGroup);
        fresh.makes_weights = !makers_[at(id)].nodes.empty();
        fresh.lanes = fresh.makes_weights                                ? makers_[at(id)].lanes
                      : grouping_.choices[at(id)].by == Products::panels ? codegen::Lanes::panels
                                                                         : codegen::Lanes::tiles;
        fresh.position = id;
        fresh.era = era_;
        grouping_.groups.push_back(std::move(fresh));
        return static_cast<int>(grouping_.groups.size()) - 1;
    }

    void join(NodeId id, int g) {
        const Node& node = graph_.node(id);
        for (const NodeId maker : makers_[at(id)].nodes) add(maker, Form::weights, g);
        add(id, node.op->contraction ? Form::row_drop : *form_in(node, g), g);
        Group& to = group(g);
        to.contracts = to.contracts || node.op->contraction;
        if (part_of(node) == Part::reduction) to.reduced = reduced_axes(graph_, node);
        else if (!to.reduced && part_of(node) == Part::elementwise && is_heavy(graph_, node))
            ++to.heavy;
    }

    void add(NodeId id, Form form, int g) {
        Group& to = group(g);
        const Node& node = graph_.node(id);
        grouping_.form_of[at(id)] = form;
        to.level = std::max(to.level, needed_level(node, g));
        for (ValueId input : node.inputs) {
            const int from = group_of(input);
            if (from == g) continue;
            if (from != kNoGroup) note_reader(from, g);
            if (std::find(to.operands.begin(), to.operands.end(), input) == to.operands.end())
                to.operands.push_back(input);
        }
        grouping_.group_of[at(id)] = g;
        to.nodes.push_back(id);
    }

    PipelineOptions options_;
    const Graph& graph_;
    Grouping grouping_;
    static constexpr NodeId kNever = static_cast<NodeId>(~0u);
    std::vector<NodeId>
        last_use_;  // by value: the last node that reads it; kNever if it outlives the graph
    std::vector<NodeId> use_before_;  // by value: the last but one
    std::vector<std::vector<NodeId>> readers_;  // by value, twice where a node reads it twice
    std::map<NodeId, ValueId> replaced_;  // by node: the input that its result will replace
    std::map<ValueId, ValueId> copies_;  // by input: its copy (Graph::copies)
    std::vector<WeightMakers> makers_;  // by node: makers_of_weights
    std::vector<bool> makes_weights_;  // by node: it makes the weights of a product
    int era_ = 0;  // ops that are no part of a group, so far, and reductions that began one
    int last_op_ = 0;  // the era after the last of these ops
};

}  // namespace

Graph fuse(Graph graph, const PipelineOptions& options) {
    Fuser fuser(graph, options);
    const Grouping& grouping = fuser.run();
    if (!graph.device().is_host())
        if (const std::optional<Graph> repeating = with_repeats(grouping)) {
            Fuser other(*repeating, options);
            const Grouping& less = other.run();
            if (bytes_of_kernels(less) < bytes_of_kernels(grouping)) return emit(less);
        }
    return emit(grouping);
}

}  // namespace megjit::jit
