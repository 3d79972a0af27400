// backends/cuda/products/cudnn_plan.h -- the execution plan of a graph for a described card: from
// the library's heuristics, or from the cache on disk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/products/card.h"
#include "backends/cuda/products/cudnn_graph.h"

namespace megjit::cuda::cudnn {

// What a plan is allowed to do.
struct Limits {
    size_t workspace_bytes = 0;
    bool tf32 = false;  // if not, products of float32 are strict
    bool deterministic = false;
};

using GraphRef = std::shared_ptr<const std::vector<Descriptor>>;

class Plan {
public:
    // `parts`: the descriptors that the plan was made of, and then the plan. The graph lives as
    // long as the plan.
    Plan(std::vector<Descriptor> parts, std::string engine, GraphRef graph);

    size_t workspace_bytes() const { return workspace_bytes_; }
    const std::string& engine() const { return engine_; }  // "engine 38"
    std::string text() const { return parts_.back().text(kPlanText); }  // includes the plan's code
    // `pointers` are the addresses of the tensors whose ids are given; for a number, where the host
    // has it.
    void run(Handle handle, const std::vector<int64_t>& ids, const std::vector<void*>& pointers,
             void* workspace) const;

private:
    GraphRef graph_;  // null where the plan came from the cache
    std::vector<Descriptor> parts_;
    size_t workspace_bytes_ = 0;
    std::string engine_;
};
using PlanRef = std::shared_ptr<const Plan>;

class Planner {
public:
    Planner(const Library& library, const CardDescription& card, Limits limits);

    // The first proposal that may be used and can be built; or a plan from the cache, where one was
    // built before or found by search. Null, with the reason, where there is none.
    PlanRef plan(const Graph& graph, std::string* why_not) const;
    // The first `count` usable proposals, not from the cache.
    std::vector<PlanRef> proposals(const Graph& graph, size_t count, std::string* why_not) const;

    // Did a search by timing choose the graph's plan?
    bool is_chosen(const Graph& graph) const;
    void choose(const Graph& graph, const Plan& plan) const;

private:
    struct Tally;  // counts what became of the library's proposals
    // Null where the plan may not be used, or cannot be built.
    PlanRef build(const GraphRef& graph, Descriptor config, bool is_strict, Tally& tally) const;
    bool may_use(const Descriptor& engine, bool is_strict) const;
    std::string key(const Graph& graph, bool chosen) const;
    PlanRef load(const std::string& key) const;
    PlanRef read(const std::string& entry) const;
    // Reads a plan that was made without a handle from its text, as every later process does.
    PlanRef from_text(const PlanRef& plan) const;
    void store(const std::string& key, const Plan& plan) const;

    const Library& library_;
    Limits limits_;
    std::string card_key_, card_json_;
};

}  // namespace megjit::cuda::cudnn
