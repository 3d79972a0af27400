// Lists the ops anew so that some run twice and their results need not be kept meanwhile. What runs
// again, and when, is the search's matter (memory/rematerialize.h); here a graph becomes its
// problem, and the answer a graph.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "jit/failure_rule.h"
#include "jit/host_copy.h"
#include "jit/passes/passes.h"
#include "jit/passes/relister.h"
#include "jit/step_times.h"
#include "memory/step_order.h"
#include "runtime/eager/prepared_ops.h"
#include "runtime/host/error.h"
#include "runtime/ops/known.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// What may be computed again without being asked for: so many times the time of everything, in
// graphs of up to so many steps.
constexpr double kCheap = 1.0125;
constexpr size_t kMostCheapSteps = 20'000;

enum class Repeats : uint8_t { anything, cheap };

// Regions of what is transient have numbers from here on; below are those of recompute(fn).
constexpr uint32_t kFirstUnit = uint32_t{1} << 31;

bool is_transient(const Node& node) {
    return node.kind == NodeKind::op && runtime::is_transient(*node.op, node.attrs);
}
bool has_transients(const Graph& graph) {
    return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                       [](const Node& node) { return is_transient(node); });
}

// What comes back by this transfer.
ValueId stored_by(const Graph& graph, const Node& from_host) {
    return graph.producer(from_host.inputs[0]).inputs[0];
}

// Views cost nothing and hold no bytes of their own: to the search a view is what it views. So is,
// to what is cheap, a value that waits on the host: others can be computed from it again.
class Problem {
public:
    Problem(const Graph& graph, const PipelineOptions& options, Repeats repeats)
        : graph_(graph),
          options_(options),
          repeats_(repeats),
          storage_(graph.value_count(), kNone) {
        for (ValueId output : graph.outputs) outputs_.insert(output);
        find_what_stays_inside();
        for (const Node& node : graph.nodes()) {
            begin_unit(node);
            if (is_view(node)) {
                storage_[at(node.outputs[0])] = storage_[at(node.inputs[0])];
                memory::RematValue& viewed = problem.values[storage_[at(node.outputs[0])]];
                viewed.must_stay = viewed.must_stay || node.marks.stays;
                if (node.marks.leaves_region) viewed.region = 0;
                continue;
            }
            if (node.op == &from_host() && repeats == Repeats::cheap) {
                const uint32_t there = storage_[at(stored_by(graph, node))];
                storage_[at(node.outputs[0])] = there;
                problem.values[there].must_stay = true;
                fetches.emplace(there, &node);
                continue;
            }
            const uint32_t region = region_of_results(node);
            for (ValueId output : node.outputs) {
                storage_[at(output)] = static_cast<uint32_t>(problem.values.size());
                problem.values.push_back({.bytes = graph.type(output).bytes(),
                                          .is_kept = !is_op(node) || node.op == &to_host(),
                                          .must_stay = node.marks.stays,
                                          .region = region});
            }
            if (node.op && runtime::is_ordered(*node.op)) problem.values.back().is_kept = true;
            if (is_op(node)) add_step(node);
        }
        for (ValueId output : graph.outputs) problem.values[storage_[at(output)]].is_kept = true;
        keep_inputs_until_no_step_can_fail();
    }

    memory::RematProblem problem;
    std::vector<const Node*> nodes;  // by step
    std::map<uint32_t, const Node*> fetches;  // by value: its transfer back, which is no step

private:
    // Neighbours that are transient are a unit: a layer's parameters. What follows, up to the next
    // unit, reads them as they are; for later readers they are gathered again.
    void begin_unit(const Node& node) {
        if (!is_op(node)) return;
        if (is_transient(node) && !in_gathers_) ++unit_;
        in_gathers_ = is_transient(node);
    }

    // What is marked has been taken care of before what is cheap.
    uint32_t region_of(const Node& node) const {
        if (repeats_ == Repeats::cheap) return 0;
        if (node.marks.region) return node.marks.region;
        return unit_ ? kFirstUnit + unit_ : 0;
    }

    uint32_t region_of_results(const Node& node) const {
        if (node.marks.leaves_region || repeats_ == Repeats::cheap) return 0;
        if (node.marks.region) return node.marks.region;
        return is_transient(node) || is_made_of_transients(node) ? kFirstUnit + unit_ : 0;
    }

