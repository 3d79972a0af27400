#include "jit/passes/passes.h"
#include "runtime/eager/dispatch.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {
constexpr size_t kLargestResult = 64 << 10;  // bytes
}

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
        const auto results = runtime::compute(*node.op, node.attrs, operands);
        for (size_t i = 0; i < results.size(); ++i)
            rewrite.replace(node.outputs[i], rewrite.to.add_constant(results[i]));
    }
    return drop_dead(rewrite.finish());
}

}  // namespace megjit::jit
