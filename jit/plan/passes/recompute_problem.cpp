#include "jit/plan/passes/recompute_problem.h"

#include <algorithm>
#include <limits>

#include "jit/plan/failure_rule.h"
#include "jit/plan/prepared_graph.h"
#include "jit/step/host_copy.h"
#include "runtime/ops/known.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// Regions of what is transient have numbers from here on; below are those of recompute(fn).
constexpr uint32_t kFirstUnit = uint32_t{1} << 31;

bool is_transient(const Node& node) {
    return node.kind == NodeKind::op && runtime::is_transient(*node.op, node.attrs);
}

bool is_fetch(const Node& node) { return node.op == &from_host(); }

// The results, and what they view.
std::set<ValueId> results_of(const Graph& graph) {
    std::set<ValueId> results;
    for (const ValueId output : graph.outputs) {
        results.insert(output);
        results.insert(viewed_by(graph, output));
    }
    return results;
}

// Does a later pass put element-wise ops into kernels?
bool is_fused_later(const PipelineOptions& options, Recomputes what) {
    return what != Recomputes::units && (options.opt_level >= 3 || options.fuse);
}

}  // namespace

ValueId stored_by(const Graph& graph, const Node& from_host) {
    return graph.producer(from_host.inputs[0]).inputs[0];
}

bool has_transients(const Graph& graph) {
    return std::any_of(graph.nodes().begin(), graph.nodes().end(), is_transient);
}

// What is exchanged again must be the same in all processes, so that no times of this one count.
RecomputeProblem::RecomputeProblem(const Graph& graph, const PipelineOptions& options,
                                   Recomputes what)
    : graph_(graph),
      options_(options),
      what_(what),
      has_transients_(has_transients(graph)),
      has_fetches_(std::ranges::any_of(graph.nodes(), is_fetch)),
      costs_(has_transients_                                       ? Costs()
             : options.measured_costs && what != Recomputes::cheap ? Costs::profiled(graph.device())
                                                                   : Costs(graph.device())),
      storage_(graph.value_count(), kNone),
      outputs_(results_of(graph)) {
    find_what_stays_inside();
    for (const Node& node : graph.nodes()) add(node);
    for (ValueId output : graph.outputs) problem.values[storage_[at(output)]].is_kept = true;
    keep_inputs_until_no_step_can_fail();
}

void RecomputeProblem::add(const Node& node) {
    begin_gathers(node);
    if (is_view(node)) {
        storage_[at(node.outputs[0])] = storage_[at(node.inputs[0])];
        memory::RematValue& viewed = problem.values[storage_[at(node.outputs[0])]];
        viewed.must_stay = viewed.must_stay || node.marks.stays;
        if (node.marks.leaves_region) viewed.region = 0;
        return;
    }
    if (is_fetch(node) && what_ == Recomputes::cheap) {
        const uint32_t there = storage_[at(stored_by(graph_, node))];
        storage_[at(node.outputs[0])] = there;
        problem.values[there].must_stay = true;
        fetches.emplace(there, &node);
        return;
    }
    const uint32_t region = region_of_results(node);
    for (ValueId output : node.outputs) {
        storage_[at(output)] = static_cast<uint32_t>(problem.values.size());
        problem.values.push_back({.bytes = graph_.type(output).bytes(),
                                  .is_kept = !is_op(node) || node.op == &to_host(),
                                  .must_stay = node.marks.stays,
                                  .region = region});
    }
    if (node.op && runtime::is_ordered(*node.op)) problem.values.back().is_kept = true;
    if (is_op(node)) add_step(node);
}

// Neighbours that are transient are a unit: a layer's parameters. What follows, up to the next
// unit, reads them as they are; for later readers they are gathered again.
void RecomputeProblem::begin_gathers(const Node& node) {
    if (!is_op(node)) return;
    if (is_transient(node) && !in_gathers_) ++unit_;
    in_gathers_ = is_transient(node);
}

uint32_t RecomputeProblem::region_of(const Node& node) const {
    if (what_ != Recomputes::marked) return 0;
    if (node.marks.region) return node.marks.region;
    return unit_ ? kFirstUnit + unit_ : 0;
}

uint32_t RecomputeProblem::region_of_results(const Node& node) const {
    if (node.marks.leaves_region || what_ != Recomputes::marked) return 0;
    if (node.marks.region) return node.marks.region;
    return is_transient(node) || is_made_of_transients(node) ? kFirstUnit + unit_ : 0;
}

// Casts and pieces of what a unit gathers are as large as that.
bool RecomputeProblem::is_made_of_transients(const Node& node) const {
    if (node.kind != NodeKind::op || !unit_ ||
        !(node.op->is_elementwise() || node.op == &runtime::ops::slice()))
        return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
        return problem.values[storage_[at(input)]].region == kFirstUnit + unit_;
    });
}

// A kernel that makes a result runs once: a second run would need another place for it.
bool RecomputeProblem::is_repeatable(const Node& node) const {
    if (node.kind == NodeKind::fused)
        return std::none_of(node.outputs.begin(), node.outputs.end(),
                            [&](ValueId output) { return outputs_.contains(output); });
    if (node.kind != NodeKind::op || node.op->only_checks || checks_values(node)) return false;
    return !runtime::is_ordered(*node.op) || (is_transient(node) && what_ == Recomputes::marked);
}

