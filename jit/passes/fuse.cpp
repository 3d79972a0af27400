// Groups of nodes that become one kernel each. A node joins the group of one of its operands when
//   1. it is element-wise, a broadcast or a reduction, on dtypes that a kernel computes (no complex
//   numbers);
//   2. its result has the group's shape and layout, so that one iteration space serves both (its
//   other
//      operands may be smaller: they are broadcast by their access), or, in a group with
//      reductions, the shape that is left of it: one value a row;
//   3. a reduction runs over the axes that the group's other reductions run over, in a row-major
//   group, and
//      leaves enough rows to keep all threads busy (kMinRows, unless there is little to do): the
//      eager kernel cuts long rows, a generated one does not;
//   4. nothing that is long to compute stands before the group's first reduction: each pass over a
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
//   reads what
//      forward has) is computed earlier than recorded only if that frees as much as it stores, or
//      if its result is one value a row; and a group waits for a later one only if what it keeps
//      alive meanwhile is no larger than what it need not store.
// Groups that reduce the same value along the same axes become one (siblings).
// A group of one node stays as it was: the eager kernel is as good. A value leaves its kernel only
// if something outside of the group reads it, so a group never moves more bytes than its parts.
#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include "codegen/expand_math.h"
#include "jit/passes/fusion_group.h"
#include "runtime/error.h"

namespace megjit::jit {
namespace {

using runtime::Layout;
using runtime::Shape;

constexpr size_t kMaxOps = 64, kMaxRowOps = 160;
constexpr size_t kMaxOperands = 28;
constexpr int64_t kMinRows = 8, kFewElements = 32768;
constexpr int64_t kSmall = 4096;  // elements of a group that is joined with others of its shape
constexpr ptrdiff_t kSiblings = 4;  // how many candidates are looked at
constexpr int kHeavyInstructions = 40;  // of an op whose code is long

bool is_fusible_type(const Type& type) {
    return type.dtype != runtime::DType::c64 && type.numel() != 0;
}

// How many instructions the op's expression comes to. One op has the same answer wherever it
// stands.
bool is_heavy(const Graph& graph, const Node& node) {
    static std::map<const OpDef*, bool>
        known;  // under the compile lock of one trace; ops live for ever
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(node.op); found != known.end()) return found->second;
    const std::vector<Type> inputs = graph.types(node.inputs);
    const auto kernel =
        codegen::elementwise_kernel({*node.op, node.attrs, inputs}, graph.type(node.outputs[0]))
            .kernel;
    return known[node.op] = codegen::expand_math(kernel).program.size() > kHeavyInstructions;
}

// Enough rows (or columns, where the last axis is kept) for the threads to share?
bool has_rows_enough(const Shape& shape, uint32_t reduced) {
    int64_t kept = 1;
    for (int axis = 0; axis < shape.rank(); ++axis)
        if (!(reduced >> axis & 1u)) kept *= shape[axis];
    if (shape.numel() <= kFewElements) return true;
    const bool in_columns = !(reduced >> (shape.rank() - 1) & 1u);
    return kept / (in_columns ? codegen::kColumnBlock : 1) >= kMinRows;
}

// What reads a group first.
struct Reader {
    int level = std::numeric_limits<int>::max();
    int group = kNoGroup;
};

class Fuser {
public:
    Fuser(const Graph& graph, const PipelineOptions& options)
        : options_(options),
          graph_(graph),
          grouping_{.graph = graph,
                    .group_of = std::vector<int>(graph.nodes().size(), kNoGroup),
                    .form_of = std::vector<Form>(graph.nodes().size()),
                    .groups = {},
                    .escapes = {},
                    .stored = {},
                    .fold_dimshuffle = options.fuse_dimshuffle,
                    .refused = options.refused},
          level_(graph.nodes().size()),
          last_use_(graph.value_count(), kNever),
          use_before_(graph.value_count()) {
        for (size_t n = 0; n < graph.nodes().size(); ++n)
            for (ValueId input : graph.nodes()[n].inputs) {
                NodeId& last = last_use_[at(input)];
                const auto id = static_cast<NodeId>(n);
                if (graph.producer(input).kind != NodeKind::op || last == id) continue;
                if (last != kNever) use_before_[at(input)] = last;
                last = id;
            }
        for (ValueId output : graph.outputs) last_use_[at(output)] = kNever;
    }

