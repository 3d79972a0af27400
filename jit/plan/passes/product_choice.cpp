#include "jit/plan/passes/product_choice.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <list>
#include <tuple>

#include "jit/plan/costs.h"
#include "jit/plan/graph_program.h"
#include "jit/plan/passes/fusion_group.h"
#include "jit/plan/pipeline.h"
#include "runtime/host/error.h"
#include "runtime/host/number_text.h"
#include "runtime/ops/known.h"

namespace megjit::jit {
namespace {

using codegen::Timing;
using runtime::cat;

// What could compute it beside the library: tiles, where neighboring columns lie side by side, and
// panels, if there are enough rows to pack them for (codegen/tiles.h). On a GPU both are tiles in
// shared memory; panels take columns whatever way they lie.
std::vector<Products> generated_ways(const Graph& graph, const Node& node,
                                     const PipelineOptions& options) {
    constexpr int64_t kLeastRows = 4, kLeastColumns = 8, kLeastRowsOfPanels = 16;
    if (!is_product_of_floats(graph, node)) return {};
    for (const ValueId value : node.inputs)
        if (graph.producer(value).kind == NodeKind::constant) return {};
    const auto [space, strides] = contraction_of(graph, node);
    const int rank = space.rank();
    if (rank < 3 || space.numel() == 0) return {};
    const int64_t rows = space[rank - 3], columns = space[rank - 2];
    const bool is_host = graph.device().is_host();
    if (!is_host && options.products == Products::generated) return {Products::panels};
    if (rows < kLeastRows || columns < kLeastColumns || space[rank - 1] < 2) return {};
    if (!is_host) return {Products::panels};
    std::vector<Products> ways;
    if (strides[1][static_cast<size_t>(rank) - 2] == 1) ways.push_back(Products::tiles);
    if (rows >= kLeastRowsOfPanels) ways.push_back(Products::panels);
    return ways;
}

std::string name_of(Products way) {
    constexpr const char* kNames[] = {"", "library", "tiles", "panels", ""};
    return kNames[static_cast<int>(way)];
}

// What the times hang on: rows up to the next power of two, so that one measurement serves sizes
// that are close to each other.
std::string problem_of(const Graph& graph, const Node& product) {
    const auto [space, strides] = contraction_of(graph, product);
    const int rank = space.rank();
    std::string text = cat("dots of ", runtime::info(graph.type(product.inputs[0]).dtype).name);
    for (int axis = 0; axis < rank; ++axis) {
        const auto extent = static_cast<uint64_t>(space[axis]);
        const bool is_rows = axis == rank - 3;
        text +=
            cat(axis ? " x " : " ", is_rows ? "<=" : "", is_rows ? std::bit_ceil(extent) : extent);
    }
    const size_t rows = static_cast<size_t>(rank) - 3, sum = static_cast<size_t>(rank) - 1;
    const auto lie = [&](size_t factor, size_t axis) {
        return strides[factor][sum] <= strides[factor][axis] ? " along the sum" : " across";
    };
    text += cat(", rows lie", lie(0, rows), ", columns", lie(1, rows + 1));
    for (size_t axis = 0; axis < rows; ++axis)
        text +=
            cat(", ", strides[0][axis] ? "many" : "one", " by ", strides[1][axis] ? "many" : "one");
    return text;
}

// The product and an element-wise op after it, which no library takes.
Graph alone(const Graph& graph, const Node& product) {
    Graph made;
    made.set_device(graph.device());
    Node node{.kind = NodeKind::op, .op = product.op, .attrs = product.attrs};
    for (size_t i = 0; i < product.inputs.size(); ++i)
        node.inputs.push_back(made.add_input(graph.type(product.inputs[i]), static_cast<int>(i)));
    const Type type = graph.type(product.outputs[0]);
    const std::vector<ValueId> result = made.add(std::move(node), {{type}});
    made.outputs =
        made.add({.kind = NodeKind::op, .op = &runtime::ops::square(), .inputs = result}, {{type}});
    return made;
}

// A graph with memory for its operands, to be run again and again.
class Candidate {
public:
    Candidate(const Graph& graph, PipelineOptions options, Products products)
        : program_(run_pipeline(Graph(graph), with(std::move(options), products))),
          device_(graph.device()) {
        for (const Node& node : graph.nodes())
            if (node.kind == NodeKind::input)
                inputs_.push_back(filled(graph.type(node.outputs[0])));
        output_ = runtime::empty_tensor(device_, graph.type(graph.outputs[0]));
        scratch_ = runtime::empty_tensor(
            device_, {runtime::DType::u8, {static_cast<int64_t>(program_.workspace_bytes()) + 1}});
        run(1);  // makes its code
    }

    // Seconds of a run.
    double run(int times) const {
        std::vector<void*> inputs;
        for (const TensorRef& input : inputs_) inputs.push_back(input->data());
        void* const output = output_->data();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < times; ++i)
            program_.enqueue(device_.stream(), inputs.data(), &output, scratch_->data());
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
               times;
    }

private:
    static PipelineOptions with(PipelineOptions options, Products products) {
        return {.opt_level = 3,
                .backend = std::move(options.backend),
                .products = products,
                .device = options.device};
    }
    TensorRef filled(const Type& type) const {
        TensorRef tensor = runtime::empty_tensor(device_, type);
        std::memset(tensor->data(), 0x3f, type.bytes());  // about 1 in any dtype, not denormal
        return tensor;
    }

