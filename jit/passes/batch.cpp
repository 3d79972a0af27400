// Fused nodes that run the same kernel, one after the other and independent of each other, become
// one node with several launches: the updates of all parameters of a model are one step of the
// program, whose work all threads share, instead of hundreds of small ones. Nodes are delayed to
// the end of the run of kernels in which they stand, never past another op: what they read lives
// until then anyhow.
#include <algorithm>
#include <string>
#include <unordered_map>

#include "jit/passes/passes.h"

namespace megjit::jit {
namespace {

class Batcher {
public:
    explicit Batcher(const Graph& graph)
        : graph_(graph), rewrite_(graph), is_pending_(graph.nodes().size()) {}

    Graph run() {
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const Node& node = graph_.nodes()[id];
            const bool is_leaf = node.kind == NodeKind::input || node.kind == NodeKind::constant;
            const bool is_view = node.kind == NodeKind::op && node.op->is_view;
            if (reads_pending(node) || !(is_leaf || is_view || node.kind == NodeKind::fused))
                flush();
            if (node.kind != NodeKind::fused) {
                rewrite_.copy(node);
                continue;
            }
            const auto [found, is_new] =
                batch_of_.try_emplace(codegen::print(node.kernel->kernel), batches_.size());
            if (is_new) batches_.emplace_back();
            batches_[found->second].push_back(static_cast<NodeId>(id));
            is_pending_[id] = true;
        }
        flush();
        return rewrite_.finish();
    }

private:
    bool reads_pending(const Node& node) const {
        for (ValueId input : node.inputs)
            if (is_pending_[at(graph_.value(input).producer)]) return true;
        return false;
    }

    void flush() {
        for (const std::vector<NodeId>& batch : batches_) emit(batch);
        batches_.clear();
        batch_of_.clear();
    }

    void emit(const std::vector<NodeId>& batch) {
        Node joint = graph_.node(batch[0]);
        joint.inputs.clear();
        std::vector<ValueId> outputs;
        std::vector<std::string> names;
        for (NodeId id : batch) {
            const Node& node = graph_.node(id);
            is_pending_[at(id)] = false;
            for (ValueId input : node.inputs) joint.inputs.push_back(rewrite_.map(input));
            for (ValueId output : node.outputs) names.push_back(graph_.name(output));
            outputs.insert(outputs.end(), node.outputs.begin(), node.outputs.end());
            if (id != batch[0]) joint.more_launches.push_back(node.kernel->launch);
        }
        joint.names = std::move(names);
        const std::vector<ValueId> fresh = rewrite_.to.add(std::move(joint), graph_.types(outputs));
        for (size_t i = 0; i < outputs.size(); ++i) rewrite_.replace(outputs[i], fresh[i]);
    }

    const Graph& graph_;
    Rewriter rewrite_;
    std::vector<bool> is_pending_;
    std::vector<std::vector<NodeId>> batches_;  // in order of their first nodes
    std::unordered_map<std::string, size_t> batch_of_;
};

}  // namespace

Graph batch(Graph graph) {
    const auto is_kernel = [](const Node& node) { return node.kind == NodeKind::fused; };
    if (std::ranges::count_if(graph.nodes(), is_kernel) < 2) return graph;
    return Batcher(graph).run();
}

}  // namespace megjit::jit
