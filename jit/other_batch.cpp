#include "jit/other_batch.h"

#include "runtime/host/error.h"
#include "runtime/ops/refit.h"

namespace megjit::jit {
namespace {

using runtime::BatchChange;
using runtime::cat;

bool is_batched(const Node& node, size_t inputs) {
    return node.kind == NodeKind::input && static_cast<size_t>(node.slot) < inputs;
}

// What the inputs have now.
int64_t batch_of(const Graph& graph, size_t inputs) {
    int64_t batch = -1;
    for (const Node& node : graph.nodes()) {
        if (!is_batched(node, inputs)) continue;
        const Type& type = graph.type(node.outputs[0]);
        const int64_t own = type.rank() ? type.shape[0] : -1;
        if (batch < 0) batch = own;
        if (own < 0 || own != batch)
            runtime::user_error({.what = cat("batch: input ", node.slot, " is ", to_string(type)),
                                 .why = "the first axis of all inputs is to have one extent",
                                 .fix = "leave the batch out"});
    }
    if (batch < 0)
        runtime::user_error(
            {.what = "batch: the function has no inputs", .fix = "leave the batch out"});
    return batch;
}

void resize(Rewriter& rewrite, const Node& node, BatchChange batch) {
    const std::vector<ValueId> inputs = rewrite.map(node.inputs);
    const std::vector<Type> before = rewrite.from.types(node.inputs),
                            after = rewrite.to.types(inputs);
    if (before == after) return rewrite.copy(node);
    Node made = node;
    made.inputs = inputs;
    made.outputs.clear();
    made.attrs = runtime::refit({*node.op, node.attrs, before}, after, batch);
    const std::vector<Type> types = runtime::infer({*made.op, made.attrs, after});
    const std::vector<ValueId> outputs = rewrite.to.add(std::move(made), types);
    for (size_t i = 0; i < outputs.size(); ++i) rewrite.replace(node.outputs[i], outputs[i]);
}

}  // namespace

Graph with_batch(const Graph& graph, size_t inputs, int64_t batch) {
    if (batch < 1)
        runtime::user_error({.what = cat("batch: ", batch, " samples"),
                             .fix = "at least one is needed, or 0 for those of the file"});
    const BatchChange change{batch_of(graph, inputs), batch};
    Rewriter rewrite(graph);
    for (const Node& node : graph.nodes()) {
        if (is_batched(node, inputs)) {
            Node made = node;
            made.outputs.clear();
            Type type = graph.type(node.outputs[0]);
            type.shape[0] = batch;
            rewrite.replace(node.outputs[0], rewrite.to.add(std::move(made), {&type, 1})[0]);
        } else if (node.kind != NodeKind::op) {
            rewrite.copy(node);
        } else {
            try {
                resize(rewrite, node, change);
            } catch (runtime::UserError& error) {
                error.message.what = cat("batch: ", error.message.what);
                if (error.message.at.empty()) error.message.at = node.where;
                runtime::user_error(std::move(error.message), error.kind);
            }
        }
    }
    return rewrite.finish();
}

}  // namespace megjit::jit
