// Activations of convolutions, pooling and batch norm lie channels-last (N, spatial..., C) between
// them: oneDNN's primitives are fastest there, and need no reordered copies.
//   1. An op that says so (OpDef::channels_last_inputs / _outputs) gets and gives channels-last.
//   2. An element-wise op follows when a full-sized operand is channels-last and its smaller operands
//      (per-channel scales, scalars) keep their order under the change.
//   3. So does an op that only moves elements (OpDef::follows_layout), when any operand is channels-last.
//   4. Every other op gets row-major. Where two meet, one `relayout` copies; equal ones are shared.
// A graph without a convolution stays as it is: there is nothing to win.
#include <algorithm>

#include "jit/passes/passes.h"
#include "runtime/op.h"

namespace megjit::jit {
namespace {

using runtime::Layout;

bool is_convolution(const Node& node) {
    return node.kind == NodeKind::op && (node.op->name == "conv" || node.op->name == "conv_backward_data");
}

// Per-channel or scalar operands: at most batch and channel axes are not 1, so that (N, 1.., C) and
// (N, C, 1..) are the same bytes.
bool keeps_order(const Type& operand, const Type& result) {
    const int offset = result.rank() - operand.rank();
    for (int axis = 0; axis < operand.rank(); ++axis)
        if (axis + offset >= 2 && operand.shape[axis] != 1) return false;
    return true;
}

bool is_activation(const Type& type) { return type.rank() >= 3 && type.rank() <= 5 && runtime::is_floating(type.dtype); }

class LayoutAssigner {
public:
    explicit LayoutAssigner(const Graph& graph) : rewrite_(graph), other_(graph.value_count()) {}

    Graph run() {
        for (const Node& node : rewrite_.from.nodes()) place(node);
        for (ValueId output : rewrite_.from.outputs) rewrite_.replace(output, as(output, Layout::row_major));
        return rewrite_.finish();
    }

private:
    const Type& type(ValueId old) const { return rewrite_.to.type(rewrite_.map(old)); }

    // The value in that layout, relaid once at most.
    ValueId as(ValueId old, Layout layout) {
        const ValueId now = rewrite_.map(old);
        if (rewrite_.to.type(now).layout == layout) return now;
        std::optional<ValueId>& other = other_[at(old)];
        if (!other) {
            Type wanted = rewrite_.to.type(now);
            wanted.layout = layout;
            Node node{.kind = NodeKind::op, .op = &runtime::find_op("relayout"), .inputs = {now}, .role = rewrite_.to.producer(now).role};
            node.attrs.emplace_back(std::string(layout == Layout::channels_last ? "channels_last" : "row_major"));
            other = rewrite_.to.add(std::move(node), {&wanted, 1})[0];
        }
        return *other;
    }

    void place(const Node& node) {
        if (node.kind != NodeKind::op) return rewrite_.copy(node);
        const bool follows = node.op->is_elementwise()    ? follows_channels_last(node)
                             : node.op->follows_layout && is_activation(rewrite_.from.type(node.outputs[0])) &&
                                   std::ranges::any_of(node.inputs, [&](ValueId input) { return type(input).layout == Layout::channels_last; });
        Node fresh = node;
        std::vector<Type> results = rewrite_.from.types(node.outputs);
        for (size_t i = 0; i < node.inputs.size(); ++i) {
            const Type& operand = type(node.inputs[i]);
            const bool wants = follows ? !node.op->is_elementwise() || operand.shape == results[0].shape
                                       : (node.op->channels_last_inputs >> i & 1) && is_activation(operand);
            // A small operand of an element-wise op keeps its order; anything else is row-major.
            const bool as_it_is = follows && !wants && operand.layout == Layout::channels_last && keeps_order(operand, results[0]);
            fresh.inputs[i] = as_it_is ? rewrite_.map(node.inputs[i]) : as(node.inputs[i], wants ? Layout::channels_last : Layout::row_major);
        }
        for (size_t i = 0; i < results.size(); ++i)
            if (follows || ((node.op->channels_last_outputs >> i & 1) && is_activation(results[i]))) results[i].layout = Layout::channels_last;
        const std::vector<ValueId> outputs = rewrite_.to.add(std::move(fresh), results);
        for (size_t i = 0; i < outputs.size(); ++i) rewrite_.replace(node.outputs[i], outputs[i]);
    }

    bool follows_channels_last(const Node& node) const {
        const Type& result = rewrite_.from.type(node.outputs[0]);
        if (!is_activation(result) && result.rank() < 3) return false;
        bool any = false;
        for (ValueId input : node.inputs) {
            const Type& operand = type(input);
            if (operand.shape == result.shape) any = any || operand.layout == Layout::channels_last;
            else if (!keeps_order(operand, result)) return false;
        }
        return any;
    }

    Rewriter rewrite_;
    std::vector<std::optional<ValueId>> other_;  // by old value: the copy in the layout it was not made in
};

}  // namespace

Graph assign_layouts(const Graph& graph) {
    if (std::none_of(graph.nodes().begin(), graph.nodes().end(), is_convolution)) return graph;
    return LayoutAssigner(graph).run();
}

}  // namespace megjit::jit
