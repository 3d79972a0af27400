// Values leave memory for a file, and come back, where the search says so (memory/spill.h). What
// the call replaces may lie in the file from call to call: an input that from_host alone reads, and
// an output that to_host makes.
#include <algorithm>
#include <map>
#include <set>

#include "jit/plan/passes/passes.h"
#include "jit/plan/passes/recompute_problem.h"
#include "jit/step/host_copy.h"
#include "runtime/host/error.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

// Does the graph move values already? What is exchanged with other processes has an order of its
// own, in which no disk takes part.
bool has_transfers(const Graph& graph) {
    return std::ranges::any_of(graph.nodes(), [](const Node& node) {
        return is_host_copy(node) || (node.op && runtime::is_ordered(*node.op));
    });
}

// The inputs that an op's result replaces, each with that result. Neither may be an output in
// another way.
std::vector<std::pair<ValueId, ValueId>> replaced_inputs(const Graph& graph, const Step& step) {
    std::map<int, ValueId> inputs;
    for (const Node& node : graph.nodes())
        if (node.kind == NodeKind::input) inputs[node.slot] = node.outputs[0];
    std::map<ValueId, int> given;  // how many outputs show the value
    for (ValueId output : graph.outputs) ++given[viewed_by(graph, output)];
    std::vector<std::pair<ValueId, ValueId>> found;
    for (size_t k = 0; k < step.outputs.size(); ++k) {
        const auto input = inputs.find(step.outputs[k].replaces);
        const ValueId output = graph.outputs[k];
        if (input == inputs.end() || !step.input(input->first).is_released) continue;
        if (is_op(graph.producer(output)) && !is_view(graph.producer(output)) &&
            given[output] == 1 && given[input->second] == 0)
            found.emplace_back(input->second, output);
    }
    return found;
}

// Inputs that a step reads only so that nothing is written over them before it may have failed:
// what lies in the file is not written over.
void read_operands_alone(RecomputeProblem& problem) {
    for (size_t s = 0; s < problem.nodes.size(); ++s) {
        std::set<uint32_t> operands;
        for (ValueId input : problem.nodes[s]->inputs) operands.insert(problem.number_of(input));
        std::erase_if(problem.problem.steps[s].reads,
                      [&](uint32_t value) { return !operands.contains(value); });
    }
}

// Steps that make results which replace inputs, and small values that serve them alone, run as soon
// as their operands exist: a step of training trains each layer in its backward pass, where
// transfers of parameters and states pass beside products. Otherwise they would all wait at the
// end, where nothing else is left to run.
class EarlyUpdates {
public:
    EarlyUpdates(RecomputeProblem& problem, const std::vector<uint32_t>& replacing)
        : problem_(problem),
          steps_(problem.problem.steps),
          readers_(problem.problem.values.size()),
          is_early_(steps_.size()),
          missing_(steps_.size()) {
        std::vector<char> is_written(readers_.size());
        for (const memory::RematStep& step : steps_)
            for (const uint32_t v : step.writes) is_written[v] = true;
        for (uint32_t s = 0; s < steps_.size(); ++s)
            for (const uint32_t v : steps_[s].reads)
                if (is_written[v]) {
                    readers_[v].push_back(s);
                    ++missing_[s];
                }
        const std::set<uint32_t> replaces(replacing.begin(), replacing.end());
        for (uint32_t s = static_cast<uint32_t>(steps_.size()); s-- > 0;)
            is_early_[s] = std::ranges::any_of(steps_[s].writes, [&](uint32_t v) {
                return replaces.contains(v);
            }) || serves_early_steps(s);
    }

    void run() {
        std::vector<uint32_t> places;  // what waits for others follows them
        for (uint32_t s = 0; s < steps_.size(); ++s)
            if (is_early_[s] && missing_[s] == 0) places.push_back(s);
        for (uint32_t s = 0; s < steps_.size(); ++s)
            if (!is_early_[s]) places.push_back(s);
        for (const uint32_t s : places) place(s);
        std::vector<memory::RematStep> steps;
        std::vector<const Node*> nodes;
        for (const uint32_t s : order_) {
            steps.push_back(std::move(steps_[s]));
            nodes.push_back(problem_.nodes[s]);
        }
        steps_ = std::move(steps);
        problem_.nodes = std::move(nodes);
    }

private:
    static constexpr size_t kSmall = 64 << 10;

