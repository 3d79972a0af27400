#include <algorithm>

#include "jit/step/graph.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {

namespace {

std::vector<bool> live_nodes(const Graph& graph) {
    std::vector<bool> needed(graph.value_count());
    for (ValueId output : graph.outputs) needed[at(output)] = true;
    const auto& nodes = graph.nodes();
    std::vector<bool> keep(nodes.size());
    for (size_t id = nodes.size(); id-- > 0;) {
        for (ValueId output : nodes[id].outputs) keep[id] = keep[id] || needed[at(output)];
        // Inputs stay: they are the caller's interface.
        if (nodes[id].kind == NodeKind::input) keep[id] = true;
        // Other processes wait for it.
        if (nodes[id].op && runtime::is_ordered(*nodes[id].op)) keep[id] = true;
        if (keep[id])
            for (ValueId input : nodes[id].inputs) needed[at(input)] = true;
    }
    return keep;
}

}  // namespace

const Node* dead_node(const Graph& graph) {
    const std::vector<bool> keep = live_nodes(graph);
    const auto dead = std::ranges::find(keep, false);
    return dead == keep.end() ? nullptr : &graph.nodes()[static_cast<size_t>(dead - keep.begin())];
}

Graph drop_dead(Graph graph) {
    const std::vector<bool> keep = live_nodes(graph);
    if (std::ranges::find(keep, false) == keep.end()) return graph;
    const std::vector<Node>& nodes = graph.nodes();
    Rewriter rewrite(graph);
    for (size_t id = 0; id < nodes.size(); ++id)
        if (keep[id]) rewrite.copy(nodes[id]);
    return rewrite.finish();
}

}  // namespace megjit::jit
