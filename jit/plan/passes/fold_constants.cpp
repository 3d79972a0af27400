#include <algorithm>

#include "jit/plan/passes/passes.h"
#include "runtime/eager/dispatch.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

constexpr size_t kLargestResult = 64 << 10;  // bytes

// Constants come from where the program made them: captured tensors from their device, numbers and
// extents from the host. An op computes on one device.
void meet(std::vector<TensorRef>& operands, runtime::Device& of_graph) {
    const auto is_elsewhere = [&](const TensorRef& each) {
        return &each->device() != &operands[0]->device();
    };
    if (std::ranges::none_of(operands, is_elsewhere)) return;
    const auto is_on_host = [](const TensorRef& each) { return each->device().is_host(); };
    const bool stays_on_host = !of_graph.is_host() && std::ranges::all_of(operands, is_on_host);
    runtime::Device& place = stays_on_host ? runtime::host_device() : of_graph;
    for (TensorRef& operand : operands) operand = runtime::copied_to(operand, place);
}

}  // namespace

Graph fold_constants(Graph graph) {
    Rewriter rewrite(graph);
    for (const Node& node : graph.nodes()) {
        bool foldable =
            node.kind == NodeKind::op && !node.inputs.empty() && !runtime::is_ordered(*node.op);
        std::vector<TensorRef> operands;
        for (size_t i = 0; foldable && i < node.inputs.size(); ++i) {
            const Node& producer = rewrite.to.producer(rewrite.map(node.inputs[i]));
            foldable = producer.kind == NodeKind::constant;
            operands.push_back(producer.constant);
        }
        for (ValueId output : node.outputs)
            foldable = foldable && graph.type(output).bytes() <= kLargestResult;
        if (!foldable) {
            rewrite.copy(node);
            continue;
        }
        meet(operands, graph.device());
        const auto results = runtime::compute(*node.op, node.attrs, operands);
        for (size_t i = 0; i < results.size(); ++i)
            rewrite.replace(node.outputs[i], rewrite.to.add_constant(results[i]));
    }
    return drop_dead(rewrite.finish());
}

}  // namespace megjit::jit
