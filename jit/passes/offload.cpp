// Moves marked values to the host's memory as soon as they are there, and back before backward
// reads them.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "jit/host_copy.h"
#include "jit/passes/passes.h"
#include "jit/passes/relister.h"

namespace megjit::jit {
namespace {

// Marked, made in forward, read in backward, and none of the results.
std::set<ValueId> values_that_leave(const Graph& graph) {
    std::set<ValueId> marked, leaving;
    for (const Node& node : graph.nodes())
        if (node.marks.is_offloaded)
            for (ValueId output : node.outputs) marked.insert(viewed_by(graph, output));
    for (ValueId output : graph.outputs) marked.erase(viewed_by(graph, output));
    std::erase_if(marked, [&](ValueId value) {
        return !is_op(graph.producer(value)) || graph.producer(value).role.is_backward;
    });
    for (const Node& node : graph.nodes())
        for (ValueId input : node.inputs)
            if (node.role.is_backward && marked.contains(viewed_by(graph, input)))
                leaving.insert(viewed_by(graph, input));
    return leaving;
}

// When, by the device's speeds, the link is done with what.
class Timetable {
public:
    Timetable(const Graph& graph, const std::set<ValueId>& leaving) : graph_(graph) {
        const std::vector<Node>& nodes = graph.nodes();
        starts_.resize(nodes.size() + 1);
        double link_is_free = 0;
        std::set<ValueId> seen;
        for (size_t i = 0; i < nodes.size(); ++i) {
            starts_[i + 1] = starts_[i] + seconds_of(graph, nodes[i]);
            for (ValueId output : nodes[i].outputs)
                if (leaving.contains(output))
                    stored_[output] = link_is_free =
                        std::max(link_is_free, starts_[i + 1]) + transfer(output);
            if (!is_op(nodes[i]) || is_view(nodes[i]) || !nodes[i].role.is_backward) continue;
            first_ = std::min(first_, i);
            for (ValueId input : nodes[i].inputs)
                if (const ValueId value = viewed_by(graph, input);
                    leaving.contains(value) && seen.insert(value).second)
                    readers_.emplace_back(i, value);
        }
    }

    // By node: the values whose transfer back begins before it, so that it is over when backward
    // first reads them, one after the other. A value that the link could not even store until then
    // is left out: it stays.
    std::map<size_t, std::vector<ValueId>> fetches() const {
        std::map<size_t, std::vector<ValueId>> found;
        double link_is_free = starts_.back();
        for (auto reader = readers_.rbegin(); reader != readers_.rend(); ++reader) {
            const auto [last, value] = *reader;
            const double begin = std::min(link_is_free, starts_[last]) - transfer(value);
            if (begin < stored_.at(value)) continue;
            link_is_free = begin;
            size_t node = last;
            while (node > first_ && starts_[node] > begin) --node;
            found[node].insert(found[node].begin(), value);
        }
        return found;
    }

private:
    double transfer(ValueId value) const {
        return transfer_seconds(graph_.device(), graph_.type(value).bytes());
    }

    const Graph& graph_;
    std::vector<double> starts_;  // by node
    std::map<ValueId, double> stored_;
    std::vector<std::pair<size_t, ValueId>> readers_;  // the first in backward of each value
    size_t first_ = std::numeric_limits<size_t>::max();  // node of backward
};

}  // namespace

Graph offload(const Graph& graph, const PipelineOptions& options) {
    if (!options.device || options.device->is_host()) return graph;
    const auto fetched = Timetable(graph, values_that_leave(graph)).fetches();
    if (fetched.empty()) return graph;
    std::set<ValueId> leaving;
    for (const auto& [node, values] : fetched) leaving.insert(values.begin(), values.end());
    Relister list(graph);
    std::map<ValueId, ValueId> on_host;
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
        const Node& node = graph.nodes()[i];
        if (const auto now = fetched.find(i); now != fetched.end())
            for (const ValueId value : now->second)
                list.read_from(value, list.add({.op = &from_host(),
                                                .where = graph.producer(value).where,
                                                .role = {.is_backward = true}},
                                               on_host.at(value), graph.type(value)));
        if (!is_op(node) || is_view(node)) continue;
        list.run(node);
        // In the region of what it stores: it would be computed again for a step elsewhere.
        for (ValueId output : node.outputs)
            if (leaving.contains(output))
                on_host[output] = list.add(
                    {.op = &to_host(), .where = node.where, .marks = {.region = node.marks.region}},
                    list.last_copy(output), graph.type(output));
    }
    return list.finish();
}

}  // namespace megjit::jit