    // Casts and pieces of what a unit gathers are as large as that.
    bool is_made_of_transients(const Node& node) const {
        if (node.kind != NodeKind::op || !unit_ ||
            !(node.op->is_elementwise() || node.op == &runtime::ops::slice()))
            return false;
        return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
            return problem.values[storage_[at(input)]].region == kFirstUnit + unit_;
        });
    }

    void find_what_stays_inside() {
        stays_inside_.resize(graph_.value_count());
        for (const Node& node : graph_.nodes()) {
            const bool is_elementwise = node.kind == NodeKind::op && node.op->is_elementwise();
            for (ValueId output : node.outputs)
                stays_inside_[at(output)] = is_elementwise && !outputs_.contains(output);
            if (!is_elementwise)
                for (ValueId input : node.inputs) stays_inside_[at(input)] = false;
        }
    }

    void add_step(const Node& node) {
        memory::RematStep step{
            .repeatable = node.kind == NodeKind::op && !checks_values(node) &&
                          (!runtime::is_ordered(*node.op) ||
                           (is_transient(node) && repeats_ == Repeats::anything)),
            .region = region_of(node)};
        for (ValueId input : node.inputs)
            if (const uint32_t value = storage_[at(input)];
                std::find(step.reads.begin(), step.reads.end(), value) == step.reads.end())
                step.reads.push_back(value);
        for (ValueId output : node.outputs) step.writes.push_back(storage_[at(output)]);
        if (node.kind == NodeKind::op) {
            const std::vector<Type> types = graph_.types(node.inputs);
            const runtime::OpCall call{*node.op, node.attrs, types};
            const std::vector<Type> results = graph_.types(node.outputs);
            step.cost = times_.seconds(call, results);
            if (repeats_ == Repeats::cheap) {
                const runtime::Cost cost = runtime::cost_of(call, results);
                const double speed = speeds_.flops_of(cost, speeds_.dtype_of(call));
                step.repeatable =
                    step.repeatable && cost.flops / speed <= cost.bytes / speeds_.bytes;
                if (node.op->is_elementwise()) step.cost = bytes_in_a_kernel(node) / speeds_.bytes;
            }
            step.in_place = node.op->is_elementwise();
            if (step.in_place && outputs_.contains(node.outputs[0]))
                step.overwrites = donated_operand(node);
            if (options_.device && !is_host_copy(node) && !node.op->is_view)
                step.scratch = runtime::PreparedOps::instance()
                                   .executable(call, results, *options_.device)
                                   ->workspace_bytes();
        }
        nodes.push_back(&node);
        problem.steps.push_back(std::move(step));
    }

    // Element-wise neighbours become one kernel: what passes between them is neither written nor
    // read.
    double bytes_in_a_kernel(const Node& node) const {
        const auto bytes = [&](ValueId value) {
            return static_cast<double>(graph_.type(value).bytes());
        };
        double sum = stays_inside_[at(node.outputs[0])] ? 0 : bytes(node.outputs[0]);
        for (ValueId input : node.inputs)
            if (!stays_inside_[at(input)]) sum += bytes(input);
        return sum;
    }

    // Where an output is to lie: on the first input that is given away and as large.
    std::vector<uint32_t> donated_operand(const Node& node) const {
        for (ValueId input : node.inputs) {
            const Node& producer = graph_.producer(input);
            const auto slot = static_cast<size_t>(producer.slot);
            if (producer.kind == NodeKind::input && slot < options_.donatable.size() &&
                options_.donatable[slot] &&
                graph_.type(input).bytes() == graph_.type(node.outputs[0]).bytes())
                return {storage_[at(input)]};
        }
        return {};
    }

    void keep_inputs_until_no_step_can_fail() {
        const auto last =
            FailureRule(graph_.device())
                .keeps_inputs_until(graph_, nodes.size(),
                                    [&](size_t s) -> const Node& { return *nodes[s]; });
        if (!last) return;
        std::vector<uint32_t>& reads = problem.steps[*last].reads;
        for (const Node& node : graph_.nodes()) {
            if (node.kind != NodeKind::input) continue;
            const uint32_t value = storage_[at(node.outputs[0])];
            if (std::find(reads.begin(), reads.end(), value) == reads.end()) reads.push_back(value);
        }
    }

    const Graph& graph_;
    const PipelineOptions& options_;
    Repeats repeats_;
    // What is exchanged again must be the same in all processes: no times of this one.
    const bool has_transients_ = has_transients(graph_);
    const runtime::Speeds speeds_ = has_transients_ ? runtime::Speeds{} : graph_.device().speeds();
    const StepTimes::Snapshot times_ =
        options_.measured_costs && repeats_ == Repeats::anything && !has_transients_
            ? StepTimes::of(graph_.device()).snapshot()
            : StepTimes::Snapshot(speeds_);
    std::vector<bool>
        stays_inside_;  // by value of the graph: made and read by element-wise nodes alone
    std::vector<uint32_t> storage_;  // by value of the graph
    std::set<ValueId> outputs_;
    uint32_t unit_ = 0;  // the last one that has begun
    bool in_gathers_ = false;
};

Graph relist(const Graph& graph, const Problem& problem, const std::vector<uint32_t>& order) {
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

// Each op once, in another order where that saves so many bytes and such a part of the peak. Why a
// limit: updates that stand together are launched together.
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
    PipelineOptions without_scratch = options;  // asking for it takes most of the time
    without_scratch.device = nullptr;
    if (worthwhile_order(Problem(graph, without_scratch, Repeats::anything).problem).empty())
        return graph;
    const Problem problem(graph, options, Repeats::anything);
    const std::vector<uint32_t> order = worthwhile_order(problem.problem);
    if (order.empty()) return graph;
    return relist(graph, problem, order);
}

}  // namespace

Graph rematerialize(Graph graph, const PipelineOptions& options) {
    const auto is_marked = [](const Node& node) { return node.marks.region != 0; };
    const bool is_marked_anywhere =
        std::any_of(graph.nodes().begin(), graph.nodes().end(), is_marked) || has_transients(graph);
    if (!options.choose_plan && !is_marked_anywhere)
        return order_for_peak(std::move(graph), options);
    const Problem problem(graph, options, Repeats::anything);
    std::vector<uint32_t> order;
    if (options.choose_plan) order = options.choose_plan(problem.problem);
    if (order.empty() && !is_marked_anywhere) return graph;
    if (order.empty()) order = memory::plain_plan(problem.problem).order;
    return relist(graph, problem, order);
}

Graph recompute_cheap(Graph graph, const PipelineOptions& options) {
    if (options.memory.limit || options.memory.is_sublinear) return graph;
    const Problem problem(graph, options, Repeats::cheap);
    if (problem.nodes.size() > kMostCheapSteps) return graph;
    const std::vector<uint32_t> order = memory::thrifty_plan(problem.problem, kCheap).order;
    if (order.size() <= problem.nodes.size()) return graph;
    return relist(graph, problem, order);
}

}  // namespace megjit::jit
