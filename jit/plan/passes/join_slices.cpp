// The gradient of a slice is zeros with a part set; a tensor of which many slices were taken (the
// steps of a recurrent network, the heads of a transformer) adds up as many of them, each of full
// size. Where the parts do not overlap, they are set one after the other in one tensor of zeros:
// the work falls from slices times size to size.
#include <algorithm>

#include "jit/plan/passes/passes.h"

namespace megjit::jit {
namespace {

using Ints = std::vector<int64_t>;

// Zeros of a value's type with parts that do not overlap, not written yet.
struct Sparse {
    NodeId zeros = {};
    struct Region {
        ValueId value;
        const Node* setter;  // its attributes are the region
    };
    std::vector<Region> parts;
    std::string where;
};

// First and last place of a region along an axis.
std::pair<int64_t, int64_t> span_of(const Node& setter, size_t axis) {
    const auto part = [&](size_t attr) { return std::get<Ints>(setter.attrs[attr])[axis]; };
    const int64_t begin = part(0), end = part(1), step = part(2);
    const int64_t count =
        step > 0 ? (end - begin + step - 1) / step : (begin - end - step - 1) / -step;
    const int64_t last = begin + (std::max<int64_t>(count, 1) - 1) * step;
    return {std::min(begin, last), std::max(begin, last)};
}

bool overlap(const Node& a, const Node& b) {
    for (size_t axis = 0; axis < std::get<Ints>(a.attrs[0]).size(); ++axis) {
        const auto [a_first, a_last] = span_of(a, axis);
        const auto [b_first, b_last] = span_of(b, axis);
        if (a_last < b_first || b_last < a_first) return false;
    }
    return true;
}

class Joiner {
public:
    explicit Joiner(const Graph& graph)
        : graph_(graph),
          rewrite_(graph),
          sparse_(graph.value_count()),
          readers_(graph.value_count()),
          adder_(graph.value_count()) {
        for (const Node& node : graph.nodes())
            for (ValueId input : node.inputs) {
                ++readers_[at(input)];
                adder_[at(input)] =
                    node.op == &ops::add() && graph.type(node.outputs[0]) == graph.type(input);
            }
        for (ValueId output : graph.outputs) ++readers_[at(output)], adder_[at(output)] = false;
    }

    Graph run() {
        for (const Node& node : graph_.nodes()) place(node);
        return drop_dead(rewrite_.finish());
    }

private:
    void place(const Node& node) {
        if (std::optional<Sparse> made = sparse_of(node)) {
            const ValueId output = node.outputs[0];
            if (readers_[at(output)] == 1 && adder_[at(output)])
                sparse_[at(output)] = std::move(made);
            else if (made->parts.size() > 1) write(output, *made);
            else rewrite_.copy(node);
            return;
        }
        for (ValueId input : node.inputs)
            if (std::optional<Sparse>& pending = sparse_[at(input)]) {
                write(input, *pending);
                pending.reset();
            }
        rewrite_.copy(node);
    }

    std::optional<Sparse> sparse_of(const Node& node) const {
        if (node.op == &ops::slice_set()) {
            const Node& base = graph_.producer(node.inputs[0]);
            if (base.op != &ops::full() || std::get<double>(base.attrs[1]) != 0) return {};
            return Sparse{
                graph_.value(node.inputs[0]).producer, {{node.inputs[1], &node}}, node.where};
        }
        if (node.op != &ops::add() || node.inputs[0] == node.inputs[1]) return {};
        const std::optional<Sparse>&a = sparse_[at(node.inputs[0])],
              &b = sparse_[at(node.inputs[1])];
        if (!a || !b) return {};
        for (const Sparse::Region& x : a->parts)
            for (const Sparse::Region& y : b->parts)
                if (overlap(*x.setter, *y.setter)) return {};
        Sparse joint = *a;
        joint.parts.insert(joint.parts.end(), b->parts.begin(), b->parts.end());
        return joint;
    }

    void write(ValueId old, const Sparse& sparse) {
        const Type& type = graph_.type(old);
        Node zeros = graph_.node(sparse.zeros);  // a copy: each part is then set in place
        zeros.inputs.clear();
        ValueId result = rewrite_.to.add(std::move(zeros), {&type, 1})[0];
        for (const Sparse::Region& part : sparse.parts) {
            Node set = *part.setter;
            set.inputs = {result, rewrite_.map(part.value)};
            result = rewrite_.to.add(std::move(set), {&type, 1})[0];
        }
        rewrite_.replace(old, result);
    }

    const Graph& graph_;
    Rewriter rewrite_;
    std::vector<std::optional<Sparse>> sparse_;  // by value: pending
    std::vector<int> readers_;
    std::vector<bool> adder_;  // by value: its (last) reader adds it to another of its type
};

}  // namespace

Graph join_slices(Graph graph) {
    const auto sets = [](const Node& node) { return node.op == &ops::slice_set(); };
    if (std::ranges::none_of(graph.nodes(), sets)) return graph;
    return Joiner(graph).run();
}

}  // namespace megjit::jit
