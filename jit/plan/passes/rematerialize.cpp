// Lists ops or kernels anew so that some run twice and their results need not be kept meanwhile.
// What runs again, and when, is the search's matter (memory/rematerialize.h); here a graph becomes
// its problem, and the answer a graph.
#include <algorithm>
#include <map>

#include "jit/plan/passes/passes.h"
#include "jit/plan/passes/recompute_problem.h"
#include "jit/plan/passes/relister.h"
#include "jit/step/host_copy.h"
#include "memory/step_order.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

// What may be computed again without being asked for: so many times the time of everything, in
// graphs of up to so many steps.
constexpr double kCheap = 1.0125;
constexpr size_t kMostCheapSteps = 20'000;

Graph relist(const Graph& graph, const RecomputeProblem& problem,
             const std::vector<uint32_t>& order) {
    Relister list(graph);
    std::map<uint32_t, const Node*> fetches = problem.fetches;
    std::vector<bool> has_run(problem.nodes.size());
    for (uint32_t step : order) {
        const Node& node = *problem.nodes[step];
        if (has_run[step] || node.role.is_backward)
            for (uint32_t value : problem.problem.steps[step].reads)
                if (const auto fetch = fetches.extract(value)) {
                    list.run(*fetch.mapped());
                    list.read_from(stored_by(graph, *fetch.mapped()),
                                   list.last_copy(fetch.mapped()->outputs[0]));
                }
        has_run[step] = true;
        list.run(node);
    }
    return drop_dead(list.finish());
}

// Each op once, in another order where that saves so many bytes and such a part of the peak. Why
// not any saving: updates that stand together are launched together.
std::vector<uint32_t> worthwhile_order(const memory::RematProblem& problem) {
    constexpr size_t kWorthwhile = size_t{1} << 20, kPart = 20;
    std::vector<uint32_t> order = memory::order_for_peak(problem), plain = order;
    std::sort(plain.begin(), plain.end());
    if (order == plain) return {};
    const size_t before = memory::measure(problem, plain).peak_bytes,
                 after = memory::measure(problem, order).peak_bytes;
    return before - after >= std::max(kWorthwhile, before / kPart) ? order
                                                                   : std::vector<uint32_t>{};
}

Graph order_for_peak(Graph graph, const PipelineOptions& options) {
    // Transfers, and what is exchanged, stand where they overlap with work.
    const auto overlaps = [](const Node& node) {
        return is_host_copy(node) || (node.op && runtime::is_ordered(*node.op));
    };
    if (std::any_of(graph.nodes().begin(), graph.nodes().end(), overlaps)) return graph;
    PipelineOptions without_scratch = options;  // asking for scratch sizes takes most of the time
    without_scratch.device = nullptr;
    if (worthwhile_order(RecomputeProblem(graph, without_scratch, Recomputes::ops).problem).empty())
        return graph;
    const RecomputeProblem problem(graph, options, Recomputes::ops);
    const std::vector<uint32_t> order = worthwhile_order(problem.problem);
    if (order.empty()) return graph;
    return relist(graph, problem, order);
}

Graph with_order(Graph graph, const PipelineOptions& options, Recomputes what,
                 const ChoosePlan& choose) {
    const RecomputeProblem problem(graph, options, what);
    const std::vector<uint32_t> order = choose(problem.problem);
    return order.empty() ? graph : relist(graph, problem, order);
}

}  // namespace

Graph order_steps(Graph graph, const PipelineOptions& options) {
    const auto is_marked = [](const Node& node) { return node.marks.region != 0; };
    if (std::none_of(graph.nodes().begin(), graph.nodes().end(), is_marked) &&
        !has_transients(graph))
        return order_for_peak(std::move(graph), options);
    const RecomputeProblem problem(graph, options, Recomputes::marked);
    return relist(graph, problem, memory::plain_plan(problem.problem).order);
}

Graph rematerialize_whole(Graph graph, const PipelineOptions& options) {
    if (!options.choose_whole) return graph;
    return with_order(std::move(graph), options, Recomputes::ops, options.choose_whole);
}

Graph rematerialize(Graph graph, const PipelineOptions& options) {
    if (!options.choose_plan) return graph;
    return with_order(std::move(graph), options, Recomputes::ops, options.choose_plan);
}

Graph recompute_cheap(Graph graph, const PipelineOptions& options) {
    if (!options.recomputes_cheap) return graph;
    const RecomputeProblem problem(graph, options, Recomputes::cheap);
    if (problem.nodes.size() > kMostCheapSteps) return graph;
    const std::vector<uint32_t> order = memory::thrifty_plan(problem.problem, kCheap).order;
    if (order.size() <= problem.nodes.size()) return graph;
    return relist(graph, problem, order);
}

Graph rematerialize_units(Graph graph, const PipelineOptions& options) {
    const auto is_kernel = [](const Node& node) { return node.kind == NodeKind::fused; };
    if (!options.choose_units ||
        std::none_of(graph.nodes().begin(), graph.nodes().end(), is_kernel))
        return graph;
    return with_order(std::move(graph), options, Recomputes::units, options.choose_units);
}

}  // namespace megjit::jit