    GraphProgram program_;
    runtime::Device& device_;
    std::vector<TensorRef> inputs_;
    TensorRef output_, scratch_;
};

// In turns, the best of each, until none gets better: what else runs on the machine disturbs all
// alike.
Timing measured(const Graph& graph, const Node& product, const PipelineOptions& options,
                const std::vector<Products>& ways) {
    using Clock = std::chrono::steady_clock;
    constexpr int kCalmRounds = 8, kMostRuns = 100;
    constexpr double kSecondsOfRound = 1e-3, kBetter = 0.98;
    constexpr std::chrono::seconds kLongest{1};
    const Graph own = alone(graph, product);
    std::list<std::pair<Candidate, double*>> candidates;
    Timing best;
    double slowest = 0;
    const auto add = [&](Products way) {
        const Candidate& made =
            candidates
                .emplace_back(std::piecewise_construct, std::forward_as_tuple(own, options, way),
                              std::forward_as_tuple(&best[name_of(way)]))
                .first;
        *candidates.back().second = made.run(1);
        slowest = std::max(slowest, *candidates.back().second);
    };
    add(Products::library);
    std::ranges::for_each(ways, add);
    const int runs = std::clamp(static_cast<int>(kSecondsOfRound / slowest), 1, kMostRuns);
    const Clock::time_point end = Clock::now() + kLongest;
    for (int calm = 0; calm < kCalmRounds && Clock::now() < end; ++calm)
        for (const auto& [candidate, least] : candidates) {
            const double seconds = candidate.run(runs);
            if (seconds < kBetter * *least) calm = 0;
            *least = std::min(*least, seconds);
        }
    return best;
}

// A CPU's library may have instructions for the dtype that no kernel has.
bool is_for_library(const Graph& graph, const Node& product) {
    const std::vector<Type> inputs = graph.types(product.inputs);
    return graph.device().is_host() &&
           graph.device().computes_whole({*product.op, product.attrs, inputs});
}

using Estimates = std::map<std::string, Estimate>;  // by who computes it

// What was measured counts before the model, which compares the library with one kernel.
Estimates estimates_of(const Graph& graph, const Node& product, const PipelineOptions& options,
                       const std::vector<Products>& ways) {
    runtime::Device& device = graph.device();
    const auto measure = [&] { return measured(graph, product, options, ways); };
    Estimates estimates =
        device.is_host() ? Costs::tuned(problem_of(graph, product), measure) : Estimates();
    if (!estimates.empty()) return estimates;
    const Costs costs(device);
    const auto add = [&](Products by) {
        if (const auto cost = costs.product(contraction_of(graph, product),
                                            graph.type(product.outputs[0]), name_of(by)))
            estimates.emplace(name_of(by), *cost);
    };
    add(Products::library);
    if (!is_for_library(graph, product)) add(ways.front());
    return estimates;
}

std::string why(const Graph& graph, const Node& product, const Estimates& estimates, Products by) {
    if (estimates.begin()->second.source == CostSource::tuning) {
        std::string text;
        for (const auto& [name, cost] : estimates)
            text += cat(text.empty() ? "measured: " : ", ", name, " ",
                        runtime::number_text(cost.seconds * 1e3, 3), " ms");
        return text;
    }
    const bool is_library = by == Products::library;
    if (!graph.device().is_host())
        return is_library ? "a long sum" : "a short sum beside a result that stays";
    if (by == Products::tiles) return "few weights and a short sum";
    if (by == Products::panels) return "few rows, weights and terms";
    return is_for_library(graph, product) ? "the library has instructions for this dtype"
                                          : "many weights or a long sum";
}

}  // namespace

ProductChoice choose_product(const Graph& graph, const Node& node, const PipelineOptions& options) {
    if (options.exact || !options.fuse_reduce) return {};
    const std::vector<Products> ways = generated_ways(graph, node, options);
    const auto can = [&](Products way) { return std::ranges::find(ways, way) != ways.end(); };
    if (ways.empty()) return {};
    if (options.products == Products::generated) {
        const bool is_tiled =
            can(Products::tiles) &&
            (!can(Products::panels) ||
             Costs(graph.device())
                 .product(contraction_of(graph, node), graph.type(node.outputs[0]), "tiles"));
        return {is_tiled ? Products::tiles : Products::panels, "as asked for"};
    }
    if (options.products != Products::measured)
        return {can(options.products) ? options.products : Products::library, "as asked for"};
    const Estimates estimates = estimates_of(graph, node, options, ways);
    const auto cheapest = std::ranges::min_element(
        estimates, {}, [](const auto& entry) { return entry.second.seconds; });
    const auto way =
        std::ranges::find_if(ways, [&](Products each) { return name_of(each) == cheapest->first; });
    const Products by = way == ways.end() ? Products::library : *way;
    return {by, why(graph, node, estimates, by)};
}

}  // namespace megjit::jit
