// The gradients of a layer's weights and of its bias are a product, and the sums of one of its
// factors over the axis that the product sums over: matmul_sums is both, and reads the factor once.
// A product and a sum are joined where
//   1. both are of halves, on a GPU, whose library adds the sums up beside the product;
//   2. the product sums over the factor's rows, which are all that the sum adds up (reshapes are
//      looked through);
//   3. matrices have rows that begin at 16 bytes, which the library needs to be fast;
//   4. what the later one reads is there where the earlier one stands, but for reshapes.
#include <algorithm>

#include "jit/plan/passes/passes.h"
#include "runtime/ops/matmul.h"

namespace megjit::jit {
namespace {

using Ints = std::vector<int64_t>;

class SumJoiner {
public:
    explicit SumJoiner(const Graph& graph)
        : rewrite_(graph), done_(graph.nodes().size()), sums_of_(graph.value_count()) {
        for (size_t id = 0; id < graph.nodes().size(); ++id)
            if (const Node& node = graph.nodes()[id]; adds_up_rows(node))
                sums_of_[at(origin_of(node.inputs[0]))].push_back(static_cast<NodeId>(id));
        for (size_t id = 0; id < graph.nodes().size(); ++id) find_pair(static_cast<NodeId>(id));
    }

    Graph run() {
        for (size_t id = 0; id < done_.size(); ++id) {
            if (done_[id]) continue;
            const auto pair = std::ranges::find_if(pairs_, [&](const Pair& p) {
                return static_cast<size_t>(std::min(p.product, p.sum)) == id;
            });
            if (pair == pairs_.end() || !place(*pair)) copy(static_cast<NodeId>(id));
        }
        return rewrite_.finish();
    }

private:
    struct Pair {
        NodeId product = {}, sum = {};
        int64_t factor = 0;
    };

    const Graph& graph() const { return rewrite_.from; }

    // Returns the value that this one reshapes.
    ValueId origin_of(ValueId value) const {
        while (graph().producer(value).op == &ops::reshape())
            value = graph().producer(value).inputs[0];
        return value;
    }

    // Does it add up all axes but the last?
    bool adds_up_rows(const Node& node) const {
        if (!node.op || node.op->reduction != runtime::Reduce::sum) return false;
        const Type &from = graph().type(node.inputs[0]), &to = graph().type(node.outputs[0]);
        const auto& axes = std::get<Ints>(node.attrs[0]);
        return from.rank() > 1 && from.dtype == to.dtype &&
               from.layout == runtime::Layout::row_major && std::ssize(axes) == from.rank() - 1 &&
               axes.back() == from.rank() - 2;
    }

    // Conditions 1 to 3.
    void find_pair(NodeId id) {
        const Node& node = graph().node(id);
        if (node.op != &ops::matmul()) return;
        const std::vector<Type> factors = graph().types(node.inputs);
        const Type& result = graph().type(node.outputs[0]);
        if (!runtime::takes_halves(*node.op, result.dtype) || result.rank() != 2 ||
            !runtime::have_aligned_rows(factors) || !runtime::have_aligned_rows({&result, 1}))
            return;
        for (const int64_t factor : {0, 1}) {
            const bool is_turned = std::get<int64_t>(node.attrs[static_cast<size_t>(factor)]) != 0;
            if (is_turned != (factor == 0) || factors[static_cast<size_t>(factor)].rank() != 2)
                continue;
            for (const NodeId sum :
                 sums_of_[at(origin_of(node.inputs[static_cast<size_t>(factor)]))]) {
                const Type& sums = graph().type(graph().node(sum).outputs[0]);
                if (sums.numel() == factors[static_cast<size_t>(factor)].shape[1] &&
                    !is_taken(sum)) {
                    pairs_.push_back({id, sum, factor});
                    return;
                }
            }
        }
    }
    bool is_taken(NodeId sum) const {
        return std::ranges::any_of(pairs_, [&](const Pair& pair) { return pair.sum == sum; });
    }

    // Condition 4: copies the reshapes that stand between.
    bool make_ready(ValueId value) {
        const NodeId producer = graph().value(value).producer;
        if (done_[at(producer)]) return true;
        const Node& node = graph().node(producer);
        const bool is_leaf = node.kind == NodeKind::input || node.kind == NodeKind::constant;
        if (!is_leaf && (node.op != &ops::reshape() || !make_ready(node.inputs[0]))) return false;
        copy(producer);
        return true;
    }

    bool place(const Pair& pair) {
        const Node &product = graph().node(pair.product), &sum = graph().node(pair.sum);
        if (!make_ready(sum.inputs[0])) return false;
        if (!std::ranges::all_of(product.inputs, [&](ValueId v) { return make_ready(v); }))
            return false;
        runtime::Attrs attrs = product.attrs;
        attrs.emplace_back(pair.factor);
        const std::vector<ValueId> made = rewrite_.to.add_op(
            runtime::matmul_sums(), rewrite_.map(product.inputs), std::move(attrs), product);
        rewrite_.replace(product.outputs[0], made[0]);
        const runtime::Shape& shape = graph().type(sum.outputs[0]).shape;
        rewrite_.replace(sum.outputs[0],
                         shape.rank() == 1
                             ? made[1]
                             : rewrite_.to.make(ops::reshape(), {made[1]},
                                                {Ints(shape.begin(), shape.end())}, sum));
        done_[at(pair.product)] = done_[at(pair.sum)] = true;
        return true;
    }

    void copy(NodeId id) {
        rewrite_.copy(graph().node(id));
        done_[at(id)] = true;
    }

    Rewriter rewrite_;
    std::vector<bool> done_;  // by old node
    std::vector<std::vector<NodeId>> sums_of_;  // by old value that others reshape
    std::vector<Pair> pairs_;
};

}  // namespace

Graph join_sums(Graph graph, const PipelineOptions& options) {
    if (graph.device().is_host() || options.products == Products::generated) return graph;
    return SumJoiner(graph).run();
}

}  // namespace megjit::jit
