#include "jit/pipeline.h"

#include "jit/passes/passes.h"
#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::jit {
namespace {

constexpr Pass kPipeline[] = {
    {"drop_dead", 1, drop_dead, "first: most of what a trace records for shapes is never read"},
    {"fold_constants", 1, fold_constants, "before simplify: identities look for constants"},
    {"simplify", 1, simplify, "before dedup: equal expressions become equal nodes"},
    {"dedup", 2, dedup, "before fuse: a value computed twice must not become two kernels"},
    {"drop_dead_again", 1, drop_dead, "after the rewrites: what they replaced must not reach a kernel"},
    {"assign_layouts", 3, assign_layouts, "before fuse: a group has one layout"},
    {"fuse", 3, fuse, "last: only the chains that remain are worth a kernel"},
};

void dump(const runtime::Debug& debug, std::string_view stage, const Graph& graph) {
    debug.dump(stage, {{".txt", [&] { return print(graph); }}, {".dot", [&] { return to_dot(graph); }}, {".html", [&] { return to_html(graph, stage); }}});
}

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

Graph run_pipeline(Graph graph, const PipelineOptions& options) {
    const runtime::Debug& debug = runtime::debug();
    dump(debug, "trace", graph);
    for (const Pass& pass : kPipeline) {
        const int level = pass.run == fuse && options.fuse ? 0 : pass.level;
        if (options.opt_level < level || debug.skips(pass.name)) continue;
        graph = pass.run(graph);
        if (debug.check)
            if (std::string fault = fault_of(graph); !fault.empty())
                throw runtime::InternalError(runtime::cat("pass ", pass.name, " broke the graph: ", fault));
        dump(debug, pass.name, graph);
    }
    return graph;
}

}  // namespace megjit::jit
