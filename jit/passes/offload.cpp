// Moves marked values to the host's memory as soon as they are there, and back before backward
// reads them.
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

}  // namespace

Graph offload(const Graph& graph, const PipelineOptions& options) {
    if (!options.device || !options.device->has_own_memory()) return graph;
    const std::set<ValueId> leaving = values_that_leave(graph);
    if (leaving.empty()) return graph;
    Relister list(graph);
    std::map<ValueId, ValueId> on_host;
    for (const Node& node : graph.nodes()) {
        if (!is_op(node) || is_view(node)) continue;
        for (ValueId input : node.inputs) {
            if (!node.role.is_backward) break;
            const auto stored = on_host.extract(viewed_by(graph, input));
            if (!stored) continue;
            const ValueId value = stored.key();
            list.read_from(value, list.add({.op = &from_host(),
                                            .where = graph.producer(value).where,
                                            .role = {.is_backward = true}},
                                           stored.mapped(), graph.type(value)));
        }
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
