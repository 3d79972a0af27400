// Fused nodes that run the same kernel, one after the other and independent of each other, become
// one node with several launches: the updates of all parameters of a model are one step of the
// program, whose work all threads share, instead of hundreds of small ones. Nodes are delayed to
// the end of the run of kernels in which they stand, never past another op: what they read lives
// until then anyhow. (On a GPU kernels of few bytes are delayed past other ops, too, until somebody
// reads them: a launch costs more than to keep what they read.)
#include <algorithm>
#include <string>
#include <unordered_map>

#include "jit/plan/passes/passes.h"
#include "jit/step/host_copy.h"

namespace megjit::jit {
namespace {

constexpr size_t kBytesThatWait = 256 << 10;  // limit of a kernel's operands and results

class Batcher {
public:
    explicit Batcher(const Graph& graph)
        : graph_(graph),
          has_transfers_(std::ranges::any_of(graph.nodes(), is_host_copy)),
          rewrite_(graph),
          pending_in_(graph.nodes().size()) {}

    Graph run() {
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const Node& node = graph_.nodes()[id];
            const bool is_leaf = node.kind == NodeKind::input || node.kind == NodeKind::constant;
            const bool is_view = node.kind == NodeKind::op && node.op->is_view;
            const bool goes_on = is_leaf || is_view || node.kind == NodeKind::fused;
            const bool reads = reads_from(batches_, node);
            if (!goes_on || reads) flush(batches_);
            if ((reads && has_transfers_) || reads_from(waiting_, node)) flush(waiting_);
            if (node.kind != NodeKind::fused) {
                rewrite_.copy(node);
                continue;
            }
            Batches& batches = may_wait(node) ? waiting_ : batches_;
            batches[codegen::print(node.kernel->kernel)].push_back(static_cast<NodeId>(id));
            pending_in_[id] = &batches;
        }
        flush(batches_);
        flush(waiting_);
        return rewrite_.finish();
    }

private:
    using Batches = std::unordered_map<std::string, std::vector<NodeId>>;  // by kernel

    bool reads_from(const Batches& batches, const Node& node) const {
        return std::ranges::any_of(node.inputs, [&](ValueId input) {
            return pending_in_[at(graph_.value(input).producer)] == &batches;
        });
    }

    bool may_wait(const Node& node) const {
        size_t bytes = 0;
        for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs})
            for (const ValueId value : *values) bytes += graph_.type(value).bytes();
        return !graph_.device().is_host() && bytes <= kBytesThatWait;
    }

    void flush(Batches& batches) {
        std::vector<const std::vector<NodeId>*> in_order;
        for (const auto& [kernel, nodes] : batches) in_order.push_back(&nodes);
        std::ranges::sort(in_order, {}, [](const auto* nodes) { return nodes->front(); });
        for (const std::vector<NodeId>* nodes : in_order) emit(*nodes);
        batches.clear();
    }

    void emit(const std::vector<NodeId>& batch) {
        Node joint = graph_.node(batch[0]);
        joint.inputs.clear();
        std::vector<ValueId> outputs;
        std::vector<std::string> names;
        for (NodeId id : batch) {
            const Node& node = graph_.node(id);
            pending_in_[at(id)] = nullptr;
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
    const bool has_transfers_;  // which hide behind kernels that have not waited for long
    Rewriter rewrite_;
    std::vector<const Batches*> pending_in_;  // by node; null where it is written
    Batches batches_, waiting_;
};

}  // namespace

Graph batch(Graph graph) {
    const auto is_kernel = [](const Node& node) { return node.kind == NodeKind::fused; };
    if (std::ranges::count_if(graph.nodes(), is_kernel) < 2) return graph;
    return Batcher(graph).run();
}

}  // namespace megjit::jit
