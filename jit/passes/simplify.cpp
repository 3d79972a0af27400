#include "jit/passes/passes.h"
#include "runtime/op.h"

namespace megjit::jit {
namespace {

using runtime::Attr;

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
        return rewrite_.finish();
    }

private:
    bool same_type(ValueId id, const Type& type) const { return rewrite_.to.type(id) == type; }

    // The new graph's node that makes operand i of `node`.
    const Node& producer(const Node& node, size_t i) const {
        return rewrite_.to.producer(rewrite_.map(node.inputs[i]));
    }
    bool made_by(const Node& node, size_t i, std::string_view op) const {
        const Node& p = producer(node, i);
        return p.kind == NodeKind::op && p.op->name == op;
    }
    bool is_number(const Node& node, size_t i, double value) const {
        const Node& p = producer(node, i);
        return p.kind == NodeKind::constant && p.constant->type().numel() == 1 &&
               p.constant->dtype() != runtime::DType::c64 &&
               runtime::item_as_double(*p.constant) == value;
    }
    ValueId operand(const Node& node, size_t i) const { return rewrite_.map(node.inputs[i]); }

    ValueId make(std::string_view op, std::vector<ValueId> inputs, Attrs attrs, const Node& like) {
        Node node{.kind = NodeKind::op,
                  .op = &runtime::find_op(op),
                  .attrs = std::move(attrs),
                  .inputs = std::move(inputs),
                  .where = like.where,
                  .role = like.role};
        const Type type = rewrite_.from.type(like.outputs[0]);
        return rewrite_.to.add(std::move(node), {&type, 1})[0];
    }

    // A value of the new graph that equals the node's result, or nothing.
    std::optional<ValueId> replacement(const Node& node) {
        const std::string& op = node.op->name;
        if (op == "mul") {
            if (is_number(node, 1, 1)) return operand(node, 0);
            if (is_number(node, 0, 1)) return operand(node, 1);
        } else if (op == "true_div") {
            if (is_number(node, 1, 1)) return operand(node, 0);
            if (operand(node, 0) == operand(node, 1))  // x/x: 1, also where x is 0
                return make("full", {}, full_attrs(rewrite_.from.type(node.outputs[0]), 1), node);
        } else if (op == "sub") {
            if (is_number(node, 1, 0)) return operand(node, 0);
        } else if (op == "pow") {
            if (is_number(node, 1, 1)) return operand(node, 0);
            if (is_number(node, 1, 2)) return make("square", {operand(node, 0)}, {}, node);
        } else if (op == "neg" || op == "logical_not") {
            if (made_by(node, 0, op)) return producer(node, 0).inputs[0];
        } else if (op == "log") {
            if (made_by(node, 0, "exp")) return producer(node, 0).inputs[0];
        } else if (op == "exp") {
            if (made_by(node, 0, "log")) return producer(node, 0).inputs[0];
        } else if (op == "cast" || op == "broadcast_to" || op == "identity") {
            if (same_type(operand(node, 0), rewrite_.from.type(node.outputs[0])))
                return operand(node, 0);
        } else if (op == "reshape") {
            if (same_type(operand(node, 0), rewrite_.from.type(node.outputs[0])))
                return operand(node, 0);
            if (made_by(node, 0, "reshape"))
                return make("reshape", {producer(node, 0).inputs[0]}, node.attrs, node);
        } else if (op == "transpose") {
            return simpler_transpose(node);
        }
        return std::nullopt;
    }

    std::optional<ValueId> simpler_transpose(const Node& node) {
        std::vector<int64_t> perm = std::get<std::vector<int64_t>>(node.attrs[0]);
        ValueId source = operand(node, 0);
        const bool twice = made_by(node, 0, "transpose");
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
        if (twice) return make("transpose", {source}, {perm}, node);
        return std::nullopt;
    }

    static Attrs full_attrs(const Type& type, double value) {
        return {std::vector<int64_t>(type.shape.begin(), type.shape.end()), value,
                std::string(runtime::info(type.dtype).name)};
    }

    Rewriter rewrite_;
};

}  // namespace

Graph simplify(const Graph& graph) { return Simplifier(graph).run(); }

}  // namespace megjit::jit
