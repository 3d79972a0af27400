// Moves marked values to the host's memory as soon as they are there, and back before backward
// reads them: which, before the other passes; when back, after them, when it is known what runs
// meanwhile.
#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "jit/plan/costs.h"
#include "jit/plan/passes/passes.h"
#include "jit/plan/passes/relister.h"
#include "jit/step/host_copy.h"

namespace megjit::jit {
namespace {

// They are marked, made in forward, read in backward, and none of the results.
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

// Maps the node of backward that reads values first to those that the link can store, and bring
// back, in between. The others stay.
std::map<size_t, std::vector<ValueId>> values_to_fetch(const Graph& graph) {
    const std::set<ValueId> leaving = values_that_leave(graph);
    if (leaving.empty()) return {};
    Timetable times(graph);
    std::map<ValueId, double> stored;
    std::vector<std::pair<size_t, ValueId>> readers;  // the first in backward of each value
    std::set<ValueId> seen;
    const std::vector<Node>& nodes = graph.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
        for (ValueId output : nodes[i].outputs)
            if (leaving.contains(output))
                stored[output] = times.transferred(times.begins[i + 1], graph.type(output).bytes());
        if (!is_op(nodes[i]) || is_view(nodes[i]) || !nodes[i].role.is_backward) continue;
        for (ValueId input : nodes[i].inputs)
            if (const ValueId value = viewed_by(graph, input);
                leaving.contains(value) && seen.insert(value).second)
                readers.emplace_back(i, value);
    }
    std::map<size_t, std::vector<ValueId>> found;
    double link_is_free = times.begins.back();
    for (auto [node, value] : std::views::reverse(readers)) {
        const double begin = std::min(link_is_free, times.begins[node]) -
                             times.transfer_seconds(graph.type(value).bytes());
        if (begin < stored.at(value)) continue;
        link_is_free = begin;
        found[node].push_back(value);
    }
    return found;
}

}  // namespace

Graph offload(Graph graph, const PipelineOptions& options) {
    if (!options.device || options.device->is_host()) return graph;
    const auto fetched = values_to_fetch(graph);
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

Graph prefetch(Graph graph, const PipelineOptions&) {
    if (graph.device().is_host()) return graph;  // spill has placed them
    const std::vector<Node>& nodes = graph.nodes();
    const auto is_fetch = [&](size_t i) { return nodes[i].op == &from_host(); };
    std::map<ValueId, size_t> maker, reader;  // nodes that copy a value, or read it first
    std::vector<size_t> fetches;  // in the order of their readers
    for (size_t i = 0; i < nodes.size(); ++i) {
        if (is_host_copy(nodes[i])) maker[nodes[i].outputs[0]] = i;
        if (!is_op(nodes[i]) || is_view(nodes[i])) continue;
        for (ValueId input : nodes[i].inputs) {
            const auto made = maker.find(viewed_by(graph, input));
            if (made == maker.end() || !is_fetch(made->second)) continue;
            if (reader.emplace(made->first, i).second) fetches.push_back(made->second);
        }
    }
    if (fetches.empty()) return graph;
    Timetable times(graph);
    std::map<ValueId, double> stored;
    for (size_t i = 0; i < nodes.size(); ++i)
        if (nodes[i].op == &to_host())
            stored[nodes[i].outputs[0]] =
                times.transferred(times.begins[i + 1], graph.type(nodes[i].outputs[0]).bytes());
    std::map<size_t, std::vector<size_t>> before;
    double link_is_free = times.begins.back();
    for (const size_t fetch : std::views::reverse(fetches)) {
        const ValueId value = nodes[fetch].outputs[0], copy = nodes[fetch].inputs[0];
        size_t node = reader.at(value);
        link_is_free =
            std::max(stored.at(copy), std::min(link_is_free, times.begins[node]) -
                                          times.transfer_seconds(graph.type(value).bytes()));
        while (node > maker.at(copy) + 1 && times.begins[node] > link_is_free) --node;
        before[node].insert(before[node].begin(), fetch);
    }
    const std::set<size_t> moved(fetches.begin(), fetches.end());
    Rewriter rewriter(graph);
    for (size_t i = 0; i < nodes.size(); ++i) {
        for (const size_t fetch : before[i]) rewriter.copy(nodes[fetch]);
        if (!moved.contains(i)) rewriter.copy(nodes[i]);
    }
    return rewriter.finish();
}

}  // namespace megjit::jit
