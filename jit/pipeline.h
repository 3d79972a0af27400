// jit/pipeline.h -- which passes run at which opt_level, in one table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/passes/passes.h"

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
// In the order of the passes, those alone that changed something; no plan of memory is made.
std::vector<BitChange> bit_changes(Graph graph, const PipelineOptions& options);

// The same in parts: before the pass of that name, from it on, from the first and before the end.
Graph run_passes_before(std::string_view pass, Graph graph, const PipelineOptions& options);
Graph run_passes_from(std::string_view pass, Graph graph, const PipelineOptions& options);
Graph run_passes_between(std::string_view first, std::string_view end, Graph graph,
                         const PipelineOptions& options);
// Before the first nothing hangs on the plan of recomputation; before the second only what hangs on
// a plan of ops as recorded. From there on passes run for each plan that is tried.
constexpr std::string_view kFirstWithPlan = "rematerialize_whole";
constexpr std::string_view kFirstWithOtherPlan = "rematerialize";

}  // namespace megjit::jit
