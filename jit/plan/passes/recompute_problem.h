// jit/plan/passes/recompute_problem.h -- RecomputeProblem: a graph as the search for recomputation
// sees it (memory/remat_problem.h).
#pragma once

#include <map>
#include <set>
#include <vector>

#include "jit/plan/costs.h"
#include "jit/plan/passes/passes.h"
#include "jit/plan/passes/relister.h"

namespace megjit::jit {

// The problem asks to run marked regions again, for a plan of the graph's ops or of the units that
// run, or for what costs next to nothing.
enum class Recomputes : uint8_t { marked, ops, units, cheap };

// The value that comes back by this transfer.
ValueId stored_by(const Graph& graph, const Node& from_host);

bool has_transients(const Graph& graph);

// Views cost nothing and hold no bytes of their own: to the search a view is what it views. So is,
// to what is cheap, a value that waits on the host: others can be computed from it again.
class RecomputeProblem {
public:
    // The graph outlives it.
    RecomputeProblem(const Graph& graph, const PipelineOptions& options, Recomputes what);

    // The problem's number for what a value of the graph is, or views.
    uint32_t number_of(ValueId value) const { return storage_[at(value)]; }

    memory::RematProblem problem;
    std::vector<const Node*> nodes;  // by step
    std::map<uint32_t, const Node*> fetches;  // by value: its transfer back, which is no step

private:
    void add(const Node& node);
    void begin_gathers(const Node& node);
    uint32_t region_of(const Node& node) const;
    uint32_t region_of_results(const Node& node) const;
    bool is_made_of_transients(const Node& node) const;
    bool is_repeatable(const Node& node) const;
    void find_what_stays_inside();
    void add_step(const Node& node);
    void add_op(const Node& node, memory::RematStep& step) const;
    void add_kernel(const Node& node, memory::RematStep& step) const;
    double bytes_in_a_kernel(const Node& node) const;
    std::vector<uint32_t> donated_operands(const Node& node) const;
    void keep_inputs_until_no_step_can_fail();

    const Graph& graph_;
    const PipelineOptions& options_;
    const Recomputes what_;
    const bool has_transients_, has_fetches_;
    const Costs costs_;
    // By value of the graph: element-wise nodes alone make it and read it.
    std::vector<bool> stays_inside_;
    std::vector<uint32_t> storage_;  // by value of the graph
    std::set<ValueId> outputs_;
    uint32_t unit_ = 0;  // the last group of gathers that has begun
    bool in_gathers_ = false;
};

}  // namespace megjit::jit
