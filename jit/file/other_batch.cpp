#include "jit/file/other_batch.h"

#include <algorithm>

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

class Resizing {
public:
    Resizing(const Model& model, BatchChange batch)
        : model_(model), batch_(batch), rewrite_(model.graph) {}

    Graph run() {
        for (const Node& node : model_.graph.nodes()) try {
                add(node);
            } catch (runtime::UserError& error) {
                error.message.what = cat("batch: ", error.message.what);
                if (error.message.at.empty()) error.message.at = node.where;
                runtime::user_error(std::move(error.message), error.kind);
            }
        return rewrite_.finish();
    }

private:
    void add(const Node& node) {
        if (is_batched(node, model_.input_names.size())) {
            Node made = node;
            made.outputs.clear();
            Type type = model_.graph.type(node.outputs[0]);
            type.shape[0] = batch_.to;
            rewrite_.replace(node.outputs[0], rewrite_.to.add(std::move(made), {&type, 1})[0]);
        } else if (node.kind == NodeKind::op) {
            resize(node);
        } else {
            if (!model_.follows_batch && node.kind == NodeKind::constant && !is_parameter(node))
                runtime::refuse_unknown(model_.graph.type(node.outputs[0]), batch_);
            rewrite_.copy(node);
        }
    }

    void resize(const Node& node) {
        const std::vector<ValueId> inputs = rewrite_.map(node.inputs);
        const std::vector<Type> before = model_.graph.types(node.inputs),
                                after = rewrite_.to.types(inputs);
        const runtime::OpCall call{*node.op, node.attrs, before};
        const Attrs attrs = before == after ? node.attrs : runtime::refit(call, after, batch_);
        if (!model_.follows_batch) runtime::refuse_unknown(call, attrs, batch_);
        if (before == after) return rewrite_.copy(node);
        Node made = node;
        made.inputs = inputs;
        made.outputs.clear();
        made.attrs = attrs;
        const std::vector<Type> types = runtime::infer({*made.op, made.attrs, after});
        const std::vector<ValueId> outputs = rewrite_.to.add(std::move(made), types);
        for (size_t i = 0; i < outputs.size(); ++i) rewrite_.replace(node.outputs[i], outputs[i]);
    }

    bool is_parameter(const Node& node) const {
        return std::ranges::find(model_.params, node.outputs[0]) != model_.params.end();
    }

    const Model& model_;
    const BatchChange batch_;
    Rewriter rewrite_;
};

// Means over the batch are numbers in its gradients.
void refuse_unknown_step(const Model& model) {
    if (model.follows_batch || !model.replaces_states()) return;
    runtime::user_error({.what = cat("batch: the function ", model.name, " updates its state"),
                         .why = "the file is of an earlier version, and does not say which of its "
                                "numbers are of the batch",
                         .fix = "dump the function again, or record it with the other batch"});
}

}  // namespace

Graph with_batch(const Model& model, int64_t batch) {
    if (batch < 1)
        runtime::user_error({.what = cat("batch: ", batch, " samples"),
                             .fix = "at least one is needed, or 0 for those of the file"});
    const BatchChange change{batch_of(model.graph, model.input_names.size()), batch};
    if (change.from == batch) return model.graph;
    if (!model.follows_batch) runtime::refuse_unknown_function(change);
    refuse_unknown_step(model);
    return Resizing(model, change).run();
}

}  // namespace megjit::jit
