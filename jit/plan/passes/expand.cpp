// An op that says how it is made of simpler ones (OpDef::expand) becomes those, so that fuse can
// put them into one kernel with what stands around them. The op itself says when that does not pay
// (a few long rows, which the eager kernel shares among threads better). An op that goes step by
// step (OpDef::loop) becomes a scan. An op that the device can compute whole (steps of a product,
// attention, on a host recurrent layers) stays, unless the device refuses it.
#include "jit/plan/ops/control_flow.h"
#include "jit/plan/passes/passes.h"
#include "jit/step/graph_tracer.h"
#include "runtime/eager/dispatch.h"

namespace megjit::jit {
namespace {

// Picking one place from each line pays where a kernel computes the lines anyhow, and putting one
// value on each where nothing was there before. Else the op's own kernel touches less memory.
bool pays(const Graph& graph, const Node& node) {
    const bool picks = node.op->access == runtime::Access::picked;
    if (!picks && node.op->access != runtime::Access::written) return true;
    const OpDef* lines = graph.producer(node.inputs[0]).op;
    return lines && (picks ? lines->expand || lines->is_elementwise() : lines == &ops::full());
}

bool expand_node(const Node& node, Rewriter& rewrite, bool splits_products) {
    if (node.kind != NodeKind::op || !(node.op->expand || node.op->loop) ||
        !pays(rewrite.from, node))
        return false;
    const std::vector<Type> types = rewrite.from.types(node.inputs);
    const runtime::OpCall call{*node.op, node.attrs, types};
    const bool is_whole = node.op->epilogue || rewrite.from.device().computes_whole(call);
    if (is_whole && !splits_products) return false;
    const runtime::WithoutTapes quiet;
    GraphWriter writer(rewrite.to, node);
    const runtime::Tensors inputs = writer.operands(rewrite.map(node.inputs));
    const runtime::Tensors outputs =
        node.op->loop ? scan(call, inputs) : node.op->expand(call, inputs);
    for (size_t i = 0; i < outputs.size(); ++i)
        rewrite.replace(node.outputs[i], writer.value_of(outputs[i]));
    return !outputs.empty();
}

}  // namespace

Graph expand(Graph graph, const PipelineOptions& options) {
    Rewriter rewrite(graph);
    for (const Node& node : graph.nodes())
        if (!options.fuse_reduce || !expand_node(node, rewrite, options.splits_products))
            rewrite.copy(node);
    return drop_dead(rewrite.finish());  // nobody reads some results of the expansion
}

}  // namespace megjit::jit
