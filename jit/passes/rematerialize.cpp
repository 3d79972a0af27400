// Lists the ops anew so that some run twice and their results need not be kept meanwhile. What runs again, and
// when, is the search's matter (memory/rematerialize.h); here a graph becomes its problem, and the answer a graph.
#include <algorithm>
#include <limits>

#include "jit/passes/passes.h"
#include "runtime/error.h"

namespace megjit::jit {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// A flop and a byte in units of time, as a CPU core and its memory relate: 50 Gflop/s and 10 GB/s; and what calling an op costs.
constexpr double kSecondsPerFlop = 2e-11, kSecondsPerByte = 1e-10, kSecondsPerCall = 1e-6;

bool is_op(const Node& node) { return node.kind == NodeKind::op || node.kind == NodeKind::fused; }
bool is_view(const Node& node) { return node.kind == NodeKind::op && node.op->is_view; }

// Views cost nothing and hold no bytes of their own: to the search a view is what it views.
class Problem {
public:
    explicit Problem(const Graph& graph) : graph_(graph), storage_(graph.value_count(), kNone) {
        for (const Node& node : graph.nodes()) {
            if (is_view(node)) {
                storage_[at(node.outputs[0])] = storage_[at(node.inputs[0])];
                continue;
            }
            for (ValueId output : node.outputs) {
                storage_[at(output)] = static_cast<uint32_t>(problem.values.size());
                problem.values.push_back({.bytes = graph.type(output).bytes(), .is_kept = !is_op(node)});
            }
            if (is_op(node)) add_step(node);
        }
        for (ValueId output : graph.outputs) problem.values[storage_[at(output)]].is_kept = true;
    }

    memory::RematProblem problem;
    std::vector<const Node*> nodes;  // by step
    std::vector<double> flops;

private:
    void add_step(const Node& node) {
        memory::RematStep step{.repeatable = node.kind == NodeKind::op && !node.op->checks_values};
        for (ValueId input : node.inputs)
            if (const uint32_t value = storage_[at(input)]; std::find(step.reads.begin(), step.reads.end(), value) == step.reads.end()) step.reads.push_back(value);
        for (ValueId output : node.outputs) step.writes.push_back(storage_[at(output)]);
        flops.push_back(0);
        if (node.kind == NodeKind::op) {
            const std::vector<Type> types = graph_.types(node.inputs);
            const runtime::Cost cost = runtime::cost_of({*node.op, node.attrs, types}, graph_.types(node.outputs));
            step.cost = std::max(cost.flops * kSecondsPerFlop, cost.bytes * kSecondsPerByte) + kSecondsPerCall;
            step.in_place = node.op->is_elementwise();
            flops.back() = cost.flops;
        }
        nodes.push_back(&node);
        problem.steps.push_back(std::move(step));
    }

    const Graph& graph_;
    std::vector<uint32_t> storage_;  // by value of the graph
};

// Copies nodes in a given order; each read takes the last copy. Views are made anew for each copy of what they view.
class Relister {
public:
    explicit Relister(const Graph& graph) : from_(graph), is_output_(graph.value_count()), now_(graph.value_count()), viewed_(graph.value_count()) {
        for (ValueId output : graph.outputs) {
            while (is_view(graph.producer(output))) output = graph.producer(output).inputs[0];
            is_output_[at(output)] = true;
        }
        for (const Node& node : graph.nodes()) {
            if (node.kind == NodeKind::input) set(node.outputs[0], to_.add_input(graph.type(node.outputs[0]), node.slot));
            if (node.kind == NodeKind::constant) set(node.outputs[0], to_.add_constant(node.constant));
        }
    }

    void run(const Node& node) {
        Node copy = node;
        for (ValueId& input : copy.inputs) input = latest(input);
        copy.outputs.clear();
        const std::vector<ValueId> outputs = to_.add(std::move(copy), from_.types(node.outputs));
        for (size_t i = 0; i < outputs.size(); ++i) set(node.outputs[i], outputs[i]);
    }

    Graph finish() {
        for (ValueId output : from_.outputs) to_.outputs.push_back(latest(output));
        return std::move(to_);
    }

private:
    void set(ValueId old, ValueId fresh) {
        // What is an output has storage of its own from its first copy on; a second one serves nobody.
        if (!now_[at(old)] || !is_output_[at(old)]) now_[at(old)] = fresh;
    }

    ValueId latest(ValueId old) {
        const Node& producer = from_.producer(old);
        if (!is_view(producer)) return *now_[at(old)];
        const ValueId viewed = latest(producer.inputs[0]);
        if (now_[at(old)] && viewed_[at(old)] == viewed) return *now_[at(old)];
        Node copy = producer;
        copy.inputs = {viewed};
        for (size_t i = 1; i < producer.inputs.size(); ++i) copy.inputs.push_back(latest(producer.inputs[i]));
        copy.outputs.clear();
        viewed_[at(old)] = viewed;
        now_[at(old)] = to_.add(std::move(copy), from_.types(producer.outputs))[0];
        return *now_[at(old)];
    }

    const Graph& from_;
    Graph to_;
    std::vector<bool> is_output_;  // or what an output views
    std::vector<std::optional<ValueId>> now_;
    std::vector<std::optional<ValueId>> viewed_;  // views: what the last copy views
};

}  // namespace

Graph rematerialize(const Graph& graph, const PipelineOptions& options) {
    if (!options.choose_plan) return graph;
    const Problem problem(graph);
    const std::vector<uint32_t> order = options.choose_plan(problem.problem, problem.flops);
    Relister list(graph);
    for (uint32_t step : order) list.run(*problem.nodes[step]);
    return list.finish();
}

}  // namespace megjit::jit
