#include <algorithm>

#include "jit/passes/passes.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {

Graph drop_dead(Graph graph) {
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
    if (std::ranges::find(keep, false) == keep.end()) return graph;
    Rewriter rewrite(graph);
    for (size_t id = 0; id < nodes.size(); ++id)
        if (keep[id]) rewrite.copy(nodes[id]);
    return rewrite.finish();
}

}  // namespace megjit::jit
