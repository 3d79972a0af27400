// jit/run/pending_program.h -- PendingProgram: a program whose kernels are being compiled, and the
// same program without generated kernels, which runs meanwhile.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "codegen/compiler.h"
#include "jit/plan/passes/passes.h"
#include "jit/plan/plan_ladder.h"
#include "jit/run/program.h"

namespace megjit::jit {

// The first plan that fits, without a program: also on a device that is not there. OverLimit.
struct PlannedGraph {
    Graph graph;
    MemoryPlan plan;
};
PlannedGraph plan_graph(const Step& step, PipelineOptions passes, const LoweringOptions& lowering);

class PendingProgram {
public:
    using Clock = codegen::CompileQueue::Clock;
    // Runs the passes, finds a plan that fits into the memory that is allowed, and asks for the
    // kernels.
    PendingProgram(std::shared_ptr<const Step> step, PipelineOptions passes,
                   LoweringOptions lowering);

    // Has every kernel been compiled or refused, or, where there is no limit on memory, is the time
    // over that MEGJIT_COMPILE_BUDGET gives?
    bool is_ready() const;
    const codegen::KernelRequests& requests() const { return requests_; }
    Clock::time_point deadline() const { return deadline_; }

    // Makes the program with the kernels that there are. A group without a kernel runs unfused, and
    // plans are made anew; where other groups come of that, or of a plan that needs less memory,
    // their kernels are asked for, and the result is null: wait again.
    std::shared_ptr<Program> finish();
    // The order of that program's steps, for MemoryOptions::known_order; empty where there is no
    // limit.
    std::vector<uint32_t> chosen_order() const {
        return (plain_ladder_ ? *plain_ladder_ : ladder_).chosen_order();
    }
    std::shared_ptr<Program> without_kernels();

private:
    void run_passes();
    void request_kernels(const Node& fused);
    void request_kernels(const Graph& held);  // an op holds it
    std::shared_ptr<Program> make_program(const Graph& graph, const PlanLadder& ladder,
                                          LoweringOptions lowering) const;
    void tell_what_is_late() const;
    std::string first_line() const;

    const std::shared_ptr<const Step> step_;
    PipelineOptions passes_;
    std::shared_ptr<const Graph> common_;  // the graph that all plans start from
    PlanLadder ladder_;  // with kernels
    std::optional<PlanLadder> plain_ladder_;  // without
    LoweringOptions lowering_;
    Clock::time_point deadline_;
    Graph graph_;
    // For each fused node, in order, then for those of graphs that ops hold; on a GPU for each
    // launch.
    codegen::KernelRequests requests_;
    std::vector<size_t> requests_of_node_;
    std::set<std::string> refused_;  // printed kernels that cannot be had
    int rounds_ = 0;
};

}  // namespace megjit::jit
