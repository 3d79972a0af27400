// backends/cuda/products/cudnn_plan.h -- the execution plan of a graph for a described card: by the
// library's heuristics, or from the cache on disk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/products/card.h"
#include "backends/cuda/products/cudnn_graph.h"

namespace megjit::cuda::cudnn {

// What a plan may do.
struct Limits {
    size_t workspace_bytes = 0;
    bool tf32 = false;  // else products of float32 are strict
    bool deterministic = false;
};

using GraphRef = std::shared_ptr<const std::vector<Descriptor>>;

class Plan {
public:
    // `parts`: the plan, and before it what it was made of. The graph lives as long as the plan.
    Plan(std::vector<Descriptor> parts, std::string engine, GraphRef graph);

    size_t workspace_bytes() const { return workspace_bytes_; }
    const std::string& engine() const { return engine_; }  // "engine 38"
    std::string text() const { return parts_.back().text(kPlanText); }  // with its code
    // `pointers` of the tensors whose ids are given: addresses, and for numbers where they are.
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

    // The first proposal that may be used and can be built; from the cache, where it was built
    // before or found by search. Null, with the reason, where there is none.
    PlanRef plan(const Graph& graph, std::string* why_not) const;
    // The first `count` of them, not from the cache.
    std::vector<PlanRef> proposals(const Graph& graph, size_t count, std::string* why_not) const;

    // What a search by timing found.
    bool is_chosen(const Graph& graph) const;
    void choose(const Graph& graph, const Plan& plan) const;

private:
    struct Tally;  // of what became of the library's proposals
    // Null where it may not be used, or cannot be built.
    PlanRef build(const GraphRef& graph, Descriptor config, bool is_strict, Tally& tally) const;
    bool may_use(const Descriptor& engine, bool is_strict) const;
    std::string key(const Graph& graph, bool chosen) const;
    PlanRef load(const std::string& key) const;
    PlanRef read(const std::string& entry) const;
    // A plan that was made without a handle is run as the library reads it from its text, as in
    // every later process.
    PlanRef from_text(const PlanRef& plan) const;
    void store(const std::string& key, const Plan& plan) const;

    const Library& library_;
    Limits limits_;
    std::string card_key_, card_json_;
};

}  // namespace megjit::cuda::cudnn
