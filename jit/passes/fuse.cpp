// Element-wise groups. A node joins the group of one of its operands when
//   1. both are element-wise on dtypes that a kernel computes, and neither is a complex number;
//   2. the node's result has the group's shape and layout, so that one iteration space serves both
//      (its other operands may be smaller: they are broadcast by their access);
//   3. the group stays small: kMaxOps ops, kMaxOperands operands (registers and compile time);
//   4. no path leads out of the group and back in: every operand from elsewhere has a level below
//      the group's. A group's level is one above all its operands; a level can still be raised
//      until somebody outside has read the group.
// A group of one node stays as it was: the eager kernel is as good. A value leaves its kernel only if
// something outside of the group reads it, so a group never moves more bytes than its parts.
#include <algorithm>
#include <unordered_map>

#include "jit/passes/passes.h"
#include "runtime/error.h"

namespace megjit::jit {
namespace {

constexpr int kMaxOps = 64;
constexpr size_t kMaxOperands = 28;
constexpr int kNoGroup = -1;

struct Group {
    runtime::Shape shape;
    runtime::Layout layout = runtime::Layout::row_major;
    int level = 0;
    std::vector<int> readers;  // groups that read it; kNoGroup: nodes without one
    std::vector<NodeId> nodes;
    std::vector<ValueId> operands;  // distinct, from outside
};

bool can_fuse(const Graph& graph, const Node& node) {
    if (node.kind != NodeKind::op) return false;
    const bool is_broadcast = node.op->name == "broadcast_to";
    if (!node.op->is_elementwise() && !is_broadcast) return false;
    const Type& result = graph.type(node.outputs[0]);
    if (result.dtype == runtime::DType::c64 || result.numel() == 0) return false;
    for (ValueId input : node.inputs) {
        const Type& type = graph.type(input);
        if (type.dtype == runtime::DType::c64) return false;
        if (type.shape == result.shape && type.layout != result.layout) return false;
    }
    return !node.inputs.empty();
}

class Fuser {
public:
    explicit Fuser(const Graph& graph) : graph_(graph), group_of_(graph.nodes().size(), kNoGroup), level_(graph.nodes().size()) {}

    Graph run() {
        for (size_t id = 0; id < graph_.nodes().size(); ++id) place(static_cast<NodeId>(id));
        return rebuild();
    }

private:
    int group_of(ValueId id) const { return group_of_[at(graph_.value(id).producer)]; }
    int level_of(ValueId id) const {
        const int group = group_of(id);
        return group == kNoGroup ? level_[at(graph_.value(id).producer)] : groups_[group].level;
    }

    void place(NodeId id) {
        const Node& node = graph_.node(id);
        if (can_fuse(graph_, node)) {
            int best = kNoGroup;
            for (ValueId input : node.inputs) {
                const int group = group_of(input);
                if (group > best && may_join(node, group)) best = group;  // the latest: most likely on one path
            }
            if (best == kNoGroup) best = new_group(node);
            join(id, best);
            for (ValueId input : node.inputs) {
                const int other = group_of(input);
                if (other != kNoGroup && other != group_of_[at(id)]) try_merge(other, group_of_[at(id)]);
            }
            return;
        }
        int level = 0;
        for (ValueId input : node.inputs) {
            level = std::max(level, level_of(input) + 1);
            if (group_of(input) != kNoGroup) note_reader(group_of(input), kNoGroup);
        }
        level_[at(id)] = level;
    }

    int needed_level(const Node& node, int group) const {
        int level = 0;
        for (ValueId input : node.inputs)
            if (group_of(input) != group || group == kNoGroup) level = std::max(level, level_of(input) + 1);
        return level;
    }

    bool may_join(const Node& node, int g) const {
        const Group& group = groups_[g];
        const Type& result = graph_.type(node.outputs[0]);
        if (!(group.shape == result.shape) || group.layout != result.layout) return false;
        if (group.nodes.size() >= kMaxOps) return false;
        size_t fresh = 0;
        for (ValueId input : node.inputs)
            if (group_of(input) != g && std::find(group.operands.begin(), group.operands.end(), input) == group.operands.end()) ++fresh;
        if (group.operands.size() + fresh > kMaxOperands) return false;
        const int needed = needed_level(node, g);
        if (needed <= group.level) return true;
        if (!group.readers.empty()) return false;
        // Raising the level is sound only while no operand depends on this group through another one;
        // nobody has read it, so none does.
        return true;
    }

