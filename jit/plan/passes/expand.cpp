// An op that says how it is made of simpler ones (OpDef::expand) becomes those, so that fuse can
// put them into one kernel with what stands around them. The op itself says when that does not pay
// (a few long rows, which the eager kernel shares among threads better). An op that goes step by
// step (OpDef::loop) becomes a scan. An op that the device can compute whole (steps of a product,
// attention, on a host recurrent layers) stays, unless the device refuses it. The gradient of layer
// norm stays on a host where no element-wise op stands before or behind it.
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

// What reads each value of a graph.
struct Readers {
    explicit Readers(const Graph& graph)
        : count(graph.value_count()), is_elementwise(graph.value_count()) {
        for (const Node& node : graph.nodes())
            for (const ValueId input : node.inputs) {
                ++count[at(input)];
                if (node.op && node.op->is_elementwise()) is_elementwise[at(input)] = true;
            }
        for (const ValueId output : graph.outputs) ++count[at(output)];
    }
    std::vector<int> count;
    std::vector<bool> is_elementwise;  // one of them at least
};

// Would a kernel that the op becomes save an element-wise op's way through memory?
bool has_neighbors(const Graph& graph, const Node& node, const Readers& readers) {
    const int64_t elements = graph.type(node.inputs[0]).numel();
    const auto is_made_for_it = [&](ValueId input) {
        const OpDef* maker = graph.producer(input).op;
        return maker && maker->is_elementwise() && readers.count[at(input)] == 1 &&
               graph.type(input).numel() == elements;
    };
    const auto is_read_so = [&](ValueId output) {
        return readers.is_elementwise[at(output)] && graph.type(output).numel() == elements;
    };
    return std::ranges::any_of(node.inputs, is_made_for_it) ||
           std::ranges::any_of(node.outputs, is_read_so);
}

// Does the device's own kernel compute the op? One that mostly moves memory gives way to a kernel
// that takes neighbors in.
bool stays_whole(const Graph& graph, const Node& node, const runtime::OpCall& call,
                 const Readers& readers) {
    if (node.op->epilogue) return true;
    if (!graph.device().computes_whole(call)) return false;
    const runtime::Cost cost = runtime::cost_of(call, graph.types(node.outputs));
    const bool moves_memory = !cost.is_product && cost.flops < cost.bytes;
    return node.op->loop || !moves_memory || !has_neighbors(graph, node, readers);
}

bool expand_node(const Node& node, Rewriter& rewrite, const Readers& readers,
                 bool splits_products) {
    if (node.kind != NodeKind::op || !(node.op->expand || node.op->loop) ||
        !pays(rewrite.from, node))
        return false;
    const std::vector<Type> types = rewrite.from.types(node.inputs);
    const runtime::OpCall call{*node.op, node.attrs, types};
    if (!splits_products && stays_whole(rewrite.from, node, call, readers)) return false;
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
    const Readers readers(graph);
    for (const Node& node : graph.nodes())
        if (!options.fuse_reduce || !expand_node(node, rewrite, readers, options.splits_products))
            rewrite.copy(node);
    return drop_dead(rewrite.finish());  // nobody reads some results of the expansion
}

}  // namespace megjit::jit
