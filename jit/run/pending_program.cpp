#include "jit/run/pending_program.h"

#include <algorithm>

#include "codegen/disk_cache.h"
#include "jit/plan/pipeline.h"
#include "jit/step/subgraph.h"
#include "runtime/eager/prepared_ops.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

// Splitting a group makes no new kernels today, so that the second round is the last.
constexpr int kMaxRounds = 3;

constexpr double kForever = 1e6;  // seconds

bool has_kernels(const PipelineOptions& passes) { return passes.opt_level >= 3 || passes.fuse; }

PipelineOptions without_kernels(PipelineOptions passes) {
    passes.opt_level = std::min(passes.opt_level, 2);
    passes.fuse = false;
    return passes;
}

// Returns the graph and the plan of the first rung whose program fits, before anything is
// allocated; nothing where none fits. All rungs start from `common`.
std::optional<PlannedGraph> first_that_fits(PlanLadder& ladder, const Graph& common,
                                            const PipelineOptions& passes,
                                            const std::function<MemoryPlan(const Graph&)>& plan) {
    std::optional<Graph> lowered;  // the graph that plans of later stages start from
    while (!ladder.is_exhausted()) {
        const PipelineOptions with_plan = ladder.with_plan(passes);
        const bool is_first = ladder.stage() == Stage::as_it_is;
        if (is_first || !lowered)
            lowered = run_passes_between(kFirstWithPlan, kFirstWithOtherPlan, common,
                                         is_first ? with_plan : passes);
        PlannedGraph made{.graph = ladder.stage() == Stage::whole
                                       ? run_passes_from(kFirstWithPlan, common, with_plan)
                                       : run_passes_from(kFirstWithOtherPlan, *lowered, with_plan),
                          .plan = {}};
        made.plan = plan(made.graph);
        if (!ladder.is_wanted()) return made;
        if (!ladder.accepts(made.plan)) continue;
        made.plan.curve = ladder.curve();
        made.plan.transfers = ladder.transfers();
        return made;
    }
    return {};
}

// Where interface and graph do not belong together, or "".
std::string fault_of(const Step& step) {
    const std::vector<ValueId>& values = step.graph.outputs;
    std::vector<Type> types = input_types(step.graph);
    if (types.size() > step.inputs.size() || values.size() != step.outputs.size())
        return runtime::cat("its interface tells of ", step.inputs.size(), " inputs and ",
                            step.outputs.size(), " outputs, its graph has ", types.size(), " and ",
                            values.size());
    types.resize(step.inputs.size());
    for (size_t k = 0; k < values.size(); ++k)
        if (const int slot = step.outputs[k].replaces;
            slot >= 0 && !(types.at(static_cast<size_t>(slot)) == step.graph.type(values[k])))
            return runtime::cat("output ", k, " replaces slot ", slot, ", which it does not fit");
    return "";
}

}  // namespace

PlannedGraph plan_graph(const Step& step, PipelineOptions passes, const LoweringOptions& lowering) {
    const runtime::Planning planning;
    passes.step = &step;
    PlanLadder ladder(passes.memory);
    const auto plan = [&](PlanLadder& from, const PipelineOptions& options) {
        return first_that_fits(from, run_passes_before(kFirstWithPlan, step.graph, options),
                               options,
                               [&](const Graph& graph) { return plan_of(graph, step, lowering); });
    };
    if (std::optional<PlannedGraph> found = plan(ladder, passes)) return std::move(*found);
    PlanLadder plain(passes.memory);
    plain.beats(ladder);
    if (has_kernels(passes))
        if (std::optional<PlannedGraph> found = plan(plain, without_kernels(passes)))
            return std::move(*found);
    ladder.refuse(plain, {});
}

PendingProgram::PendingProgram(std::shared_ptr<const Step> step, PipelineOptions passes,
                               LoweringOptions lowering)
    : step_(std::move(step)),
      passes_(std::move(passes)),
      ladder_(passes_.memory),
      lowering_(std::move(lowering)) {
    const runtime::Planning planning;
    passes_.step = step_.get();
    if (lowering_.check)
        if (const std::string fault = fault_of(*step_); !fault.empty())
            throw runtime::InternalError("a step is not sound: " + fault);
    // A plan that keeps a limit counts on its kernels: the call waits for them.
    const double seconds = passes_.memory.limit ? kForever : runtime::debug().compile_budget;
    const std::chrono::duration<double> budget(std::clamp(seconds, 0.0, kForever));
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(budget);
    common_ =
        std::make_shared<const Graph>(run_passes_before(kFirstWithPlan, step_->graph, passes_));
    run_passes();
}

