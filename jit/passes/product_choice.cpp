#include "jit/passes/product_choice.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "codegen/tuning.h"
#include "jit/graph_program.h"
#include "jit/passes/fusion_group.h"
#include "jit/pipeline.h"
#include "runtime/host/error.h"
#include "runtime/ops/known.h"

namespace megjit::jit {
namespace {

using codegen::Timing;
using codegen::TuneMode;
using runtime::cat;

// Could tiles of rows and columns compute it (codegen/tiles.h)?
bool has_tiles(const Graph& graph, const Node& node) {
    constexpr int64_t kLeastRows = 4, kLeastColumns = 8;
    if (!node.op || !node.op->contraction || !graph.device().is_host()) return false;
    for (const ValueId value : {node.inputs[0], node.inputs[1], node.outputs[0]})
        if (const Type& type = graph.type(value); type.dtype != runtime::DType::f32 ||
                                                  type.layout != runtime::Layout::row_major ||
                                                  graph.producer(value).kind == NodeKind::constant)
            return false;
    const auto [space, strides] = contraction_of(graph, node);
    const int rank = space.rank();
    if (rank < 3 || space.numel() == 0) return false;
    return strides[1][static_cast<size_t>(rank) - 2] == 1 && space[rank - 3] >= kLeastRows &&
           space[rank - 2] >= kLeastColumns && space[rank - 1] > 1;
}

// The second factor is read where it lies, a page for each index of the sum: twice the time of a
// packed one where these are many, at AVX2.
bool is_short(const runtime::Contraction& contraction) {
    constexpr int64_t kLongestSum = 1024, kMostElements = 128 << 10;
    const int rank = contraction.space.rank();
    const int64_t columns = contraction.space[rank - 2], sum = contraction.space[rank - 1];
    return sum <= kLongestSum && sum * columns <= kMostElements;
}

// What the times hang on: rows up to the next power of two, so that one measurement serves sizes
// that are close to each other.
std::string problem_of(const runtime::Contraction& contraction) {
    const auto& [space, strides] = contraction;
    const int rank = space.rank();
    std::string text = "dots of float32";
    for (int axis = 0; axis < rank; ++axis) {
        const auto extent = static_cast<uint64_t>(space[axis]);
        const bool is_rows = axis == rank - 3;
        text +=
            cat(axis ? " x " : " ", is_rows ? "<=" : "", is_rows ? std::bit_ceil(extent) : extent);
    }
    const size_t rows = static_cast<size_t>(rank) - 3, sum = static_cast<size_t>(rank) - 1;
    text += strides[0][sum] <= strides[0][rows] ? ", rows lie along the sum" : ", rows lie across";
    for (size_t axis = 0; axis < rows; ++axis)
        text +=
            cat(", ", strides[0][axis] ? "many" : "one", " by ", strides[1][axis] ? "many" : "one");
    return text;
}

// The product and an element-wise op behind it, which no library takes.
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
        std::fill_n(tensor->as<float>(), type.numel(), 0.5f);  // no denormal numbers
        return tensor;
    }

    GraphProgram program_;
    runtime::Device& device_;
    std::vector<TensorRef> inputs_;
    TensorRef output_, scratch_;
};

// In turns, the best of each, until neither gets better: what else runs on the machine disturbs
// both alike.
Timing measured(const Graph& graph, const Node& product, const PipelineOptions& options) {
    using Clock = std::chrono::steady_clock;
    constexpr int kCalmRounds = 8, kMostRuns = 100;
    constexpr double kSecondsOfRound = 1e-3, kBetter = 0.98;
    constexpr std::chrono::seconds kLongest{1};
    const Graph own = alone(graph, product);
    const Candidate library(own, options, Products::library),
        generated(own, options, Products::generated);
    Timing best{library.run(1), generated.run(1)};
    const int runs =
        std::clamp(static_cast<int>(kSecondsOfRound / std::max(best.library_s, best.generated_s)),
                   1, kMostRuns);
    const Clock::time_point end = Clock::now() + kLongest;
    for (int calm = 0; calm < kCalmRounds && Clock::now() < end; ++calm)
        for (const auto& [candidate, least] :
             {std::pair(&library, &best.library_s), std::pair(&generated, &best.generated_s)}) {
            const double seconds = candidate->run(runs);
            if (seconds < kBetter * *least) calm = 0;
            *least = std::min(*least, seconds);
        }
    return best;
}

std::optional<Timing> timing_of(const Graph& graph, const Node& product,
                                const PipelineOptions& options) {
    const TuneMode mode = codegen::tune_mode();
    if (mode == TuneMode::off) return {};
    codegen::Timings& timings = codegen::Timings::instance();
    const std::string problem = problem_of(contraction_of(graph, product));
    if (auto known = timings.find(problem); known || mode == TuneMode::cached) return known;
    try {
        timings.keep(problem, measured(graph, product, options));
    } catch (const runtime::Error&) {}  // no memory, or no compiler: the model decides
    return timings.find(problem);
}

std::string in_ms(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
    return text;
}

}  // namespace

ProductChoice choose_product(const Graph& graph, const Node& node, const PipelineOptions& options) {
    if (!has_tiles(graph, node) || options.exact || !options.fuse_reduce) return {};
    if (options.products != Products::measured)
        return {options.products == Products::generated, "as asked for"};
    if (const auto timing = timing_of(graph, node, options))
        return {timing->generated_wins(), cat("measured: generated ", in_ms(timing->generated_s),
                                              ", library ", in_ms(timing->library_s))};
    if (is_short(contraction_of(graph, node))) return {true, "few weights and a short sum"};
    return {false, "many weights or a long sum"};
}

}  // namespace megjit::jit
