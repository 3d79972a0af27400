// An op that says how it is made of simpler ones (OpDef::expand) becomes those, so that fuse can
// put them into one kernel with what stands around them. The op itself says when that is no good (a
// few long rows, which the eager kernel shares among threads better). One that goes step by step
// (OpDef::loop) becomes a scan. What the device may compute as a whole (steps behind a product,
// attention, on a host recurrent layers) stays so, but where it refuses.
#include <unordered_map>

#include "jit/ops/control_flow.h"
#include "jit/passes/passes.h"
#include "runtime/eager/dispatch.h"

namespace megjit::jit {
namespace {

// Writes what is dispatched while it lives into a graph.
class GraphWriter final : public runtime::Tracer {
public:
    GraphWriter(Graph& graph, const Node& composite)
        : graph_(graph),
          where_(composite.where),
          role_(composite.role),
          outer_(runtime::context().tracer) {
        runtime::context().tracer = this;
    }
    ~GraphWriter() override { runtime::context().tracer = outer_; }
    GraphWriter(const GraphWriter&) = delete;

    TensorRef placeholder(ValueId value) {
        TensorRef tensor = runtime::make_placeholder(graph_.type(value), graph_.device());
        values_[tensor->id()] = value;
        return tensor;
    }

    ValueId value_of(const TensorRef& tensor) {
        const auto [found, is_new] = values_.try_emplace(tensor->id());
        if (is_new) found->second = graph_.add_constant(tensor);  // a number of the expansion
        return found->second;
    }

    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device&) override {
        Node node{.kind = NodeKind::op, .op = &op, .attrs = attrs, .where = where_, .role = role_};
        for (const TensorRef& input : inputs) node.inputs.push_back(value_of(input));
        const std::vector<Type> types = graph_.types(node.inputs);
        runtime::Results outputs;
        for (ValueId output : graph_.add(std::move(node), runtime::infer({op, attrs, types})))
            outputs.push_back(placeholder(output));
        return outputs;
    }

    void on_read(runtime::Tensor&) override {}  // expansions read no values

private:
    Graph& graph_;
    std::string where_;
    Role role_;
    runtime::Tracer* outer_;
    std::unordered_map<uint64_t, ValueId> values_;  // by the tensor's id
};

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
    runtime::Tensors inputs;
    for (ValueId input : node.inputs) inputs.push_back(writer.placeholder(rewrite.map(input)));
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
    return drop_dead(rewrite.finish());  // results of the expansion that nobody reads
}

}  // namespace megjit::jit
