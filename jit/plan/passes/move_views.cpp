// A reshape between two element-wise ops, or between one and a reduction, keeps fuse from making
// one kernel of them: each group has one shape. It moves to where no kernel begins or ends beside
// it:
//   1. up, in front of element-wise ops that only it reads and that take what no kernel makes (a
//      product, an input): cast -> reshape -> softmax becomes reshape -> cast -> softmax;
//   2. else down, after element-wise ops of its result that no kernel reads (a gradient's cast for
//      the products that take it).
// Reshapes of row-major values cost nothing.
#include <algorithm>

#include "jit/plan/passes/fusion_group.h"

namespace megjit::jit {
namespace {

using runtime::Shape;

class Mover {
public:
    explicit Mover(const Graph& graph)
        : graph_(graph),
          counts_(reader_counts(graph)),
          readers_(graph.value_count()),
          way_(graph.nodes().size(), Way::stays),
          before_(graph.value_count()) {
        for (size_t id = 0; id < graph.nodes().size(); ++id)
            for (ValueId input : graph.nodes()[id].inputs)
                readers_[at(input)].push_back(static_cast<NodeId>(id));
    }

    std::optional<Graph> run() {
        choose_up();
        choose_down();
        if (std::ranges::all_of(way_, [](Way way) { return way == Way::stays; })) return {};
        return write();
    }

private:
    enum class Way : uint8_t { stays, up, down };

    const Node& maker(ValueId value) const { return graph_.producer(value); }
    Way way_of(ValueId value) const { return way_[at(graph_.value(value).producer)]; }
    bool is_in_kernel(const Node& node) const {
        const Part part = part_of(node);
        return part != Part::none && part != Part::reshape && !node.op->contraction;
    }
    bool is_reshape(const Node& node) const {
        return part_of(node) == Part::reshape && is_row_major(node.inputs[0]) &&
               is_row_major(node.outputs[0]);
    }
    bool is_row_major(ValueId value) const {
        return graph_.type(value).layout == runtime::Layout::row_major;
    }
    bool is_read_in_kernel(ValueId value) const {
        return std::ranges::any_of(readers_[at(value)],
                                   [&](NodeId id) { return is_in_kernel(graph_.node(id)); });
    }
    // Does the node work element by element on values of one shape, beside single numbers?
    bool has_one_shape(const Node& node) const {
        if (part_of(node) != Part::elementwise || !is_row_major(node.outputs[0])) return false;
        const Shape& shape = graph_.type(node.outputs[0]).shape;
        return std::ranges::all_of(node.inputs, [&](ValueId input) {
            return is_number(input) || (graph_.type(input).shape == shape && is_row_major(input));
        }) && !std::ranges::all_of(node.inputs, [&](ValueId input) { return is_number(input); });
    }
    // One of more axes would give its reader more, too.
    bool is_number(ValueId value) const {
        return graph_.type(value).numel() == 1 && graph_.type(value).rank() <= 1;
    }

    // The only reader of the node's result; null: there is none, or more, or it is a result.
    const Node* only_reader(const Node& node) const {
        const ValueId value = node.outputs[0];
        const bool is_one = counts_[at(value)] == 1 && !readers_[at(value)].empty();
        return is_one ? &graph_.node(readers_[at(value)][0]) : nullptr;
    }

    // Rule 1: trees of ops whose root a reshape reads.
    void choose_up() {
        const size_t count = graph_.nodes().size();
        std::vector<bool> can_move(count);  // the node, with all of the tree that it reads
        for (size_t id = 0; id < count; ++id) {
            const Node& node = graph_.nodes()[id];
            can_move[id] = has_one_shape(node) && only_reader(node) &&
                           std::ranges::all_of(node.inputs, [&](ValueId input) {
                return is_number(input) || can_move[at(graph_.value(input).producer)] ||
                       !is_in_kernel(maker(input));
            });
        }
        for (size_t id = count; id-- > 0;) {
            if (!can_move[id]) continue;
            const Node& reader = *only_reader(graph_.nodes()[id]);
            const bool is_root = is_reshape(reader) && is_read_in_kernel(reader.outputs[0]);
            if (is_root || way_[at(graph_.value(reader.outputs[0]).producer)] == Way::up)
                way_[id] = Way::up;
        }
    }

