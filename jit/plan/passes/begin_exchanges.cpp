// Begins exchanges with other processes as soon as their operands exist, and keeps their order,
// which is that of the program in every process. Exchanges of transient values stay where the
// program has them: begun earlier, their results would take memory for longer.
#include <algorithm>

#include "jit/plan/passes/passes.h"
#include "jit/plan/passes/relister.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

bool has_order(const Node& node) { return node.op && runtime::is_ordered(*node.op); }

class EarlyExchanges {
public:
    explicit EarlyExchanges(const Graph& graph)
        : graph_(graph), rewrite_(graph), is_there_(graph.value_count()) {}

    Graph run() {
        for (const Node& node : graph_.nodes())
            if (has_order(node)) exchanges_.push_back(&node);
        for (const Node& node : graph_.nodes()) {
            if (has_order(node)) reached_ += 1;
            else if (can_run(node)) copy(node);
            else late_.push_back(&node);
            begin_exchanges();
        }
        return rewrite_.finish();
    }

private:
    bool can_run(const Node& node) const {
        return std::all_of(node.inputs.begin(), node.inputs.end(),
                           [&](ValueId input) { return is_there_[at(input)]; });
    }

    void copy(const Node& node) {
        rewrite_.copy(node);
        for (ValueId output : node.outputs) is_there_[at(output)] = true;
    }

    bool can_begin(size_t exchange) const {
        const Node& node = *exchanges_[exchange];
        return can_run(node) &&
               (exchange < reached_ || !runtime::is_transient(*node.op, node.attrs));
    }

    // All whose turn it is; then what stood before them and reads one of them.
    void begin_exchanges() {
        for (; next_ < exchanges_.size() && can_begin(next_); ++next_) {
            copy(*exchanges_[next_]);
            std::erase_if(late_, [&](const Node* node) {
                if (!can_run(*node)) return false;
                copy(*node);
                return true;
            });
        }
    }

    const Graph& graph_;
    Rewriter rewrite_;
    std::vector<bool> is_there_;  // by old value: the new graph has it
    std::vector<const Node*> exchanges_;  // in the program's order
    size_t next_ = 0, reached_ = 0;  // places in exchanges_
    std::vector<const Node*> late_;
};

}  // namespace

Graph begin_exchanges(Graph graph) {
    if (std::none_of(graph.nodes().begin(), graph.nodes().end(), has_order)) return graph;
    return EarlyExchanges(graph).run();
}

}  // namespace megjit::jit
