// The statistics of a batch norm from the convolution before it: conv_stats gives, beside its
// result, sums of the elements and of their squares by channel, which the library adds up while it
// has the result in registers. A convolution takes part where
//   1. its result is of halves and channels-last, on a GPU;
//   2. mean and variance of the result, or of its cast to float32, are taken over all axes but the
//   channels';
//   3. the library plans it: what conv_stats is made of reads the result again, and in more
//   kernels; and runs need not have equal bits, for it does not say in which order it adds.
// The sums are float32: what they lose of the variance, where the mean is large beside it, is less
// than what the elements lost when they were rounded to halves. Float32 has no such excuse.
#include <algorithm>
#include <optional>

#include "jit/plan/passes/passes.h"
#include "runtime/host/product_rules.h"

namespace megjit::jit {
namespace {

using runtime::Reduce;
using Ints = std::vector<int64_t>;

class StatsJoiner {
public:
    explicit StatsJoiner(const Graph& graph)
        : rewrite_(graph), sums_(graph.value_count()), is_asked_for_(graph.value_count()) {
        std::vector<uint32_t> kinds(graph.value_count());
        for (const Node& node : graph.nodes())
            if (takes_stats(node))
                kinds[at(origin_of(node.inputs[0]))] |= node.op->reduction == Reduce::mean ? 1 : 2;
        for (const Node& node : graph.nodes())
            if (gives_halves(node) && kinds[at(node.outputs[0])] == 3)
                is_asked_for_[at(node.outputs[0])] = is_planned(node);
    }

    bool has_work() const { return std::ranges::find(is_asked_for_, true) != is_asked_for_.end(); }
    Graph run() {
        for (const Node& node : rewrite_.from.nodes())
            if (!place_product(node) && !place_statistic(node) && !place_reshape(node))
                rewrite_.copy(node);
        return drop_dead(rewrite_.finish());
    }

private:
    static constexpr auto kNone = static_cast<ValueId>(~0u);
    // Values of the new graph; the statistics as they are asked for first.
    struct Sums {
        ValueId elements = {}, squares = {}, mean = kNone, variance = kNone;
    };

    const Type& type(ValueId value) const { return rewrite_.from.type(value); }

    ValueId origin_of(ValueId value) const {
        const Node& node = rewrite_.from.producer(value);
        return node.op == &ops::cast() ? node.inputs[0] : value;
    }

    // Condition 1.
    bool gives_halves(const Node& node) const {
        if (node.op != &ops::conv()) return false;
        const Type& result = type(node.outputs[0]);
        return (result.dtype == runtime::DType::f16 || result.dtype == runtime::DType::bf16) &&
               result.layout == runtime::Layout::channels_last;
    }

    // Condition 3.
    bool is_planned(const Node& node) const {
        const std::vector<Type> operands = rewrite_.from.types(node.inputs);
        return rewrite_.from.device().computes_whole({ops::conv_stats(), node.attrs, operands});
    }

    // Condition 2.
    bool takes_stats(const Node& node) const {
        if (!node.op ||
            (node.op->reduction != Reduce::mean && node.op->reduction != Reduce::variance) ||
            type(node.outputs[0]).dtype != runtime::DType::f32)
            return false;
        const std::vector<Type> operands = rewrite_.from.types(node.inputs);
        const uint32_t all = (1u << operands[0].rank()) - 1;
        return operands[0].rank() >= 3 &&
               runtime::reduced_axes({*node.op, node.attrs, operands}) == (all & ~2u);
    }

    bool place_product(const Node& node) {
        if (!node.op || !is_asked_for_[at(node.outputs[0])]) return false;
        const std::vector<ValueId> made =
            rewrite_.to.add_op(ops::conv_stats(), rewrite_.map(node.inputs), node.attrs, node);
        rewrite_.replace(node.outputs[0], made[0]);
        sums_[at(node.outputs[0])] = Sums{made[1], made[2]};
        return true;
    }

    bool place_statistic(const Node& node) {
        if (!takes_stats(node)) return false;
        std::optional<Sums>& sums = sums_[at(origin_of(node.inputs[0]))];
        if (!sums) return false;
        if (sums->mean == kNone) add_statistics(*sums, node);
        const ValueId result = node.op->reduction == Reduce::mean ? sums->mean : sums->variance;
        rewrite_.replace(node.outputs[0], reshaped(result, type(node.outputs[0]), node));
        return true;
    }

    // mean = sum / n, variance = max(squares / n - mean^2, 0)
    void add_statistics(Sums& sums, const Node& node) {
        const auto make = [&](const OpDef& op, std::vector<ValueId> inputs) {
            return rewrite_.to.make(op, std::move(inputs), {}, node);
        };
        const auto number = [&](double value) {
            return rewrite_.to.add_constant(runtime::scalar_tensor(value, runtime::DType::f32));
        };
        const Type& of = type(node.inputs[0]);
        const ValueId zero = number(0), part = number(static_cast<double>(of.shape[1]) /
                                                      static_cast<double>(of.numel()));
        sums.mean = make(ops::mul(), {sums.elements, part});
        const ValueId variance = make(
            ops::sub(), {make(ops::mul(), {sums.squares, part}), make(ops::square(), {sums.mean})});
        sums.variance = make(ops::where(), {make(ops::less(), {variance, zero}), zero, variance});
    }

    // Kernels by channel have one shape: a reshape to it and back would part them.
    bool place_reshape(const Node& node) {
        if (node.op != &ops::reshape()) return false;
        ValueId origin = rewrite_.map(node.inputs[0]);
        while (rewrite_.to.producer(origin).op == &ops::reshape())
            origin = rewrite_.to.producer(origin).inputs[0];
        if (!(rewrite_.to.type(origin) == type(node.outputs[0]))) return false;
        rewrite_.replace(node.outputs[0], origin);
        return true;
    }
    ValueId reshaped(ValueId value, const Type& to, const Node& node) {
        if (rewrite_.to.type(value) == to) return value;
        return rewrite_.to.make(ops::reshape(), {value}, {Ints(to.shape.begin(), to.shape.end())},
                                node);
    }

    Rewriter rewrite_;
    std::vector<std::optional<Sums>> sums_;  // by old value: those of a convolution's result
    std::vector<bool> is_asked_for_;  // by old value: its mean and its variance are taken
};

}  // namespace

bool libraries_add_up(const Graph& graph, const PipelineOptions& options) {
    return !graph.device().is_host() && options.products != Products::generated &&
           !runtime::product_rules().deterministic;
}

Graph join_stats(Graph graph, const PipelineOptions& options) {
    if (!libraries_add_up(graph, options)) return graph;
    StatsJoiner joiner(graph);
    return joiner.has_work() ? joiner.run() : graph;
}

}  // namespace megjit::jit
