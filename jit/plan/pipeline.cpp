#include "jit/plan/pipeline.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "jit/plan/passes/passes.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/unknown_name.h"

namespace megjit::jit {
namespace {

template <Graph (*pass)(Graph)>
Graph plain(Graph graph, const PipelineOptions&) {
    return pass(std::move(graph));
}

constexpr Pass kPipeline[] = {
    {"drop_dead", 1, plain<drop_dead>, true, false,
     "first: most of what a trace records for shapes is never read"},
    {"fold_constants", 1, plain<fold_constants>, true, false,
     "before simplify: identities look for constants"},
    {"simplify", 1, plain<simplify>, true, false,
     "before dedup: equal expressions become equal nodes"},
    {"dedup", 2, plain<dedup>, true, false,
     "before fuse: a value computed twice must not become two kernels"},
    {"cancel", 1, plain<cancel>, false, false,
     "after simplify: casts and numbers that do nothing no longer stand between a pair"},
    {"mask_pooled", 2, plain<mask_pooled>, true, false,
     "after dedup: pooling and its gradient read one value; before order_steps: what is no longer read needs no plan"},
    {"attend", 3, plain<attend>, false, false,
     "after dedup: each value of the pattern is one node; before order_steps: what attention does not keep needs no plan"},
    {"turn_factors", 3, plain<turn_factors>, false, false,
     "after attend, which looks for products as they are written; before order_steps: copies that nobody makes need no plan"},
    {"begin_exchanges", 1, plain<begin_exchanges>, true, false,
     "before order_steps, to which the order of exchanges is given"},
    {"offload", 0, offload, true, false,
     "before order_steps, to which what was fetched is a value like others"},
    {"order_steps", 0, order_steps, true, false,
     "after dedup, which would join again what is computed twice; before expand: marks are of ops as recorded"},
    {"rematerialize_whole", 0, rematerialize_whole, true, false,
     "before expand: a normalization runs again as a whole, and as one op it keeps less than in parts"},
    {"join_slices", 3, plain<join_slices>, false, false,
     "after dedup: the zeros are one node; before fuse, which would take the sums"},
    {"place_heads", 3, plain<place_heads>, true, false,
     "after join_slices, which sets gradients in one tensor; before expand: what attention no longer needs is not written out"},
    {"expand", 3, expand, false, true,
     "after dedup: what it writes twice on purpose must not be joined again"},
    {"part_rows", 3, plain<part_rows>, false, false,
     "after expand: losses are rows then; before optimize_subgraphs, which makes kernels of a part"},
    {"pick_operands", 3, plain<pick_operands>, true, false,
     "after expand, which writes picks as sums, and part_rows, which knows them; before fuse: each pass over a row costs"},
    {"optimize_subgraphs", 1, optimize_subgraphs, true, false,
     "after expand, which writes loops; which kernels they hold is for no later pass"},
    {"fold_scales", 3, fold_scales, false, false,
     "before fuse_epilogues: the shift becomes a bias"},
    {"assign_layouts", 3, plain<assign_layouts>, false, false,
     "before fuse: a group has one layout"},
    {"align_rows", 3, align_rows, true, false,
     "after part_rows, which knows logits as they were recorded; before fuse, whose kernels read parts of rows"},
    {"fuse_epilogues", 3, fuse_epilogues, true, false,
     "after assign_layouts: an addend lies like the product; before fuse, which takes the rest"},
    {"fuse_half_biases", 3, fuse_half_biases, false, false,
     "after assign_layouts, as fuse_epilogues, which keeps the bits and so stands alone"},
    {"fuse_masks", 3, fuse_masks, false, false,
     "after mask_pooled, which says where masks stand, and assign_layouts, as fuse_epilogues"},
    {"join_sums", 3, join_sums, false, false,
     "after expand, which writes normalizations as sums; before fuse, which would take them"},
    {"join_stats", 3, join_stats, false, false,
     "after expand, which writes a norm as its statistics, and assign_layouts; before fuse, which would take them"},
    {"join_gradient_sums", 3, join_gradient_sums, false, false,
     "after fuse_masks: sums are behind the mask of a residual's gradient; before fuse, which would take them"},
    {"fuse_relu", 3, fuse_relu, false, false, "after fuse_epilogues: relu is the last step"},
    {"bind_weights", 3, bind_weights, false, false,
     "after fuse_relu: packing depends on the whole epilogue; before rematerialize, which has every op made ready, and fuse: the prologue has no kernels"},
    {"rematerialize", 0, rematerialize, true, false,
     "after all that decides layouts, and so workspaces; before fuse, which takes what runs again into its readers"},
    {"recompute_cheap", 3, recompute_cheap, true, false,
     "after expand: of a normalization only what is element-wise runs again; before fuse, which makes kernels of it"},
    {"guard_updates", 0, guard_updates, true, false,
     "after what moves ops: nothing that may fail comes later; before fuse, which makes it a part of the update"},
    {"keep_copies", 3, keep_copies, true, true,
     "after guard_updates: what is copied is what a failure leaves; before fuse, which makes the copy a part of the update"},
    {"map_rows", 3, plain<map_rows>, true, true,
     "after guard_updates: its own writes at places do not fail; before fuse, whose kernels read rows by a map"},
    {"move_views", 3, plain<move_views>, true, true,
     "after fuse_epilogues, which looks for what follows a product; before fuse"},
    {"fuse", 3, fuse, true, true, "last: only the chains that remain are worth a kernel"},
    {"rematerialize_units", 0, rematerialize_units, true, false,
     "after fuse: what is planned is what runs; before batch: each launch is kept or not by itself"},
    {"spill", 0, spill, true, false,
     "after what makes kernels: what runs, and when, is decided; before batch: updates whose operands are in memory one after the other are no step"},
    {"gather_casts", 3, gather_casts, true, true,
     "after what plans lifetimes; before batch, which makes a step of them"},
    {"batch", 3, plain<batch>, true, true,
     "after what makes kernels: no node may come between launches any more"},
    {"prefetch", 0, prefetch, true, false,
     "after all: when a transfer begins hangs on what runs beside it"},
};

void dump(const runtime::Debug& debug, std::string_view stage, const Graph& graph) {
    debug.dump(stage, {{".txt", [&] { return print(graph); }},
                       {".dot", [&] { return to_dot(graph); }},
                       {".html", [&] { return to_html(graph, stage); }}});
}

// Throws UserError for an unknown name, which would have no effect. what: the variable and what it
// names.
void check_names(std::string_view what, std::span<const std::string> names,
                 std::span<const std::string_view> known) {
    for (const std::string& name : names) {
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        const std::string_view meant = runtime::closest(name, known);
        std::string all;
        for (const std::string_view each : known) all.append(all.empty() ? "" : ", ").append(each);
        runtime::user_error({.what = runtime::cat(what, " '", name, "'"),
                             .why = "valid are " + all,
                             .fix = meant.empty() ? "" : runtime::cat("write ", meant)});
    }
}

void check_names(const runtime::Debug& debug) {
    if (debug.skipped.empty() && debug.dumped.empty()) return;
    std::vector<std::string_view> names;
    for (const Pass& pass : kPipeline) names.push_back(pass.name);
    check_names("MEGJIT_SKIP: there is no pass", debug.skipped, names);
    names.insert(names.end(), {"trace", "kernel", "plan", "file", "all"});
    check_names("MEGJIT_DUMP: there is no stage", debug.dumped, names);
}

const Pass* pass_of(std::string_view name) {
    return std::ranges::find(kPipeline, name, &Pass::name);
}

bool runs(const Pass& pass, const PipelineOptions& options) {
    const int level = pass.generates && options.fuse ? 0 : pass.level;
    return options.opt_level >= level && (pass.keeps_bits || !options.exact) &&
           !runtime::debug().skips(pass.name);
}

// What a pass made wrong in a sound graph; "": nothing. was_live: no node of that graph was dead.
std::string fault_of_result(const Graph& graph, bool was_live) {
    if (std::string fault = fault_of(graph); !fault.empty()) return fault;
    const Node* const dead = was_live ? dead_node(graph) : nullptr;
    if (!dead) return "";
    return runtime::cat("nobody needs ", dead->op ? dead->op->name : "a constant or kernel", " %",
                        at(dead->outputs[0]), ", which it leaves");
}

Graph run_passes(std::span<const Pass> passes, Graph graph, const PipelineOptions& options) {
    const runtime::Debug& debug = runtime::debug();
    for (const Pass& pass : passes) {
        if (!runs(pass, options)) continue;
        const bool was_live = debug.check && !dead_node(graph);
        graph = pass.run(std::move(graph), options);
        if (debug.check)
            if (std::string fault = fault_of_result(graph, was_live); !fault.empty())
                throw runtime::InternalError(
                    runtime::cat("pass ", pass.name, " broke the graph: ", fault));
        dump(debug, pass.name, graph);
    }
    return graph;
}

std::set<std::string> ops_of(const Graph& graph) {
    std::set<std::string> ops;
    for (const Node& node : graph.nodes())
        if (node.kind == NodeKind::op)
            ops.insert(node.where.empty() ? node.op->name
                                          : runtime::cat(node.op->name, " at ", node.where));
    return ops;
}

// Products that kernels compute, which add their terms in an order of their own.
std::set<std::string> contractions_of(const Graph& graph) {
    std::set<std::string> ops;
    for (const Node& node : graph.nodes())
        for (const std::string& op : node.ops)
            if (runtime::find_op(op).contraction) ops.insert(runtime::cat(op, " at ", node.where));
    return ops;
}

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

Graph run_passes_before(std::string_view pass, Graph graph, const PipelineOptions& options) {
    check_names(runtime::debug());
    dump(runtime::debug(), "trace", graph);
    return run_passes({std::begin(kPipeline), pass_of(pass)}, std::move(graph), options);
}

Graph run_passes_between(std::string_view first, std::string_view end, Graph graph,
                         const PipelineOptions& options) {
    return run_passes({pass_of(first), pass_of(end)}, std::move(graph), options);
}

Graph run_passes_from(std::string_view pass, Graph graph, const PipelineOptions& options) {
    return run_passes_between(pass, {}, std::move(graph), options);
}

Graph run_pipeline(Graph graph, const PipelineOptions& options) {
    return run_passes_before({}, std::move(graph), options);
}

std::vector<BitChange> bit_changes(Graph graph, const PipelineOptions& options) {
    std::vector<BitChange> changes;
    for (const Pass& pass : pipeline()) {
        if (!runs(pass, options) || pass.name == "order_steps") continue;
        Graph after = pass.run(graph, options);
        if (pass.name == "fuse") {  // all else in it, and the later passes, keep the bits
            const std::set<std::string> ops = contractions_of(after);
            if (!ops.empty()) changes.push_back({pass.name, {ops.begin(), ops.end()}});
            break;
        }
        if (!pass.keeps_bits && print(after) != print(graph)) {
            const std::set<std::string> old = ops_of(graph), now = ops_of(after);
            BitChange& change = changes.emplace_back(pass.name);
            std::set_difference(old.begin(), old.end(), now.begin(), now.end(),
                                std::back_inserter(change.ops));
        }
        graph = std::move(after);
    }
    return changes;
}

}  // namespace megjit::jit