    Graph run() {
        for (size_t id = 0; id < graph_.nodes().size(); ++id) place(static_cast<NodeId>(id));
        join_siblings();
        return rebuild();
    }

private:
    int group_of(ValueId id) const { return grouping_.group_of_value(id); }
    Form form_of(ValueId id) const { return grouping_.form_of[at(graph_.value(id).producer)]; }
    Group& group(int g) { return grouping_.groups[static_cast<size_t>(g)]; }
    const Group& group(int g) const { return grouping_.groups[static_cast<size_t>(g)]; }
    int level_of(ValueId id) const {
        const int g = group_of(id);
        return g == kNoGroup ? level_[at(graph_.value(id).producer)] : group(g).level;
    }

    bool can_fuse(const Node& node) const {
        const Part part = part_of(node);
        if (part == Part::none || node.inputs.empty()) return false;
        const Type& result = graph_.type(node.outputs[0]);
        if (!is_fusible_type(result)) return false;
        for (ValueId input : node.inputs) {
            const Type& type = graph_.type(input);
            if (!is_fusible_type(type)) return false;
            if (type.shape == result.shape && type.layout != result.layout) return false;
        }
        if (part != Part::reduction) return true;
        const Type& operand = graph_.type(node.inputs[0]);
        const uint32_t axes = reduced_axes(graph_, node);
        return options_.fuse_reduce && !options_.exact && operand.layout == Layout::row_major &&
               operand.numel() > result.numel() && has_rows_enough(operand.shape, axes);
    }

    void place(NodeId id) {
        const Node& node = graph_.node(id);
        if (can_fuse(node)) {
            int best = kNoGroup;
            for (ValueId input : node.inputs) {
                const int g = group_of(input);
                if (g > best && may_join(id, g)) best = g;  // the latest: most likely on one path
            }
            if (best == kNoGroup && part_of(node) == Part::reduction)
                ++era_;  // it may stay an op of its own
            if (best == kNoGroup && part_of(node) != Part::reshape) best = new_group(id);
            if (best != kNoGroup) {
                join(id, best);
                for (ValueId input : node.inputs) {
                    const int other = group_of(input);
                    if (other != kNoGroup && other != grouping_.group_of[at(id)])
                        try_merge(other, grouping_.group_of[at(id)]);
                }
                return;
            }
        }
        int level = 0;
        for (ValueId input : node.inputs) {
            level = std::max(level, level_of(input) + 1);
            if (group_of(input) != kNoGroup) note_reader(group_of(input), kNoGroup);
        }
        level_[at(id)] = level;
        const bool is_passing = node.kind != NodeKind::op || node.op->is_view ||
                                node.inputs.empty() || node.op->name == "checked_index";
        if (!is_passing) ++era_;
    }

