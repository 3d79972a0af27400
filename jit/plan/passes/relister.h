// jit/plan/passes/relister.h -- Relister: copies nodes in an order that the pass chooses; each read
// takes the last copy. Views are made anew for each copy of what they view.
#pragma once

#include <optional>
#include <vector>

#include "jit/step/graph.h"

namespace megjit::jit {

inline bool is_op(const Node& node) {
    return node.kind == NodeKind::op || node.kind == NodeKind::fused;
}
inline bool is_view(const Node& node) { return node.kind == NodeKind::op && node.op->is_view; }
// What a view views, through other views; itself where it is none.
ValueId viewed_by(const Graph& graph, ValueId value);

class Relister {
public:
    // Inputs and constants are copied at once.
    explicit Relister(const Graph& graph);

    void run(const Node& node);  // an op of the graph, no view
    ValueId add(Node node, ValueId read,
                const Type& type);  // an op of one operand, new to the graph
    ValueId last_copy(ValueId old) const { return *now_[at(old)]; }  // `old` is no view
    void read_from(ValueId old, ValueId fresh) {
        now_[at(old)] = fresh;
    }  // reads take `fresh` instead of the last copy
    Graph finish();

private:
    void set(ValueId old, ValueId fresh);
    ValueId latest(ValueId old);

    const Graph& from_;
    Graph to_;
    std::vector<bool> is_output_;  // by value: it is an output, or one views it
    std::vector<bool> has_run_;  // by first output of a step
    std::vector<std::optional<ValueId>> now_;
    std::vector<std::optional<ValueId>> viewed_;  // views: what the last copy views
    std::optional<ValueId> last_exchange_;  // the number for those that come after it
};

}  // namespace megjit::jit
