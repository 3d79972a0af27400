// jit/pipeline.h -- which passes run at which opt_level, in one table.
#pragma once

#include <span>
#include <string_view>

#include "jit/graph.h"

namespace megjit::jit {

struct Pass {
    std::string_view name;  // for MEGJIT_DUMP and MEGJIT_SKIP
    int level = 1;          // runs from this opt_level on
    Graph (*run)(const Graph&) = nullptr;
    std::string_view why_here;
};
std::span<const Pass> pipeline();

struct PipelineOptions {
    int opt_level = 2;
    bool fuse = false;  // GraphOptimizationConfig turned code generation on below level 3
};

// Runs the passes of the level; the verifier follows each one when MEGJIT_CHECK is set, and names
// the pass that broke the graph.
Graph run_pipeline(Graph graph, const PipelineOptions& options);

}  // namespace megjit::jit
