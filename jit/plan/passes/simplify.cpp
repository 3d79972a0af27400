#include "jit/plan/passes/passes.h"
#include "runtime/core/op.h"

namespace megjit::jit {
namespace {

using runtime::Access;
using runtime::DType;

class Simplifier {
public:
    explicit Simplifier(const Graph& graph) : rewrite_(graph) {}

    Graph run() {
        for (const Node& node : rewrite_.from.nodes()) {
            const std::optional<ValueId> same =
                node.kind == NodeKind::op && node.outputs.size() == 1 ? replacement(node)
                                                                      : std::nullopt;
            if (same && same_type(*same, rewrite_.from.type(node.outputs[0])))
                rewrite_.replace(node.outputs[0], *same);
            else rewrite_.copy(node);
        }
        return drop_dead(rewrite_.finish());
    }

private:
    bool same_type(ValueId id, const Type& type) const { return rewrite_.to.type(id) == type; }

    // The new graph's node that makes operand i of `node`.
    const Node& producer(const Node& node, size_t i) const {
        return rewrite_.to.producer(rewrite_.map(node.inputs[i]));
    }
    bool made_by(const Node& node, size_t i, const OpDef& op) const {
        return producer(node, i).op == &op;
    }
    bool is_number(const Node& node, size_t i, double value) const {
        const Node& p = producer(node, i);
        return p.kind == NodeKind::constant && p.constant->type().numel() == 1 &&
               p.constant->dtype() != DType::c64 && runtime::item_as_double(*p.constant) == value;
    }
    ValueId operand(const Node& node, size_t i) const { return rewrite_.map(node.inputs[i]); }

    // Returns a value of the new graph that equals the node's result, or nothing.
    std::optional<ValueId> replacement(const Node& node) {
        const Type& type = rewrite_.from.type(node.outputs[0]);
        switch (node.op->access) {
            case Access::same: return simpler_cast(node);
            case Access::broadcast: return operand(node, 0);  // where it has that type already
            case Access::reshaped:
                if (made_by(node, 0, *node.op) && !same_type(operand(node, 0), type))
                    return rewrite_.to.make(*node.op, {producer(node, 0).inputs[0]}, node.attrs,
                                            node);
                return operand(node, 0);
            case Access::permuted: return simpler_transpose(node);
            case Access::other:
            case Access::picked:
            case Access::written: break;
        }
        for (const runtime::AtNumber& rule : node.op->at_number)
            for (size_t other : {0, 1})
                if (is_number(node, 1 - other, rule.number) && (other == 0 || node.op->commutative))
                    return at_number(node, rule, other);
        if (node.op->inverse && made_by(node, 0, node.op->inverse()))
            return producer(node, 0).inputs[0];
        return std::nullopt;
    }

    // Applies the rule's op to operand `x`; the other operand is its number.
    ValueId at_number(const Node& node, const runtime::AtNumber& rule, size_t x) {
        const OpDef& op = rule.op();
        const bool is_it =
            op.access == Access::same ||
            !same_type(operand(node, x), rewrite_.from.type(node.outputs[0]));  // run() says no
        return is_it ? operand(node, x) : rewrite_.to.make(op, {operand(node, x)}, {}, node);
    }

    // A half that went through float32 is cast from what it was: mixed precision casts to and fro.
    ValueId simpler_cast(const Node& node) {
        const ValueId wide = operand(node, 0);
        if (node.op != &ops::cast() || !made_by(node, 0, ops::cast()) ||
            rewrite_.to.type(wide).dtype != DType::f32)
            return wide;
        const ValueId half = producer(node, 0).inputs[0];
        const DType dtype = rewrite_.to.type(half).dtype;
        if (dtype != DType::f16 && dtype != DType::bf16) return wide;
        if (same_type(half, rewrite_.from.type(node.outputs[0]))) return half;
        return rewrite_.to.make(*node.op, {half}, node.attrs, node);
    }

    std::optional<ValueId> simpler_transpose(const Node& node) {
        std::vector<int64_t> perm = std::get<std::vector<int64_t>>(node.attrs[0]);
        ValueId source = operand(node, 0);
        const bool twice = made_by(node, 0, *node.op);
        if (twice) {
            const Node& inner = producer(node, 0);
            const auto& first = std::get<std::vector<int64_t>>(inner.attrs[0]);
            for (int64_t& axis : perm) axis = first[static_cast<size_t>(axis)];
            source = inner.inputs[0];
        }
        bool identity = true;
        for (size_t i = 0; i < perm.size(); ++i)
            identity = identity && perm[i] == static_cast<int64_t>(i);
        if (identity) return source;
        if (twice) return rewrite_.to.make(*node.op, {source}, {perm}, node);
        return std::nullopt;
    }

    Rewriter rewrite_;
};

}  // namespace

Graph simplify(Graph graph) { return Simplifier(graph).run(); }

}  // namespace megjit::jit