    // Two groups that meet in a node become one where the conditions hold for all of it. The lower one
    // is raised to the other's level, so nobody but the other may have read it.
    void try_merge(int a, int b) {
        Group &from = groups_[a], &to = groups_[b];
        if (!(from.shape == to.shape) || from.layout != to.layout) return;
        if (from.nodes.size() + to.nodes.size() > kMaxOps) return;
        const bool a_is_read = is_read_outside(a, b), b_is_read = is_read_outside(b, a);
        if ((from.level < to.level && a_is_read) || (to.level < from.level && b_is_read)) return;
        std::vector<ValueId> operands;
        for (const std::vector<ValueId>* list : {&from.operands, &to.operands})
            for (ValueId operand : *list)
                if (group_of(operand) != a && group_of(operand) != b && std::find(operands.begin(), operands.end(), operand) == operands.end())
                    operands.push_back(operand);
        if (operands.size() > kMaxOperands) return;
        for (NodeId node : from.nodes) group_of_[at(node)] = b;
        std::vector<NodeId> nodes;
        std::merge(from.nodes.begin(), from.nodes.end(), to.nodes.begin(), to.nodes.end(), std::back_inserter(nodes));
        to.nodes = std::move(nodes);
        to.operands = std::move(operands);
        to.level = std::max(from.level, to.level);
        to.readers.clear();
        if (a_is_read || b_is_read) to.readers.push_back(kNoGroup);
        from = {};
    }

    // Does anything but group `other` read group g?
    bool is_read_outside(int g, int other) const {
        return std::any_of(groups_[g].readers.begin(), groups_[g].readers.end(), [&](int reader) { return reader != other; });
    }
    void note_reader(int g, int reader) {
        std::vector<int>& readers = groups_[g].readers;
        if (std::find(readers.begin(), readers.end(), reader) == readers.end()) readers.push_back(reader);
    }

    int new_group(const Node& node) {
        const Type& result = graph_.type(node.outputs[0]);
        groups_.push_back({.shape = result.shape, .layout = result.layout, .level = needed_level(node, kNoGroup), .readers = {}, .nodes = {}, .operands = {}});
        return static_cast<int>(groups_.size()) - 1;
    }

    void join(NodeId id, int g) {
        Group& group = groups_[g];
        const Node& node = graph_.node(id);
        group.level = std::max(group.level, needed_level(node, g));
        for (ValueId input : node.inputs) {
            const int from = group_of(input);
            if (from == g) continue;
            if (from != kNoGroup) note_reader(from, g);
            if (std::find(group.operands.begin(), group.operands.end(), input) == group.operands.end()) group.operands.push_back(input);
        }
        group_of_[at(id)] = g;
        group.nodes.push_back(id);
    }

    // Nodes and groups in order of level; within a level in recorded order.
    Graph rebuild() {
        struct Item { int level; size_t first; int group; NodeId node; };
        std::vector<Item> items;
        std::vector<bool> emitted(groups_.size());
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const int g = group_of_[id];
            if (g == kNoGroup) {
                items.push_back({level_[id], id, kNoGroup, static_cast<NodeId>(id)});
            } else if (!emitted[g]) {
                emitted[g] = true;
                items.push_back({groups_[g].level, at(groups_[g].nodes.back()), g, {}});
            }
        }
        find_escaping();
        return emit_in_dependency_order(items);
    }

    // Recorded order, but a group waits for its operands and nodes for their groups: depth first from
    // each item. Keeps the recorded order where it can, which is what keeps the memory peak low.
    template <class Items>
    Graph emit_in_dependency_order(const Items& items) {
        Rewriter rewrite(graph_);
        std::vector<int8_t> done_group(groups_.size());
        std::vector<int8_t> done_node(graph_.nodes().size());
        // An explicit stack: graphs of thousands of nodes must not overflow the program's.
        struct Frame { int group; NodeId node; bool expanded; };
        std::vector<Frame> stack;
        for (const auto& item : items) {
            stack.push_back({item.group, item.node, false});
            while (!stack.empty()) {
                Frame frame = stack.back();
                auto& done = frame.group == kNoGroup ? done_node[at(frame.node)] : done_group[frame.group];
                if (done) { stack.pop_back(); continue; }
                if (!frame.expanded) {
                    stack.back().expanded = true;
                    const auto& inputs = frame.group == kNoGroup ? graph_.node(frame.node).inputs : groups_[frame.group].operands;
                    for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) {
                        const int g = group_of(*input);
                        const NodeId producer = graph_.value(*input).producer;
                        if (g == kNoGroup ? !done_node[at(producer)] : !done_group[g]) stack.push_back({g, producer, false});
                    }
                    continue;
                }
                done = 1;
                stack.pop_back();
                if (frame.group == kNoGroup) rewrite.copy(graph_.node(frame.node));
                else emit_group(groups_[frame.group], rewrite);
            }
        }
        return rewrite.finish();
    }

