// The graphs that an op holds go through the same passes as the one that it stands in. What they
// are given stays the caller's, so that nothing in them is donated, replaced or bound.
#include "jit/plan/passes/passes.h"
#include "jit/plan/pipeline.h"
#include "jit/step/subgraph.h"

namespace megjit::jit {
namespace {

std::string optimized(const std::string& text, PipelineOptions options, runtime::Device& device) {
    options.memory = {};
    options.step = nullptr;
    options.choose_whole = options.choose_plan = options.choose_units = {};
    options.choose_spill = {};
    options.recomputes_cheap = true;
    options.splits_products = false;
    const auto given = subgraph(text);
    Graph graph = *given;
    graph.set_device(device);
    graph = run_pipeline(std::move(graph), options);
    return graph.types(graph.outputs) == given->types(given->outputs) ? print(graph) : text;
}

}  // namespace

Graph optimize_subgraphs(Graph graph, const PipelineOptions& options) {
    Rewriter rewrite(graph);
    bool is_changed = false;
    for (Node node : graph.nodes()) {
        for (size_t i = 0; node.op && i < node.attrs.size(); ++i) {
            if (node.op->attrs[i].kind != runtime::AttrKind::graph) continue;
            const auto& text = std::get<std::string>(node.attrs[i]);
            node.attrs[i] = optimized(text, options, graph.device());
            is_changed = true;
        }
        rewrite.copy(node);
    }
    return is_changed ? rewrite.finish() : graph;
}

}  // namespace megjit::jit