    int needed_level(const Node& node, int g) const {
        int level = 0;
        for (ValueId input : node.inputs)
            if (group_of(input) != g || g == kNoGroup) level = std::max(level, level_of(input) + 1);
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
        if (part_of(node) == Part::reduction) {
            const Type& operand = graph_.type(node.inputs[0]);
            const uint32_t axes = reduced_axes(graph_, node);
            if (!(operand.shape == of.shape) || of.layout != Layout::row_major ||
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
        if (!form || (*form == Form::element && of.era != era_ &&
                      graph_.type(node.outputs[0]).bytes() > bytes_freed_by(id, g)))
            return false;
        const bool needs_rows =
            of.reduced && (*form != Form::element ||
                           std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
            return group_of(input) == g && form_of(input) != Form::element;
        }));
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

    // Of the values that only this node needs after the group.
    size_t bytes_freed_by(NodeId id, int g) const {
        size_t bytes = 0;
        const std::vector<ValueId>& inputs = graph_.node(id).inputs;
        for (auto input = inputs.begin(); input != inputs.end(); ++input) {
            const bool is_only_one =
                last_use_[at(*input)] == id && use_before_[at(*input)] <= group(g).nodes.back();
            if (is_only_one && std::find(inputs.begin(), input, *input) == input)
                bytes += graph_.type(*input).bytes();
        }
        return bytes;
    }

    // Group a runs where b does, later than recorded: are the operands that live until then larger
    // than its results that only b reads, and that are no longer stored?
    bool waiting_costs_memory(int a, int b) const {
        if (group(a).era == group(b).era) return false;
        size_t kept = 0, spared = 0;
        for (ValueId operand : group(a).operands)
            if (const NodeId last = last_use_[at(operand)];
                last != kNever && grouping_.group_of[at(last)] == a)
                kept += graph_.type(operand).bytes();
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
        if (!(from.shape == to.shape) || from.layout != to.layout) return;
        if (from.reduced && to.reduced && from.reduced != to.reduced) return;
        // An element-wise group that is read before a first reduction is walked again by each pass.
        if (from.reduced != to.reduced && (from.reduced ? to : from).heavy > 0 &&
            !reads_rows_only(from.reduced ? b : a, from.reduced ? a : b))
            return;
        if (from.nodes.size() + to.nodes.size() > kMaxOps || waiting_costs_memory(a, b)) return;
        const bool a_is_read = is_read_outside(a, b), b_is_read = is_read_outside(b, a);
        if ((from.level < to.level && a_is_read) || (to.level < from.level && b_is_read)) return;
        std::vector<ValueId> operands = joint_operands(a, b);
        if (operands.size() > kMaxOperands || !rows_stay_rows(a, b)) return;
        absorb(a, b, std::move(operands));
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

    std::vector<ValueId> joint_operands(int a, int b) const {
        std::vector<ValueId> operands;
        for (int g : {a, b})
            for (ValueId operand : group(g).operands)
                if (group_of(operand) != a && group_of(operand) != b &&
                    std::find(operands.begin(), operands.end(), operand) == operands.end())
                    operands.push_back(operand);
        return operands;
    }

    void absorb(int a, int b, std::vector<ValueId> operands) {
        Group &from = group(a), &to = group(b);
        for (NodeId node : from.nodes) grouping_.group_of[at(node)] = b;
        std::vector<NodeId> nodes;
        std::merge(from.nodes.begin(), from.nodes.end(), to.nodes.begin(), to.nodes.end(),
                   std::back_inserter(nodes));
        to.nodes = std::move(nodes);
        to.operands = std::move(operands);
        to.level = std::max(from.level, to.level);
        to.position = std::max(from.position, to.position);
        to.era = std::max(from.era, to.era);
        to.reduced |= from.reduced;
        to.heavy += from.heavy;
        to.readers.clear();
        from = {};
    }

    // Two groups that reduce the same value along the same axes, where no path leads from one to
    // the other. (None does if all readers of the lower one have levels above the other's.) The
    // data are read once, and nothing but rows is written earlier than before. Likewise
    // element-wise groups of few elements whose results one group reads: a kernel's start costs
    // more than their work.
    void join_siblings() {
        find_escaping();
        std::vector<Reader> lowest_reader = lowest_readers();
        std::map<ValueId, std::vector<int>> reducers;  // of an operand
        std::map<int, std::vector<int>> small;  // read by a group
        for (int g = 0; g < static_cast<int>(grouping_.groups.size()); ++g) {
            const Group& of = group(g);
            if (of.nodes.empty()) continue;
            const int reader = lowest_reader[static_cast<size_t>(g)].group;
            if (!of.reduced && of.shape.numel() <= kSmall && reader != kNoGroup)
                join_a_sibling(g, small[reader], lowest_reader);
            if (!of.reduced || !writes_rows_only(g)) continue;
            for (ValueId operand : std::vector(of.operands))
                if (graph_.type(operand).shape == of.shape &&
                    join_a_sibling(g, reducers[operand], lowest_reader))
                    break;
        }
    }
    bool join_a_sibling(int g, std::vector<int>& others, std::vector<Reader>& lowest_reader) {
        const auto first =
            std::ssize(others) > kSiblings ? others.end() - kSiblings : others.begin();
        const auto sibling = std::find_if(
            first, others.end(), [&](int other) { return are_siblings(g, other, lowest_reader); });
        if (sibling == others.end()) {
            others.push_back(g);
            return false;
        }
        absorb(g, *sibling, joint_operands(g, *sibling));
        Reader& lowest = lowest_reader[static_cast<size_t>(*sibling)];
        if (lowest_reader[static_cast<size_t>(g)].level < lowest.level)
            lowest = lowest_reader[static_cast<size_t>(g)];
        return true;
    }
    bool are_siblings(int a, int b, const std::vector<Reader>& lowest_reader) const {
        const Group &x = group(a), &y = group(b);
        if (a == b || y.nodes.empty() || !(x.shape == y.shape) || x.layout != y.layout ||
            x.reduced != y.reduced || x.nodes.size() + y.nodes.size() > kMaxOps)
            return false;
        const int lower = x.level < y.level ? a : b, level = std::max(x.level, y.level);
        return (x.level == y.level || lowest_reader[static_cast<size_t>(lower)].level > level) &&
               joint_operands(a, b).size() <= kMaxOperands;
    }
    std::vector<Reader> lowest_readers() const {
        std::vector<Reader> lowest(grouping_.groups.size());
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const int own = grouping_.group_of[id],
                      level = own == kNoGroup ? level_[id] : group(own).level;
            for (ValueId input : graph_.nodes()[id].inputs)
                if (const int g = group_of(input);
                    g != kNoGroup && g != own && level < lowest[static_cast<size_t>(g)].level)
                    lowest[static_cast<size_t>(g)] = {level, own};
        }
        return lowest;
    }
    bool writes_rows_only(int g) const {
        return std::all_of(group(g).nodes.begin(), group(g).nodes.end(), [&](NodeId id) {
            return grouping_.form_of[at(id)] != Form::element ||
                   !grouping_.escapes[at(graph_.node(id).outputs[0])];
        });
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
        const Type& space =
            graph_.type(part_of(node) == Part::reduction ? node.inputs[0] : node.outputs[0]);
        Group fresh;
        fresh.shape = space.shape;
        fresh.layout = space.layout;
        fresh.level = needed_level(node, kNoGroup);
        fresh.position = id;
        fresh.era = era_;
        grouping_.groups.push_back(std::move(fresh));
        return static_cast<int>(grouping_.groups.size()) - 1;
    }

    void join(NodeId id, int g) {
        Group& to = group(g);
        const Node& node = graph_.node(id);
        grouping_.form_of[at(id)] = *form_in(node, g);
        to.level = std::max(to.level, needed_level(node, g));
        if (part_of(node) == Part::reduction) to.reduced = reduced_axes(graph_, node);
        else if (!to.reduced && part_of(node) == Part::elementwise && is_heavy(graph_, node))
            ++to.heavy;
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

    Graph rebuild() {
        struct Item {
            int group;
            NodeId node;
        };
        std::vector<Item> items;
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const int g = grouping_.group_of[id];
            if (g == kNoGroup || group(g).position == static_cast<NodeId>(id))
                items.push_back({g, static_cast<NodeId>(id)});
        }
        find_escaping();
        return emit_in_dependency_order(items);
    }

    // Recorded order, but a group waits for its operands and nodes for their groups: depth first
    // from each item. Keeps the recorded order where it can, which is what keeps the memory peak
    // low.
    template <class Items>
    Graph emit_in_dependency_order(const Items& items) {
        Rewriter rewrite(graph_);
        std::vector<int8_t> done_group(grouping_.groups.size());
        std::vector<int8_t> done_node(graph_.nodes().size());
        // An explicit stack: graphs of thousands of nodes must not overflow the program's.
        struct Frame {
            int group;
            NodeId node;
            bool expanded;
        };
        std::vector<Frame> stack;
        for (const auto& item : items) {
            stack.push_back({item.group, item.node, false});
            while (!stack.empty()) {
                Frame frame = stack.back();
                auto& done =
                    frame.group == kNoGroup ? done_node[at(frame.node)] : done_group[frame.group];
                if (done) {
                    stack.pop_back();
                    continue;
                }
                if (!frame.expanded) {
                    stack.back().expanded = true;
                    const auto& inputs = frame.group == kNoGroup ? graph_.node(frame.node).inputs
                                                                 : group(frame.group).operands;
                    for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) {
                        const int g = group_of(*input);
                        const NodeId producer = graph_.value(*input).producer;
                        if (g == kNoGroup ? !done_node[at(producer)] : !done_group[g])
                            stack.push_back({g, producer, false});
                    }
                    continue;
                }
                done = 1;
                stack.pop_back();
                if (frame.group == kNoGroup) rewrite.copy(graph_.node(frame.node));
                else emit_group(grouping_, frame.group, rewrite);
            }
        }
        return rewrite.finish();
    }

    void find_escaping() {
        grouping_.escapes.assign(graph_.value_count(), false);
        grouping_.stored.assign(graph_.value_count(), false);
        for (size_t id = 0; id < graph_.nodes().size(); ++id)
            for (ValueId input : graph_.nodes()[id].inputs) {
                if (grouping_.group_of[id] == kNoGroup) grouping_.stored[at(input)] = true;
                if (grouping_.group_of[id] == kNoGroup || group_of(input) != grouping_.group_of[id])
                    grouping_.escapes[at(input)] = true;
            }
        for (ValueId output : graph_.outputs)
            grouping_.escapes[at(output)] = grouping_.stored[at(output)] = true;
    }

    PipelineOptions options_;
    const Graph& graph_;
    Grouping grouping_;
    static constexpr NodeId kNever = static_cast<NodeId>(~0u);
    std::vector<int> level_;  // by node
    std::vector<NodeId>
        last_use_;  // by value: the last node that reads it; kNever if it outlives the graph
    std::vector<NodeId> use_before_;  // by value: the last but one
    int era_ = 0;  // ops that are no part of a group, so far
};

}  // namespace

Graph fuse(const Graph& graph, const PipelineOptions& options) {
    return Fuser(graph, options).run();
}

}  // namespace megjit::jit
