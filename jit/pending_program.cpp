#include "jit/pending_program.h"

#include <algorithm>

#include "codegen/disk_cache.h"
#include "jit/pipeline.h"
#include "jit/subgraph.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

// Splitting a group makes no new kernels today, so that the second round is the last.
constexpr int kMaxRounds = 3;

}  // namespace

void tell_slots(const LoweringOptions& lowering, PipelineOptions& passes) {
    passes.donatable = lowering.donatable;
    passes.replaces = lowering.replaces;
    for (size_t i = 0; i < lowering.is_parameter.size(); ++i)
        passes.fixed.push_back(lowering.is_parameter[i] &&
                               !(i < lowering.donatable.size() && lowering.donatable[i]));
}

PlannedGraph plan_graph(const Graph& recorded, const PipelineOptions& passes,
                        LoweringOptions lowering) {
    PlanLadder ladder(passes.memory);
    const Graph common = run_passes_before_plan(recorded, passes);
    for (;;) {
        Graph graph = run_passes_with_plan(common, ladder.with_plan(passes));
        lowering.curve = ladder.curve();
        MemoryPlan plan = plan_of(graph, recorded, lowering);
        if (!ladder.is_wanted() || ladder.accepts(plan)) return {std::move(graph), std::move(plan)};
        if (ladder.is_exhausted()) ladder.refuse(ladder, {});
    }
}

PendingProgram::PendingProgram(std::shared_ptr<const Graph> recorded, const PipelineOptions& passes,
                               LoweringOptions lowering)
    : recorded_(std::move(recorded)),
      passes_(passes),
      ladder_(passes.memory),
      lowering_(std::move(lowering)) {
    const std::chrono::duration<double> budget(
        std::clamp(runtime::debug().compile_budget, 0.0, 1e6));
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(budget);
    common_ = std::make_shared<const Graph>(run_passes_before_plan(*recorded_, passes_));
    run_passes();
}

void PendingProgram::run_passes() {
    PipelineOptions passes = ladder_.with_plan(passes_);
    passes.refused = &refused_;
    do graph_ = run_passes_with_plan(*common_, passes);
    while (!fits(graph_, ladder_, lowering_) && !ladder_.is_exhausted());
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
    if (!target.is_gpu()) launches.resize(1);  // the code serves all
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
        run_passes();
        return is_ready() ? finish() : nullptr;
    }
    if (refused_.size() > known) return without_kernels();
    if (auto program = lower(graph_, ladder_, lowering)) return program;
    run_passes();  // a kernel that there is not takes more
    return is_ready() ? finish() : nullptr;
}

// Before anything is allocated. Where it does not fit the ladder stands on its next rung.
bool PendingProgram::fits(const Graph& graph, PlanLadder& ladder, LoweringOptions lowering) const {
    if (!ladder.is_wanted()) return true;
    lowering.curve = ladder.curve();
    return ladder.accepts(plan_of(graph, *recorded_, lowering));
}

std::shared_ptr<Program> PendingProgram::lower(const Graph& graph, PlanLadder& ladder,
                                               LoweringOptions lowering) const {
    lowering.curve = ladder.curve();
    if (!fits(graph, ladder, lowering)) return nullptr;
    return std::make_shared<Program>(graph, *recorded_, lowering);
}

std::shared_ptr<Program> PendingProgram::without_kernels() {
    if (!has_kernels() && ladder_.is_exhausted()) ladder_.refuse(ladder_, first_line());
    if (!plain_ladder_) plain_ladder_ = ladder_.from_the_top();
    PipelineOptions passes = plain_ladder_->with_plan(passes_);
    passes.opt_level = std::min(passes.opt_level, 2);
    passes.fuse = false;
    while (!plain_ladder_->is_exhausted())
        if (auto program = lower(run_passes_with_plan(*common_, passes), *plain_ladder_, lowering_))
            return program;
    plain_ladder_->refuse(ladder_, first_line());
}

std::string PendingProgram::first_line() const {
    for (const Node& node : recorded_->nodes())
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