    void find_escaping() {
        escapes_.assign(graph_.value_count(), false);
        for (size_t id = 0; id < graph_.nodes().size(); ++id)
            for (ValueId input : graph_.nodes()[id].inputs)
                if (group_of_[id] == kNoGroup || group_of(input) != group_of_[id]) escapes_[at(input)] = true;
        for (ValueId output : graph_.outputs) escapes_[at(output)] = true;
    }

    void emit_group(const Group& group, Rewriter& rewrite) const {
        // The eager kernels know row-major only.
        if (group.nodes.size() == 1 && group.layout == runtime::Layout::row_major) return rewrite.copy(graph_.node(group.nodes[0]));
        runtime::ScalarProgram program;
        std::unordered_map<size_t, int> id_of;  // value -> id in the program
        std::vector<ValueId> operands;
        std::vector<Type> operand_types;
        for (ValueId operand : group.operands) {
            const Node& producer = graph_.producer(operand);
            const Type& type = graph_.type(operand);
            if (producer.kind == NodeKind::constant && type.numel() == 1) {  // a number in the code
                id_of[at(operand)] = scalar_constant(program, *producer.constant);
                continue;
            }
            id_of[at(operand)] = program.input(static_cast<int>(operands.size()), runtime::compute_type(type.dtype));
            operands.push_back(operand);
            operand_types.push_back(in_memory_order(type, group));
        }
        Node fused{.kind = NodeKind::fused, .where = graph_.node(group.nodes[0]).where};
        std::vector<int> results;
        std::vector<runtime::DType> dtypes;
        std::vector<ValueId> escaping;
        for (NodeId id : group.nodes) {
            const Node& node = graph_.node(id);
            fused.ops.push_back(node.op->name);
            id_of[at(node.outputs[0])] = inline_node(node, program, id_of);
            if (!escapes_[at(node.outputs[0])]) continue;
            results.push_back(id_of[at(node.outputs[0])]);
            dtypes.push_back(graph_.type(node.outputs[0]).dtype);
            escaping.push_back(node.outputs[0]);
        }
        program.keep_only(results);
        fused.inputs = rewrite.map(operands);
        fused.kernel = std::make_shared<codegen::BoundKernel>(
            codegen::bind(std::move(program), std::move(results), std::move(dtypes),
                          in_memory_order({.shape = group.shape, .layout = group.layout}, group).shape, operand_types));
        const std::vector<ValueId> outputs = rewrite.to.add(std::move(fused), graph_.types(escaping));
        for (size_t i = 0; i < escaping.size(); ++i) rewrite.replace(escaping[i], outputs[i]);
    }

    // A channels-last group iterates over (N, spatial..., C): shapes are written in that order.
    static Type in_memory_order(const Type& type, const Group& group) {
        Type result{.dtype = type.dtype, .shape = type.shape};
        if (group.layout == runtime::Layout::row_major) return result;
        runtime::Shape padded;
        for (int axis = 0; axis < group.shape.rank(); ++axis) {
            const int own = axis - (group.shape.rank() - type.rank());
            padded.push_back(own < 0 ? 1 : type.shape[own]);
        }
        result.shape = {padded[0]};
        for (int axis = 2; axis < padded.rank(); ++axis) result.shape.push_back(padded[axis]);
        result.shape.push_back(padded[1]);
        return result;
    }

    int inline_node(const Node& node, runtime::ScalarProgram& program, const std::unordered_map<size_t, int>& id_of) const {
        std::vector<int> args;
        for (ValueId input : node.inputs) args.push_back(id_of.at(at(input)));
        if (!node.op->is_elementwise()) return args[0];  // broadcast_to: the access does it
        runtime::ScalarProgram one;
        const std::vector<Type> inputs = graph_.types(node.inputs);
        const int result = runtime::build_expr({*node.op, node.attrs, inputs}, graph_.type(node.outputs[0]).dtype, one);
        return program.inline_program(one, result, args);
    }

    static int scalar_constant(runtime::ScalarProgram& program, const runtime::Tensor& tensor) {
        const runtime::ScalarType type = runtime::compute_type(tensor.dtype());
        const double value = runtime::item_as_double(tensor);
        const uint32_t bits = type == runtime::ScalarType::f32 ? std::bit_cast<uint32_t>(static_cast<float>(value))
                                                               : static_cast<uint32_t>(static_cast<int32_t>(value));
        return program.constant(type, bits);
    }

    const Graph& graph_;
    std::vector<int> group_of_;
    std::vector<int> level_;
    std::vector<Group> groups_;
    std::vector<bool> escapes_;
};

}  // namespace

Graph fuse(const Graph& graph) { return Fuser(graph).run(); }

}  // namespace megjit::jit
