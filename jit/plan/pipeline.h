// jit/plan/pipeline.h -- which passes run at which opt_level, in one table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/plan/passes/passes.h"

namespace megjit::jit {

struct Pass {
    std::string_view name;  // for MEGJIT_DUMP and MEGJIT_SKIP
    int level = 1;  // runs from this opt_level on
    Graph (*run)(Graph, const PipelineOptions&) = nullptr;
    bool keeps_bits = false;  // results stay the same bit for bit: runs under numerics="exact" too
    bool generates = false;  // serves code generation: runs below its level when that is turned on
    std::string_view why_here;
};
std::span<const Pass> pipeline();

// Runs the passes of the level; the verifier follows each one when MEGJIT_CHECK is set, and names
// the pass that broke the graph.
Graph run_pipeline(Graph graph, const PipelineOptions& options);

// What a pass that does not keep every bit has rewritten.
struct BitChange {
    std::string_view pass;
    std::vector<std::string> ops = {};  // "true_div at train.py:41"; each once, sorted
};
// In the order of the passes, only those that changed something; no plan of memory is made.
std::vector<BitChange> bit_changes(Graph graph, const PipelineOptions& options);

// These run parts: before the pass of that name, from it on, or from `first` on before `end`.
Graph run_passes_before(std::string_view pass, Graph graph, const PipelineOptions& options);
Graph run_passes_from(std::string_view pass, Graph graph, const PipelineOptions& options);
Graph run_passes_between(std::string_view first, std::string_view end, Graph graph,
                         const PipelineOptions& options);
// No pass before the first depends on the plan of recomputation; passes before the second depend
// only on a plan of ops as recorded. Passes from there on run for each plan that is tried.
constexpr std::string_view kFirstWithPlan = "rematerialize_whole";
constexpr std::string_view kFirstWithOtherPlan = "rematerialize";

}  // namespace megjit::jit
