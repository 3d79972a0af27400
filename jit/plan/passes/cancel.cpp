#include "jit/plan/passes/passes.h"
#include "runtime/core/op.h"

namespace megjit::jit {
namespace {

class Canceller {
public:
    explicit Canceller(const Graph& graph) : rewrite_(graph) {}

    Graph run() {
        for (const Node& node : rewrite_.from.nodes()) {
            const std::optional<ValueId> value =
                node.kind == NodeKind::op ? in_the_reals(node) : std::nullopt;
            if (value && rewrite_.to.type(*value) == rewrite_.from.type(node.outputs[0]))
                rewrite_.replace(node.outputs[0], *value);
            else rewrite_.copy(node);
        }
        return drop_dead(rewrite_.finish());
    }

private:
    const Node& producer(ValueId value) const { return rewrite_.to.producer(value); }
    bool is_of(ValueId value, const OpDef& op) const { return producer(value).op == &op; }

    // Are they the same ops of the same values? A value may be written twice, and is joined at a
    // higher level only.
    bool are_equal(ValueId a, ValueId b, int depth = 4) const {
        if (a == b) return true;
        const Node &x = producer(a), &y = producer(b);
        if (depth == 0 || x.kind != y.kind || x.op != y.op || x.outputs.size() != 1) return false;
        if (x.kind == NodeKind::constant)
            return x.constant->type() == y.constant->type() && x.constant->type().numel() == 1 &&
                   x.constant->dtype() != runtime::DType::c64 &&
                   runtime::is_exact_as_double(*x.constant) &&
                   runtime::item_as_double(*x.constant) == runtime::item_as_double(*y.constant);
        if (x.kind != NodeKind::op || !x.op->is_elementwise() || !runtime::same(x.attrs, y.attrs))
            return false;
        for (size_t i = 0; i < x.inputs.size(); ++i)
            if (!are_equal(x.inputs[i], y.inputs[i], depth - 1)) return false;
        return true;
    }

    // Returns a value of the new graph that equals the result wherever the formula has a value.
    std::optional<ValueId> in_the_reals(const Node& node) {
        const Type& type = rewrite_.from.type(node.outputs[0]);
        const std::vector<ValueId> inputs = rewrite_.map(node.inputs);
        if (node.op->of_equals && are_equal(inputs[0], inputs[1]))
            return rewrite_.to.make(
                ops::full(), {},
                {std::vector<int64_t>(type.shape.begin(), type.shape.end()), *node.op->of_equals,
                 std::string(runtime::info(type.dtype).name)},
                node);
        if (node.op->real_inverse && is_of(inputs[0], node.op->real_inverse()))
            return producer(inputs[0]).inputs[0];
        if (node.op == &ops::log() && is_of(inputs[0], ops::add())) {
            const std::vector<ValueId>& terms = producer(inputs[0]).inputs;
            if (is_of(terms[0], ops::exp()) && is_of(terms[1], ops::exp()))
                return rewrite_.to.make(
                    ops::logaddexp(), {producer(terms[0]).inputs[0], producer(terms[1]).inputs[0]},
                    {}, node);
        }
        return std::nullopt;
    }

    Rewriter rewrite_;
};

}  // namespace

Graph cancel(Graph graph) { return Canceller(graph).run(); }

}  // namespace megjit::jit
