// What one kernel writes for another one, element by element, the other can compute again from what
// the first one read, and from its rows. On a GPU, where kernels wait for memory, that saves a
// value
//   1. that one kernel alone reads, the way out and back in: exp(x - max) from x, in the gradient
//   of a softmax;
//   2. that is made of nothing large but what the reader reads anyhow, the way back in:
//   relu(norm(x)) from x, in the gradient of that norm.
#include <algorithm>
#include <map>
#include <set>

#include "jit/plan/passes/fusion_group.h"

namespace megjit::jit {
namespace {

constexpr size_t kLeastBytes = size_t{1} << 20;  // a value of fewer bytes stays in the cache
constexpr size_t kMostNodes = 16;  // a kernel repeats no more nodes for a value

class Repeater {
public:
    explicit Repeater(const Grouping& grouping) : grouping_(grouping), graph_(grouping.graph) {}

    std::optional<Graph> run() {
        find_readers();
        for (const auto& [pair, values] : values_of_one_) consider(pair.first, pair.second, values);
        for (const auto& [value, groups] : readers_)
            for (const int to : groups)
                if (to != kNoGroup) repeat_where_free(to, value);
        if (repeats_.empty()) return {};
        return write();
    }

private:
    // The nodes of other groups that a group repeats, in their order, and what these read.
    struct Cone {
        std::set<NodeId> nodes;
        std::set<ValueId> operands;
    };

    size_t bytes(ValueId value) const { return graph_.type(value).bytes(); }
    NodeId maker(ValueId value) const { return graph_.value(value).producer; }
    bool is_element_of(int g, ValueId value) const {
        return grouping_.group_of_value(value) == g &&
               grouping_.form_of[at(maker(value))] == Form::element;
    }
    bool have_one_space(int a, int b) const {
        const Group &x = grouping_.group(a), &y = grouping_.group(b);
        return !x.contracts && !y.contracts && x.shape == y.shape && x.layout == y.layout;
    }

    // Finds who reads each large value of a group's elements: other groups, or kNoGroup.
    void find_readers() {
        for (size_t id = 0; id < graph_.nodes().size(); ++id)
            for (ValueId input : graph_.nodes()[id].inputs) {
                const int from = grouping_.group_of_value(input), to = grouping_.group_of[id];
                if (from != kNoGroup && from != to && is_element_of(from, input) &&
                    bytes(input) >= kLeastBytes)
                    readers_[input].insert(to);
            }
        for (const auto& [value, groups] : readers_) {
            const int from = grouping_.group_of_value(value), to = *groups.begin();
            if (groups.size() == 1 && !grouping_.stored[at(value)] && have_one_space(from, to))
                values_of_one_[{from, to}].push_back(value);
        }
    }

    // Case 1.
    void consider(int from, int to, const std::vector<ValueId>& values) {
        Cone far, near;
        size_t saved = 0;
        for (ValueId value : values) {
            collect(from, to, value, far, false);
            collect(from, to, value, near, true);
            saved += 2 * bytes(value);  // neither written nor read
        }
        const Cone& cone = bytes_kept(to, near) < bytes_kept(to, far) ? near : far;
        if (bytes_kept(to, cone) > saved || !take(to, cone)) return;
        for (ValueId operand : cone.operands)
            if (bytes(operand) >= kLeastBytes) repeat_where_free(to, operand);
    }
    // What the reader reads in addition.
    size_t bytes_kept(int to, const Cone& cone) const {
        size_t kept = 0;
        for (ValueId operand : cone.operands)
            if (is_large_and_new(to, operand)) kept += bytes(operand);
        return kept;
    }
    // Case 2.
    void repeat_where_free(int to, ValueId value) {
        if (const auto known = repeats_.find(to);
            known != repeats_.end() && known->second.nodes.contains(maker(value)))
            return;
        Cone cone;
        collect_all(to, value, cone);
        if (!cone.nodes.empty() && bytes_kept(to, cone) == 0) take(to, cone);
    }
    bool is_large_and_new(int to, ValueId operand) const {
        const auto reads = [&](const auto& operands) {
            return std::ranges::find(operands, operand) != operands.end();
        };
        const auto taken = repeats_.find(to);
        return graph_.type(operand).shape == grouping_.group(to).shape &&
               !reads(grouping_.group(to).operands) &&
               (taken == repeats_.end() || !reads(taken->second.operands));
    }
    bool take(int to, const Cone& cone) {
        const Group& reader = grouping_.group(to);
        Cone all = repeats_.contains(to) ? repeats_.at(to) : Cone{};
        all.nodes.insert(cone.nodes.begin(), cone.nodes.end());
        all.operands.insert(cone.operands.begin(), cone.operands.end());
        if (cone.nodes.size() > kMostNodes || reader.nodes.size() + all.nodes.size() > kMaxOps ||
            reader.operands.size() + all.operands.size() > kMaxOperands)
            return false;
        repeats_[to] = std::move(all);
        return true;
    }

    // Goes back within a group, or up to what it writes for others than `to` as well.
    void collect(int from, int to, ValueId value, Cone& cone, bool stops_early) const {
        if (!is_element_of(from, value) || (stops_early && is_written_for_others(to, value)))
            cone.operands.insert(value);
        else if (cone.nodes.insert(maker(value)).second)
            for (ValueId input : graph_.node(maker(value)).inputs)
                collect(from, to, input, cone, stops_early);
    }
    bool is_written_for_others(int to, ValueId value) const {
        const auto readers = readers_.find(value);
        return readers != readers_.end() && readers->second != std::set<int>{to};
    }
    // Goes back through all groups, up to what the reader reads, or what is no element.
    void collect_all(int to, ValueId value, Cone& cone) const {
        const int from = grouping_.group_of_value(value);
        const bool is_asked_for = cone.nodes.empty();
        if (from == kNoGroup || from == to || !is_element_of(from, value) ||
            !have_one_space(from, to) || cone.nodes.size() > kMostNodes ||
            (!is_asked_for && !is_large_and_new(to, value)))
            cone.operands.insert(value);
        else if (cone.nodes.insert(maker(value)).second)
            for (ValueId input : graph_.node(maker(value)).inputs) collect_all(to, input, cone);
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
        if (!repeats_.at(g).nodes.contains(maker(value))) return rewrite.map(value);
        const auto known = repeated_.find({g, value});
        if (known != repeated_.end()) return known->second;
        const ValueId made = with_repeated(rewrite, g, graph_.node(maker(value)));
        return repeated_[{g, value}] = made;
    }

    const Grouping& grouping_;
    const Graph& graph_;
    std::map<ValueId, std::set<int>> readers_;
    // By maker and reader: what the reader alone reads.
    std::map<std::pair<int, int>, std::vector<ValueId>> values_of_one_;
    std::map<int, Cone> repeats_;  // by reader
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
