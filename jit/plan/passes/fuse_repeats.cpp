// What one kernel writes for another one alone, element by element, the other can compute again
// from what the first one read, and from its rows: exp(x - max) from x, in the gradient of a
// softmax. On a GPU, where kernels wait for memory, that saves the way out and back in.
#include <algorithm>
#include <map>
#include <set>

#include "jit/plan/passes/fusion_group.h"

namespace megjit::jit {
namespace {

constexpr size_t kLeastBytes = size_t{1} << 20;  // a value of fewer bytes stays in the cache
constexpr size_t kMostNodes = 16;  // a kernel repeats no more nodes of another

class Repeater {
public:
    explicit Repeater(const Grouping& grouping) : grouping_(grouping), graph_(grouping.graph) {}

    std::optional<Graph> run() {
        find_values();
        for (const auto& [pair, values] : values_) consider(pair.first, pair.second, values);
        if (repeats_.empty()) return {};
        return write();
    }

private:
    // The nodes of another group that a group repeats, in their order.
    using Nodes = std::set<NodeId>;

    size_t bytes(ValueId value) const { return graph_.type(value).bytes(); }
    NodeId maker(ValueId value) const { return graph_.value(value).producer; }
    bool is_element_of(int g, ValueId value) const {
        return grouping_.group_of_value(value) == g &&
               grouping_.form_of[at(maker(value))] == Form::element;
    }

    // Finds, by maker and reader, each value that groups alone read.
    void find_values() {
        std::map<ValueId, std::set<int>> readers;
        for (size_t id = 0; id < graph_.nodes().size(); ++id)
            for (ValueId input : graph_.nodes()[id].inputs) {
                const int from = grouping_.group_of_value(input), to = grouping_.group_of[id];
                if (from != kNoGroup && from != to && !grouping_.stored[at(input)] &&
                    is_element_of(from, input) && bytes(input) >= kLeastBytes)
                    readers[input].insert(to);
            }
        for (const auto& [value, groups] : readers)
            if (groups.size() == 1)
                values_[{grouping_.group_of_value(value), *groups.begin()}].push_back(value);
    }

    void consider(int from, int to, const std::vector<ValueId>& values) {
        const Group &maker_group = grouping_.group(from), &reader = grouping_.group(to);
        if (maker_group.contracts || reader.contracts || !(maker_group.shape == reader.shape) ||
            maker_group.layout != reader.layout)
            return;
        Nodes nodes;
        std::set<ValueId> operands;
        for (ValueId value : values) collect(from, value, nodes, operands);
        size_t saved = 0, kept = 0;
        for (ValueId value : values) saved += 2 * bytes(value);  // neither written nor read
        for (ValueId operand : operands)
            if (graph_.type(operand).shape == reader.shape &&
                std::ranges::find(reader.operands, operand) == reader.operands.end())
                kept += bytes(operand);
        if (nodes.size() > kMostNodes || kept > saved ||
            reader.nodes.size() + nodes.size() > kMaxOps ||
            reader.operands.size() + operands.size() > kMaxOperands)
            return;
        repeats_[to].insert(nodes.begin(), nodes.end());
    }
    void collect(int from, ValueId value, Nodes& nodes, std::set<ValueId>& operands) const {
        if (!is_element_of(from, value)) operands.insert(value);
        else if (nodes.insert(maker(value)).second)
            for (ValueId input : graph_.node(maker(value)).inputs)
                collect(from, input, nodes, operands);
    }

    Graph write() {
        Rewriter rewrite(graph_);
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const Node& node = graph_.nodes()[id];
            const int g = grouping_.group_of[id];
            if (repeats_.contains(g))
                rewrite.replace(node.outputs[0], with_repeated(rewrite, g, node));
            else rewrite.copy(node);
        }
        return drop_dead(rewrite.finish());
    }
    ValueId with_repeated(Rewriter& rewrite, int g, const Node& node) {
        Node copy = node;
        for (ValueId& input : copy.inputs) input = repeated(rewrite, g, input);
        return rewrite.to.add(std::move(copy), graph_.types(node.outputs))[0];
    }
    // The value as group g reads it.
    ValueId repeated(Rewriter& rewrite, int g, ValueId value) {
        if (!repeats_.at(g).contains(maker(value))) return rewrite.map(value);
        const auto known = repeated_.find({g, value});
        if (known != repeated_.end()) return known->second;
        const ValueId made = with_repeated(rewrite, g, graph_.node(maker(value)));
        return repeated_[{g, value}] = made;
    }

    const Grouping& grouping_;
    const Graph& graph_;
    std::map<std::pair<int, int>, std::vector<ValueId>> values_;  // by maker and reader
    std::map<int, Nodes> repeats_;  // by reader
    std::map<std::pair<int, ValueId>, ValueId> repeated_;  // by reader and value: the reader's own
};

}  // namespace

std::optional<Graph> with_repeats(const Grouping& grouping) { return Repeater(grouping).run(); }

size_t bytes_of_kernels(const Grouping& grouping) {
    size_t bytes = 0;
    for (const Group& group : grouping.groups) {
        for (const NodeId id : group.nodes)
            if (const ValueId value = grouping.graph.node(id).outputs[0];
                grouping.escapes[at(value)])
                bytes += grouping.graph.type(value).bytes();
        for (const ValueId operand : group.operands) bytes += grouping.graph.type(operand).bytes();
    }
    return bytes;
}

}  // namespace megjit::jit