    bool serves_early_steps(uint32_t s) const {
        if (problem_.nodes[s]->kind == NodeKind::op && !steps_[s].repeatable) return false;
        bool is_read = false;
        for (const uint32_t v : steps_[s].writes) {
            if (problem_.problem.values[v].bytes > kSmall) return false;
            for (const uint32_t reader : readers_[v])
                if (!is_early_[reader]) return false;
            is_read = is_read || !readers_[v].empty();
        }
        return is_read;
    }

    // Places the step, then the early steps that wait for it alone.
    void place(uint32_t step) {
        size_t next = order_.size();
        for (order_.push_back(step); next < order_.size(); ++next)
            for (const uint32_t v : steps_[order_[next]].writes)
                for (const uint32_t reader : readers_[v])
                    if (--missing_[reader] == 0 && is_early_[reader]) order_.push_back(reader);
    }

    RecomputeProblem& problem_;
    std::vector<memory::RematStep>& steps_;
    std::vector<std::vector<uint32_t>> readers_;  // by value that a step writes
    std::vector<char> is_early_;  // by step
    std::vector<uint32_t> missing_;  // by step: operands that are not made yet
    std::vector<uint32_t> order_;
};

class Spiller {
public:
    Spiller(const Graph& graph, const RecomputeProblem& problem, const memory::SpillPlan& plan)
        : graph_(graph), problem_(problem), plan_(plan), list_(graph) {
        ids_.resize(problem.problem.values.size());
        for (const Node& node : graph.nodes())
            if (!is_view(node))
                for (ValueId output : node.outputs) ids_[problem.number_of(output)] = output;
    }

    Graph run() {
        for (const uint32_t v : plan_.outside_at_start) outside_[v] = list_.last_copy(ids_[v]);
        auto store = plan_.stores.begin();
        auto fetch = plan_.fetches.begin();
        for (uint32_t step = 0; step < problem_.nodes.size(); ++step) {
            for (; fetch != plan_.fetches.end() && fetch->step == step; ++fetch)
                list_.read_from(ids_[fetch->value],
                                copy(from_host(), fetch->value, outside_.at(fetch->value)));
            list_.run(*problem_.nodes[step]);
            for (; store != plan_.stores.end() && store->step == step; ++store)
                outside_[store->value] =
                    copy(to_host(), store->value, list_.last_copy(ids_[store->value]));
        }
        for (const uint32_t v : plan_.outside_at_end) list_.read_from(ids_[v], outside_.at(v));
        return list_.finish();
    }

private:
    ValueId copy(const OpDef& op, uint32_t value, ValueId from) {
        const Node& producer = graph_.producer(ids_[value]);
        return list_.add({.op = &op, .where = producer.where, .role = producer.role}, from,
                         graph_.type(ids_[value]));
    }

    const Graph& graph_;
    const RecomputeProblem& problem_;
    const memory::SpillPlan& plan_;
    Relister list_;
    std::vector<ValueId> ids_;  // by number
    std::map<uint32_t, ValueId> outside_;  // by number: what from_host reads
};

}  // namespace

Graph spill(Graph graph, const PipelineOptions& options) {
    if (!options.choose_spill) return graph;
    if (!graph.device().is_host())
        runtime::user_error(
            {.what = runtime::cat("spill: the function runs on ", graph.device().name()),
             .why = "a GPU's values wait in the host's memory, not in a folder",
             .fix = "leave spill out, and mark large values with jit.offload"});
    if (has_transfers(graph)) return graph;
    RecomputeProblem problem(graph, options, Recomputes::units);
    read_operands_alone(problem);
    SpillProblem asked{.steps = problem.problem, .replaced = {}, .replacing = {}};
    std::set<uint32_t> read;
    for (const memory::RematStep& step : problem.problem.steps)
        read.insert(step.reads.begin(), step.reads.end());
    if (options.step)
        for (const auto& [input, output] : replaced_inputs(graph, *options.step)) {
            if (!read.contains(problem.number_of(input))) continue;
            asked.replaced.push_back(problem.number_of(input));
            asked.replacing.push_back(problem.number_of(output));
        }
    EarlyUpdates(problem, asked.replacing).run();
    const memory::SpillPlan plan = options.choose_spill(asked);
    if (plan.stores.empty() && plan.fetches.empty()) return graph;
    return Spiller(graph, problem, plan).run();
}

}  // namespace megjit::jit
