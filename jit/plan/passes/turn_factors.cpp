// Products read matrices that a program transposes as they lie: matmul(x, transpose(w)) becomes a
// matmul with transpose_b. Why: the copy of a transposed matrix costs memory and time, and every
// product takes its factors either way up. A factor is taken where
//   1. the product has the flags transpose_a and transpose_b;
//   2. a transpose makes the factor and exchanges its last two axes alone;
//   3. or a reshape stands between, which leaves these two as they are (products of batches that
//      are merged): the source is reshaped then, which moves nothing.
#include <algorithm>

#include "jit/plan/passes/passes.h"
#include "runtime/core/op.h"

namespace megjit::jit {
namespace {

using Ints = std::vector<int64_t>;

class Turner {
public:
    explicit Turner(const Graph& graph) : rewrite_(graph) {}

    Graph run() {
        for (const Node& node : rewrite_.from.nodes())
            if (!place(node)) rewrite_.copy(node);
        return drop_dead(rewrite_.finish());
    }

private:
    const Graph& to() const { return rewrite_.to; }

    // Condition 1: returns where the flag of a factor stands among the attributes.
    static std::optional<size_t> flag_of(const Node& node, size_t factor) {
        const auto& attrs = node.op->attrs;
        const auto found = std::ranges::find(attrs, factor == 0 ? "transpose_a" : "transpose_b",
                                             &runtime::AttrSpec::name);
        if (found == attrs.end()) return {};
        return static_cast<size_t>(found - attrs.begin());
    }

    // Condition 2: returns what is transposed.
    std::optional<ValueId> source(ValueId value) const {
        const Node& node = to().producer(value);
        if (node.op != &ops::transpose()) return {};
        Ints perm = std::get<Ints>(node.attrs[0]);
        if (perm.size() < 2) return {};
        std::swap(perm.back(), perm[perm.size() - 2]);
        for (size_t axis = 0; axis < perm.size(); ++axis)
            if (perm[axis] != static_cast<int64_t>(axis)) return {};
        return node.inputs[0];
    }

    // Returns a value that is the factor with its last two axes exchanged, and costs nothing.
    std::optional<ValueId> turned(ValueId factor) {
        if (const std::optional<ValueId> direct = source(factor)) return direct;
        const Node& node = to().producer(factor);
        if (node.op != &ops::reshape()) return {};
        const std::optional<ValueId> inner = source(node.inputs[0]);
        if (!inner) return {};
        const runtime::Shape &shape = to().type(factor).shape,
                             &before = to().type(node.inputs[0]).shape;
        const int rank = shape.rank(), last = before.rank();
        if (rank < 2 || shape[rank - 1] != before[last - 1] || shape[rank - 2] != before[last - 2])
            return {};
        Ints exchanged(shape.begin(), shape.end());
        std::swap(exchanged[static_cast<size_t>(rank - 1)],
                  exchanged[static_cast<size_t>(rank - 2)]);
        const Node like = node;
        return rewrite_.to.make(ops::reshape(), {*inner}, {exchanged}, like);
    }

    bool place(const Node& node) {
        if (node.kind != NodeKind::op || node.outputs.size() != 1) return false;
        Node fresh = node;
        fresh.inputs = rewrite_.map(node.inputs);
        bool changed = false;
        for (const size_t factor : {0, 1}) {
            const std::optional<size_t> flag = flag_of(node, factor);
            if (!flag || factor >= fresh.inputs.size()) continue;
            if (const std::optional<ValueId> value = turned(fresh.inputs[factor])) {
                fresh.inputs[factor] = *value;
                fresh.attrs[*flag] = int64_t{std::get<int64_t>(node.attrs[*flag]) == 0};
                changed = true;
            }
        }
        if (!changed) return false;
        rewrite_.replace(
            node.outputs[0],
            rewrite_.to.add(std::move(fresh), {&rewrite_.from.type(node.outputs[0]), 1})[0]);
        return true;
    }

    Rewriter rewrite_;
};

}  // namespace

Graph turn_factors(Graph graph) { return Turner(graph).run(); }

}  // namespace megjit::jit