    // Rule 2.
    void choose_down() {
        const size_t count = graph_.nodes().size();
        std::vector<bool> can_move(count);  // the node, with all its readers in kernels
        for (size_t id = count; id-- > 0;) {
            const Node& node = graph_.nodes()[id];
            can_move[id] = way_[id] == Way::stays && has_one_shape(node) && operand(node) &&
                           std::ranges::all_of(readers_[at(node.outputs[0])], [&](NodeId reader) {
                return can_move[at(reader)] || !is_in_kernel(graph_.node(reader));
            });
        }
        for (size_t id = 0; id < count; ++id) {
            if (!can_move[id]) continue;
            const ValueId value = *operand(graph_.nodes()[id]);
            const Node& node = maker(value);
            if (way_of(value) == Way::down ||
                (is_reshape(node) && way_of(node.inputs[0]) != Way::up &&
                 is_in_kernel(maker(node.inputs[0]))))
                way_[id] = Way::down;
        }
    }
    // Returns the one operand that is no single number.
    std::optional<ValueId> operand(const Node& node) const {
        std::optional<ValueId> found;
        for (ValueId input : node.inputs) {
            if (is_number(input)) continue;
            if (found) return {};
            found = input;
        }
        return found;
    }

    Graph write() {
        Rewriter rewrite(graph_);
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const Node& node = graph_.nodes()[id];
            if (way_[id] == Way::up) move_up(rewrite, node);
            else if (way_[id] == Way::down) move_down(rewrite, node);
            else if (is_reshape(node) && way_of(node.inputs[0]) == Way::up)
                rewrite.replace(node.outputs[0], rewrite.map(node.inputs[0]));
            else rewrite.copy(node);
        }
        return drop_dead(rewrite.finish());
    }

    void move_up(Rewriter& rewrite, const Node& node) {
        const Node* behind = only_reader(node);
        while (!is_reshape(*behind)) behind = only_reader(*behind);
        const Shape& shape = graph_.type(behind->outputs[0]).shape;
        std::vector<ValueId> inputs;
        for (ValueId input : node.inputs) {
            const ValueId made = rewrite.map(input);
            const bool is_there = is_number(input) || way_of(input) == Way::up;
            inputs.push_back(is_there ? made : reshaped(rewrite.to, made, shape, *behind));
        }
        rewrite.replace(node.outputs[0],
                        rewrite.to.make(*node.op, std::move(inputs), node.attrs, node));
    }

    void move_down(Rewriter& rewrite, const Node& node) {
        std::vector<ValueId> inputs = rewrite.map(node.inputs);
        const ValueId value = *operand(node);
        const Node& view = maker(value);
        const ValueId source =
            way_of(value) == Way::down ? before_[at(value)] : rewrite.map(view.inputs[0]);
        for (size_t i = 0; i < inputs.size(); ++i)
            if (node.inputs[i] == value) inputs[i] = source;
        const ValueId made = rewrite.to.make(*node.op, std::move(inputs), node.attrs, node);
        before_[at(node.outputs[0])] = made;
        rewrite.replace(node.outputs[0],
                        reshaped(rewrite.to, made, graph_.type(node.outputs[0]).shape, node));
    }

    static ValueId reshaped(Graph& graph, ValueId value, const Shape& shape, const Node& like) {
        return graph.make(ops::reshape(), {value},
                          {std::vector<int64_t>(shape.begin(), shape.end())}, like);
    }

    const Graph& graph_;
    std::vector<uint32_t> counts_;  // by value: its readers, and one where it is a result
    std::vector<std::vector<NodeId>> readers_;  // by value
    std::vector<Way> way_;  // by node
    std::vector<ValueId> before_;  // by value that moved down: it, in front of its reshape
};

}  // namespace

Graph move_views(Graph graph) {
    if (auto moved = Mover(graph).run()) return std::move(*moved);
    return graph;
}

}  // namespace megjit::jit