void RecomputeProblem::find_what_stays_inside() {
    stays_inside_.resize(graph_.value_count());
    if (!is_fused_later(options_, what_)) return;
    for (const Node& node : graph_.nodes()) {
        const bool is_elementwise = node.kind == NodeKind::op && node.op->is_elementwise();
        for (ValueId output : node.outputs)
            stays_inside_[at(output)] = is_elementwise && !outputs_.contains(output);
        if (!is_elementwise)
            for (ValueId input : node.inputs) stays_inside_[at(input)] = false;
    }
}

void RecomputeProblem::add_step(const Node& node) {
    memory::RematStep step{.repeatable = is_repeatable(node), .region = region_of(node)};
    step.movable = step.repeatable || node.kind == NodeKind::fused;
    for (ValueId input : node.inputs)
        if (const uint32_t value = storage_[at(input)];
            std::find(step.reads.begin(), step.reads.end(), value) == step.reads.end())
            step.reads.push_back(value);
    for (ValueId output : node.outputs) step.writes.push_back(storage_[at(output)]);
    if (node.kind == NodeKind::op) add_op(node, step);
    else add_kernel(node, step);
    if (step.in_place) step.overwrites = donated_operands(node);
    nodes.push_back(&node);
    problem.steps.push_back(std::move(step));
}

namespace {

// An op that reads a few numbers alone (a random key) may take so many times the time of writing
// its result: a second run keeps nothing large.
constexpr size_t kMostBytesKept = 16 << 10;  // of a result that a GPU keeps
constexpr double kWorthOfADraw = 4;
constexpr size_t kBytesOfAKey = 64;

bool is_made_of_few_bytes(const Graph& graph, const Node& node) {
    return std::ranges::all_of(
        node.inputs, [&](ValueId input) { return graph.type(input).bytes() <= kBytesOfAKey; });
}

bool may_lie_on_an_operand(const runtime::Executable& executable, const Node& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
        if (executable.may_alias(0, static_cast<int>(i))) return true;
    return false;
}

}  // namespace

void RecomputeProblem::add_op(const Node& node, memory::RematStep& step) const {
    const std::vector<Type> types = graph_.types(node.inputs);
    const runtime::OpCall call{*node.op, node.attrs, types};
    const std::vector<Type> results = graph_.types(node.outputs);
    step.cost = costs_.op(call, results).seconds;
    step.in_place = node.op->is_elementwise();
    if (what_ == Recomputes::cheap) {
        // On a GPU what does not join its readers' kernels is a launch of its own: it is worth that
        // where memory is so short that values wait on the host. Few bytes are not worth it.
        const bool joins = graph_.device().is_host() || has_fetches_ ||
                           (stays_inside_[at(node.outputs[0])] &&
                            graph_.type(node.outputs[0]).bytes() > kMostBytesKept);
        const runtime::Cost work = runtime::cost_of(call, results);
        const double most = is_made_of_few_bytes(graph_, node) ? kWorthOfADraw : 1;
        step.repeatable = step.repeatable && joins &&
                          costs_.arithmetic(work, runtime::Speeds::dtype_of(call)) <=
                              most * costs_.traffic(work.bytes);
        if (step.in_place) step.cost = costs_.traffic(bytes_in_a_kernel(node));
    } else if (step.in_place && is_fused_later(options_, what_)) {
        step.cost = costs_.op_in_kernel(call, results, bytes_in_a_kernel(node)).seconds;
    }
    if (options_.device && !is_host_copy(node))
        if (const auto executable = executable_to_plan(graph_, node)) {
            step.scratch = executable->workspace_bytes();
            // Writers at places (index_add) are counted beside their operand. With them in place
            // the search skips the plans that compute a little again, of which GPT-2 has many.
            step.in_place = step.in_place || (node.op->access != runtime::Access::written &&
                                              may_lie_on_an_operand(*executable, node));
        }
}

void RecomputeProblem::add_kernel(const Node& node, memory::RematStep& step) const {
    step.cost = costs_.step(graph_, node).seconds;
    const auto executable = executable_to_plan(graph_, node);
    step.scratch = executable->workspace_bytes();
    step.in_place = may_lie_on_an_operand(*executable, node);
}

// Element-wise neighbours become one kernel: what passes between them is neither written nor read.
double RecomputeProblem::bytes_in_a_kernel(const Node& node) const {
    const auto bytes = [&](ValueId value) {
        return static_cast<double>(graph_.type(value).bytes());
    };
    double sum = stays_inside_[at(node.outputs[0])] ? 0 : bytes(node.outputs[0]);
    for (ValueId input : node.inputs)
        if (!stays_inside_[at(input)]) sum += bytes(input);
    return sum;
}

// Where outputs are to lie: each on the first input that is given away and as large.
std::vector<uint32_t> RecomputeProblem::donated_operands(const Node& node) const {
    std::vector<uint32_t> donated;
    for (ValueId output : node.outputs) {
        if (!outputs_.contains(output)) continue;
        const auto takes = [&](ValueId input) {
            const Node& producer = graph_.producer(viewed_by(graph_, input));
            return producer.kind == NodeKind::input && options_.step &&
                   options_.step->input(producer.slot).is_released &&
                   graph_.type(input).bytes() == graph_.type(output).bytes() &&
                   std::ranges::find(donated, storage_[at(input)]) == donated.end();
        };
        const auto input = std::ranges::find_if(node.inputs, takes);
        if (input != node.inputs.end()) donated.push_back(storage_[at(*input)]);
    }
    return donated;
}

void RecomputeProblem::keep_inputs_until_no_step_can_fail() {
    const auto last = FailureRule(graph_.device())
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

}  // namespace megjit::jit
