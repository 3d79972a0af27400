// Where work queued after a failure runs on wrong values, results that outlive the call must not
// take them: each value that replaces an input becomes where(has_failed, input, value), after the
// last op that may fail. fuse takes it into the update's kernel, and the planner lays it on that
// input and on no other (program_layout.h).
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "jit/plan/failure_rule.h"
#include "jit/plan/passes/passes.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

// true[] where work before it has failed and nobody was told. Devices whose streams do not stop at
// a failure prepare it; it is not in the registry. `behind`: what it must not overtake.
const OpDef& has_failed() {
    static const OpDef op{
        .name = "has_failed",
        .inputs = {"behind"},
        .variadic = true,
        .infer =
            [](const runtime::OpCall&) { return std::vector<Type>{{.dtype = runtime::DType::b8}}; },
        .only_checks = true};
    return op;
}

class Guard {
public:
    Guard(const Graph& graph, const std::vector<Output>& outputs)
        : graph_(graph), outputs_(outputs), rewrite_(graph), due_(graph.nodes().size()) {}

    Graph run() {
        find_checks();
        find_updates();
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const Node& node = graph_.nodes()[id];
            rewrite_.copy(node);
            if (std::ranges::find(checks_, id) != checks_.end()) look_behind(node);
            for (const size_t output : due_[id]) guard(output);
        }
        Graph result = rewrite_.finish();
        for (const auto& [output, value] : guarded_) result.outputs[output] = value;
        return result;
    }

private:
    void find_checks() {
        const std::vector<Node>& nodes = graph_.nodes();
        size_t last_exchange = nodes.size();
        FirstFailures failures(graph_);
        for (size_t id = 0; id < nodes.size(); ++id)
            if (nodes[id].op && runtime::is_ordered(*nodes[id].op)) last_exchange = id;
        for (size_t id = 0; id < nodes.size(); ++id)
            if (id == last_exchange || (checks_values(nodes[id]) && failures.may_be(nodes[id])))
                checks_.push_back(id);
    }

    // Each output is guarded once its value and input exist and nothing may fail any more.
    void find_updates() {
        for (const Node& node : graph_.nodes())
            if (node.kind == NodeKind::input) inputs_.emplace(node.slot, node.outputs[0]);
        const auto place_of = [&](ValueId value) { return at(graph_.value(value).producer); };
        for (size_t k = 0; k < outputs_.size(); ++k)
            if (const int slot = outputs_[k].replaces; slot >= 0)
                due_[std::max({place_of(graph_.outputs[k]), place_of(inputs_.at(slot)),
                               checks_.empty() ? 0 : checks_.back()})]
                    .push_back(k);
    }

    // One look for each op, so that none is kept alive for a later one; of exchanges with other
    // processes after the last one's number, so that none is waited for before.
    void look_behind(const Node& check) {
        std::vector<ValueId> behind{rewrite_.map(check.outputs.back())};
        if (has_failed_) behind.push_back(*has_failed_);
        look(std::move(behind), check.where);
    }

    void look(std::vector<ValueId> behind, const std::string& where) {
        const Type type{.dtype = runtime::DType::b8};
        has_failed_ = rewrite_.to.add(
            {.op = &has_failed(), .inputs = std::move(behind), .where = where}, {&type, 1})[0];
    }

    void guard(size_t output) {
        const ValueId value = graph_.outputs[output], old = inputs_.at(outputs_[output].replaces);
        const Node& maker = graph_.producer(value);
        if (!has_failed_) look({rewrite_.map(old)}, maker.where);
        guarded_[output] =
            rewrite_.to.add({.op = &ops::where(),
                             .inputs = {*has_failed_, rewrite_.map(old), rewrite_.map(value)},
                             .where = maker.where,
                             .role = maker.role},
                            {&graph_.type(value), 1})[0];
    }

    const Graph& graph_;
    const std::vector<Output>& outputs_;
    Rewriter rewrite_;
    std::vector<size_t> checks_;  // the nodes that may be the first to fail
    std::unordered_map<int, ValueId> inputs_;  // by slot
    std::vector<std::vector<size_t>> due_;  // by node: outputs that are guarded after it
    std::optional<ValueId> has_failed_;  // the last look, in the new graph
    std::unordered_map<size_t, ValueId> guarded_;  // by output, in the new graph
};

}  // namespace

Graph guard_updates(Graph graph, const PipelineOptions& options) {
    const auto replaces = [](const Output& output) { return output.replaces >= 0; };
    if (!options.device || !options.step || !FailureRule(*options.device).guards_updates() ||
        std::ranges::none_of(options.step->outputs, replaces))
        return graph;
    return Guard(graph, options.step->outputs).run();
}

}  // namespace megjit::jit