void PendingProgram::run_passes() {
    PipelineOptions passes = passes_;
    passes.refused = &refused_;
    if (!ladder_.is_wanted()) {
        graph_ = run_passes_from(kFirstWithPlan, *common_, passes);
    } else {
        std::optional<PlannedGraph> found =
            first_that_fits(ladder_, *common_, passes,
                            [&](const Graph& graph) { return plan_of(graph, *step_, lowering_); });
        graph_ = found ? std::move(found->graph) : Graph();
    }
    requests_.clear();
    requests_of_node_.clear();
    for (const Node& node : graph_.nodes())
        if (node.kind == NodeKind::fused) request_kernels(node);
    for (const Node& node : graph_.nodes())
        for (const std::string& text : graph_texts(node)) request_kernels(*subgraph(text));
}

void PendingProgram::request_kernels(const Node& fused) {
    const codegen::CodeTarget target = passes_.device->target();
    std::vector<codegen::LaunchShape> launches = launches_of(fused);
    if (!target.is_gpu()) launches.resize(1);  // one code serves all launches
    for (codegen::LaunchShape& launch : launches)
        requests_.push_back(codegen::KernelService::instance().request(
            {fused.kernel->kernel, target, std::move(launch)}, passes_.backend));
    requests_of_node_.push_back(launches.size());
}

void PendingProgram::request_kernels(const Graph& held) {
    for (const Node& node : held.nodes()) {
        if (node.kind == NodeKind::fused) request_kernels(node);
        for (const std::string& text : graph_texts(node)) request_kernels(*subgraph(text));
    }
}

bool PendingProgram::is_ready() const {
    const auto is_done = [](const auto& request) { return request->is_done(); };
    return std::all_of(requests_.begin(), requests_.end(), is_done) || Clock::now() >= deadline_ ||
           codegen::KernelService::instance().is_stopped();
}

std::shared_ptr<Program> PendingProgram::finish() {
    const runtime::Planning planning;
    if (ladder_.is_exhausted()) return without_kernels();
    const size_t known = refused_.size();
    LoweringOptions lowering = lowering_;
    lowering.kernels.emplace();
    auto request = requests_.begin();
    for (const size_t count : requests_of_node_) {
        const auto end = request + static_cast<ptrdiff_t>(count);
        const bool is_there = std::all_of(
            request, end, [](const auto& each) { return each->is_done() && each->compiled(); });
        const codegen::KernelIR& kernel = (*request)->kernel();
        lowering.kernels->push_back(is_there ? (*request)->compiled() : nullptr);
        if (!is_there && !codegen::runs_without_code(kernel)) refused_.insert(print(kernel));
        request = end;
    }
    tell_what_is_late();
    if (refused_.size() > known && rounds_ < kMaxRounds) {
        ++rounds_;
        ladder_ = PlanLadder(passes_.memory);  // other kernels have other plans
        run_passes();
        return is_ready() ? finish() : nullptr;
    }
    if (refused_.size() > known) return without_kernels();
    if (!ladder_.is_wanted() || ladder_.accepts(plan_of(graph_, *step_, lowering)))
        return make_program(graph_, ladder_, lowering);
    run_passes();  // without a kernel, a call takes more memory
    return is_ready() ? finish() : nullptr;
}

std::shared_ptr<Program> PendingProgram::make_program(const Graph& graph, const PlanLadder& ladder,
                                                      LoweringOptions lowering) const {
    if (ladder.is_wanted()) {
        lowering.curve = ladder.curve();
        lowering.transfers = ladder.transfers();
    }
    return std::make_shared<Program>(graph, *step_, lowering);
}

std::shared_ptr<Program> PendingProgram::without_kernels() {
    const runtime::Planning planning;
    if (!has_kernels(passes_) && ladder_.is_exhausted()) ladder_.refuse(ladder_, first_line());
    const PipelineOptions passes = jit::without_kernels(passes_);
    if (!plain_ladder_) plain_ladder_.emplace(passes_.memory).beats(ladder_);
    const Graph common = run_passes_before(kFirstWithPlan, step_->graph, passes);
    const std::optional<PlannedGraph> found =
        first_that_fits(*plain_ladder_, common, passes, [&](const Graph& graph) {
        return plain_ladder_->is_wanted() ? plan_of(graph, *step_, lowering_) : MemoryPlan();
    });
    if (!found) ladder_.refuse(*plain_ladder_, first_line());
    return make_program(found->graph, *plain_ladder_, lowering_);
}

std::string PendingProgram::first_line() const {
    for (const Node& node : step_->graph.nodes())
        if (!node.where.empty()) return node.where;
    return {};
}

void PendingProgram::tell_what_is_late() const {
    const auto late = std::count_if(requests_.begin(), requests_.end(),
                                    [](const auto& request) { return !request->is_done(); });
    if (late == 0 || codegen::KernelService::instance().is_stopped()) return;
    const auto first = std::find_if(graph_.nodes().begin(), graph_.nodes().end(),
                                    [](const Node& node) { return node.kind == NodeKind::fused; });
    codegen::warn_once(runtime::cat(late, " of ", requests_.size(),
                                    " kernels of the function traced at ", first->where,
                                    " are not compiled after ", runtime::debug().compile_budget,
                                    " s (MEGJIT_COMPILE_BUDGET): their operations run one by one"));
}

}  // namespace megjit::jit
