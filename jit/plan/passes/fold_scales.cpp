// y = fma3(conv(x, w) [+ b], scale, shift) with fixed w, b, scale and shift, one of each a channel,
// becomes conv(x, w * scale) + (b * scale + shift). A chain is taken when
//   1. nobody else reads what lies between, and the graph does not return it;
//   2. all are float32;
//   3. scale, shift and b lie along the channels: [1, c, 1...] or b [c, 1...].
#include "jit/plan/passes/bound.h"
#include "jit/plan/passes/passes.h"
#include "runtime/core/op.h"

namespace megjit::jit {
namespace {

using runtime::DType;
using runtime::Shape;

struct Chain {
    const Node* conv = nullptr;
    std::optional<ValueId> bias = {};  // added before the scale
};

class ScaleFolder {
public:
    ScaleFolder(const Graph& graph, std::vector<bool> fixed)
        : rewrite_(graph),
          fixed_(std::move(fixed)),
          readers_(graph.value_count()),
          taken_(graph.nodes().size()) {
        for (const Node& node : graph.nodes())
            for (ValueId input : node.inputs) ++readers_[at(input)];
        for (ValueId output : graph.outputs) ++readers_[at(output)];
    }

    Graph run() {
        const auto& nodes = rewrite_.from.nodes();
        std::vector<std::optional<Chain>> chains(nodes.size());
        for (size_t id = 0; id < nodes.size(); ++id) chains[id] = chain_of(nodes[id]);
        for (size_t id = 0; id < nodes.size(); ++id) {
            if (chains[id]) place(nodes[id], *chains[id]);
            else if (!taken_[id]) rewrite_.copy(nodes[id]);
        }
        return drop_dead(rewrite_.finish());
    }

private:
    bool is_fixed_float(ValueId id) const {
        return fixed_[at(id)] && rewrite_.from.type(id).dtype == DType::f32;
    }

    // Does it have one number a channel of y, [n, c, ...]?
    bool is_per_channel(ValueId id, const Shape& y) const {
        const Shape& shape = rewrite_.from.type(id).shape;
        const int channel = shape.rank() - (y.rank() - 1);
        return is_fixed_float(id) && channel >= 0 && shape.numel() == y[1] &&
               shape[channel] == y[1];
    }

    std::optional<Chain> chain_of(const Node& node) {
        if (node.op != &ops::fma3()) return {};
        const Type& y = rewrite_.from.type(node.outputs[0]);
        if (y.shape.rank() < 3 || !is_per_channel(node.inputs[1], y.shape) ||
            !is_per_channel(node.inputs[2], y.shape))
            return {};
        Chain chain;
        ValueId inner = node.inputs[0];
        if (const Node& add = rewrite_.from.producer(inner);
            add.op == &ops::add() && readers_[at(inner)] == 1 &&
            is_per_channel(add.inputs[1], y.shape)) {
            chain.bias = add.inputs[1];
            inner = add.inputs[0];
        }
        const Node& conv = rewrite_.from.producer(inner);
        if (conv.op != &ops::conv() || readers_[at(inner)] != 1 ||
            !is_fixed_float(conv.inputs[1]) || !(rewrite_.from.type(inner).shape == y.shape))
            return {};
        chain.conv = &conv;
        taken_[at(rewrite_.from.value(inner).producer)] = true;
        if (chain.bias) taken_[at(rewrite_.from.value(node.inputs[0]).producer)] = true;
        return chain;
    }

    void place(const Node& fma, const Chain& chain) {
        const ValueId weights = rewrite_.map(chain.conv->inputs[1]),
                      scale = rewrite_.map(fma.inputs[1]);
        std::vector<int64_t> first(static_cast<size_t>(rewrite_.to.type(weights).rank()), 1);
        first[0] = rewrite_.to.type(weights).shape[0];
        const ValueId scaled = rewrite_.to.make(
            ops::mul(), {weights, rewrite_.to.make(ops::reshape(), {scale}, {first}, fma)}, {},
            fma);
        ValueId shift = rewrite_.map(fma.inputs[2]);
        if (chain.bias) {
            // A view, like that of normalization's own shift: fuse_epilogues takes no addend that a
            // kernel could keep in registers.
            const Shape shape = rewrite_.to.type(shift).shape;  // a copy: values are added
            shift =
                rewrite_.to.make(ops::fma3(), {rewrite_.map(*chain.bias), scale, shift}, {}, fma);
            shift = rewrite_.to.make(ops::reshape(), {shift},
                                     {std::vector<int64_t>(shape.begin(), shape.end())}, fma);
        }
        Node conv = *chain.conv;
        conv.inputs = {rewrite_.map(conv.inputs[0]), scaled};
        const ValueId product =
            rewrite_.to.add(std::move(conv), {&rewrite_.from.type(chain.conv->outputs[0]), 1})[0];
        rewrite_.replace(fma.outputs[0], rewrite_.to.make(ops::add(), {product, shift}, {}, fma));
    }

    Rewriter rewrite_;
    std::vector<bool> fixed_;
    std::vector<int> readers_;  // by value; the graph's outputs count
    std::vector<bool> taken_;  // by node: is part of a chain
};

}  // namespace

Graph fold_scales(Graph graph, const PipelineOptions& options) {
    if (!may_bind(options)) return graph;
    return ScaleFolder(graph, fixed_values(graph, options)).run();
}

}  // namespace megjit::jit
