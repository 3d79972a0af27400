// A mask behind the gradient of max pooling, as that of relu before the pooling, is applied to the
// pooled gradient instead: relu'(y) * pool'(y, dy) = pool'(y, relu'(pool(y)) * dy). Why: the pooled
// values are fewer, and y has no reader behind the gradient, which may then lie in its place.
// A mask moves where
//   1. it computes where(c(y), d, 0), element by element;
//   2. only it reads d, which a gradient adds up at the places that a chooser takes from y;
//   3. the graph has what the chooser takes.
// An element that the chooser takes is equal to what was taken, so c is the same for both; what it
// takes nowhere stays 0. So bits are kept.
#include <algorithm>
#include <map>

#include "jit/plan/passes/fusion_group.h"

namespace megjit::jit {
namespace {

using runtime::ScalarOp;
using runtime::ScalarProgram;

// The instruction that makes the value, before it is rounded to halves.
int before_rounding(const ScalarProgram& program, int id) {
    while (program[id].op == ScalarOp::narrow) id = program[id].args[0];
    return id;
}

bool reads(const ScalarProgram& program, int id, uint64_t input) {
    const runtime::ScalarInst& inst = program[id];
    if (inst.op == ScalarOp::input) return inst.bits == input;
    return std::ranges::any_of(inst.args, [&](int32_t argument) {
        return argument >= 0 && reads(program, argument, input);
    });
}

class MaskMover {
public:
    explicit MaskMover(const Graph& graph) : rewrite_(graph), counts_(reader_counts(graph)) {}

    Graph run() {
        for (const Node& node : graph().nodes()) find(node);
        if (pooled_.empty()) return graph();
        for (const Node& node : graph().nodes())
            if (const auto found = pooled_.find(&node); found != pooled_.end())
                move(node, found->second);
            else rewrite_.copy(node);
        return drop_dead(rewrite_.finish());
    }

private:
    const Graph& graph() const { return rewrite_.from; }

    void find(const Node& node) {
        if (node.kind != NodeKind::op) return;
        if (node.inputs.size() == 1) made_.emplace(node.inputs[0], &node);
        if (!node.op->is_elementwise() || node.inputs.size() != 2) return;
        const Node& gradient = graph().producer(node.inputs[1]);
        if (!gradient.op || !gradient.op->chooser || gradient.inputs[0] != node.inputs[0] ||
            counts_[at(node.inputs[1])] != 1 || !(gradient.marks == node.marks) || !masks(node))
            return;
        const auto [first, last] = made_.equal_range(node.inputs[0]);
        const auto chosen = std::find_if(first, last, [&](const auto& each) {
            return each.second->op == &gradient.op->chooser() &&
                   runtime::same(each.second->attrs, gradient.attrs);
        });
        if (chosen != last) pooled_.emplace(&node, chosen->second->outputs[0]);
    }

    // Condition 1, of the node's second operand.
    bool masks(const Node& node) const {
        const std::vector<Type> operands = graph().types(node.inputs);
        ScalarProgram program;
        const int result = before_rounding(
            program, runtime::build_expr({*node.op, node.attrs, operands},
                                         graph().type(node.outputs[0]).dtype, program));
        const runtime::ScalarInst& choice = program[result];
        if (choice.op != ScalarOp::select || reads(program, choice.args[0], 1)) return false;
        const auto& kept = program[before_rounding(program, choice.args[1])];
        const auto& other = program[before_rounding(program, choice.args[2])];
        return kept.op == ScalarOp::input && kept.bits == 1 && other.op == ScalarOp::constant &&
               other.bits == 0;
    }

    void move(const Node& mask, ValueId pooled) {
        const Node& gradient = graph().producer(mask.inputs[1]);
        const ValueId masked = rewrite_.to.make(
            *mask.op, {rewrite_.map(pooled), rewrite_.map(gradient.inputs[1])}, mask.attrs, mask);
        rewrite_.replace(mask.outputs[0],
                         rewrite_.to.make(*gradient.op, {rewrite_.map(gradient.inputs[0]), masked},
                                          gradient.attrs, gradient));
    }

    Rewriter rewrite_;
    const std::vector<uint32_t> counts_;
    std::multimap<ValueId, const Node*> made_;  // of one operand, by that operand
    std::map<const Node*, ValueId> pooled_;  // by mask: what the chooser takes
};

}  // namespace

Graph mask_pooled(Graph graph) { return MaskMover(graph).run(); }

}  // namespace megjit::jit
