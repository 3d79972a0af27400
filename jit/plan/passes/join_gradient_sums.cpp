// The sums that the gradient of a batch norm needs, of the norm's gradient dy and of dy times what
// was normalized, from the convolution whose gradient dy is: conv_backward_data_sums adds them up
// while the library has dy in registers. A gradient takes part where
//   1. it is of halves, or tensor cores compute it of float32, and lies channels-last, on a GPU;
//   2. sums of it over all axes but the channels' are taken, one of them times x - mean, where x
//      is like it and there is one mean for each channel;
//   3. x and the means stand before it;
//   4. the library plans it: what conv_backward_data_sums is made of reads dy again; and runs need
//   not have equal bits, for it does not say in which order it adds.
// A mask such as relu's gradient, which alone reads the convolution's gradient, becomes a step of
// it: what is added up is behind the mask. Weights of several taps are brought into channels-last
// order, for cuDNN has such kernels for no other.
// The sums are float32: what they lose is less than what the elements lost when they were rounded,
// or their factors.
#include <algorithm>
#include <map>
#include <optional>

#include "jit/plan/passes/passes.h"
#include "runtime/host/product_rules.h"
#include "runtime/ops/conv.h"

namespace megjit::jit {
namespace {

using runtime::DType;
using runtime::EpilogueKind;
using runtime::Layout;
using runtime::Reduce;
using Ints = std::vector<int64_t>;

class GradientSumsJoiner {
public:
    explicit GradientSumsJoiner(const Graph& graph)
        : rewrite_(graph), readers_(reader_counts(graph)) {
        for (size_t id = 0; id < graph.nodes().size(); ++id) note_sum(static_cast<NodeId>(id));
        for (size_t id = 0; id < graph.nodes().size(); ++id) note_mask(static_cast<NodeId>(id));
        for (size_t id = 0; id < graph.nodes().size(); ++id) find_join(static_cast<NodeId>(id));
    }

    bool has_work() const { return !joins_.empty(); }
    Graph run() {
        for (size_t id = 0; id < rewrite_.from.nodes().size(); ++id) {
            const Node& node = rewrite_.from.nodes()[id];
            const auto join = joins_.find(static_cast<NodeId>(id));
            if (join != joins_.end()) place(node, join->second);
            else if (!is_placed(node)) rewrite_.copy(node);
        }
        return drop_dead(rewrite_.finish());
    }

private:
    // Sums of the gradient times x - mean, for one x and mean. All values are the old graph's.
    struct Product {
        ValueId x = {}, mean = {};
        std::vector<ValueId> results = {};
    };
    struct Sums {
        std::vector<ValueId> plain = {};  // sums of the gradient alone
        std::vector<Product> products = {};
    };
    struct Join {
        std::optional<NodeId> mask = {};
        ValueId gradient = {};  // the mask's result, if there is one
        Node made = {};  // inputs are old values, without those of products
        std::vector<const Product*> products = {};
    };

    const Type& type(ValueId value) const { return rewrite_.from.type(value); }
    NodeId maker(ValueId value) const { return rewrite_.from.value(value).producer; }

    ValueId origin_of(ValueId value) const {
        const Node& node = rewrite_.from.producer(value);
        return node.op == &ops::cast() ? node.inputs[0] : value;
    }

    bool is_sum_by_channel(const Node& node) const {
        if (!node.op || node.op->reduction != Reduce::sum ||
            type(node.outputs[0]).dtype != DType::f32)
            return false;
        const std::vector<Type> operands = rewrite_.from.types(node.inputs);
        const uint32_t all = (1u << operands[0].rank()) - 1;
        return operands[0].rank() >= 3 && operands[0].layout == Layout::channels_last &&
               runtime::reduced_axes({*node.op, node.attrs, operands}) == (all & ~2u);
    }

    // Condition 2.
    void note_sum(NodeId id) {
        const Node& sum = rewrite_.from.node(id);
        if (!is_sum_by_channel(sum)) return;
        const ValueId origin = origin_of(sum.inputs[0]);
        sums_[origin].plain.push_back(sum.outputs[0]);
        const Node& product = rewrite_.from.producer(sum.inputs[0]);
        if (product.op != &ops::mul()) return;
        for (size_t i : {0, 1}) {
            const Node& apart = rewrite_.from.producer(product.inputs[1 - i]);
            if (apart.op == &ops::sub())
                note_product(origin_of(product.inputs[i]), apart, sum.outputs[0]);
        }
    }
    void note_product(ValueId gradient, const Node& apart, ValueId sum) {
        const ValueId x = origin_of(apart.inputs[0]);
        if (!(type(x) == type(gradient)) ||
            !(type(apart.inputs[1]) == runtime::sums_by_channel(type(x))))
            return;
        ValueId mean = apart.inputs[1];
        while (rewrite_.from.producer(mean).op == &ops::reshape())
            mean = rewrite_.from.producer(mean).inputs[0];
        std::vector<Product>& all = sums_[gradient].products;
        const auto same = std::ranges::find_if(
            all, [&](const Product& each) { return each.x == x && each.mean == mean; });
        if (same != all.end()) same->results.push_back(sum);
        else all.push_back({x, mean, {sum}});
    }

    void note_mask(NodeId id) {
        const Node& node = rewrite_.from.node(id);
        if (node.op && node.op->as_epilogue == EpilogueKind::mask &&
            readers_[at(node.inputs[1])] == 1)
            masks_[node.inputs[1]] = id;
    }

    void find_join(NodeId id) {
        const Node& node = rewrite_.from.node(id);
        if (!is_gradient(node)) return;
        Join join{.gradient = node.outputs[0], .made = node};
        if (node.op == &ops::conv_backward_data()) join.made.attrs.emplace_back(std::string());
        take_mask(join, id);
        const auto sums = sums_.find(join.gradient);
        if (sums == sums_.end()) return;
        for (const Product& product : sums->second.products) {
            if (maker(product.x) >= id || maker(product.mean) >= id) continue;  // condition 3
            join.products.push_back(&product);
        }
        join.made.op = &ops::conv_backward_data_sums();
        if (join.products.empty() || !is_planned(join)) return;
        if (join.mask) done_.push_back(rewrite_.from.node(*join.mask).outputs[0]);
        for (ValueId sum : sums->second.plain) done_.push_back(sum);
        for (const Product* product : join.products)
            done_.insert(done_.end(), product->results.begin(), product->results.end());
        joins_.emplace(id, std::move(join));
    }

    static Layout layout_of_weights(const Type& weights) {
        const bool has_one_tap = weights.numel() == weights.shape[0] * weights.shape[1];
        return has_one_tap ? weights.layout : Layout::channels_last;
    }

    // Condition 4.
    bool is_planned(const Join& join) const {
        std::vector<Type> operands = rewrite_.from.types(join.made.inputs);
        operands[1].layout = layout_of_weights(operands[1]);
        for (const Product* product : join.products) {
            operands.push_back(type(product->x));
            operands.push_back(runtime::sums_by_channel(operands.back()));
        }
        return rewrite_.from.device().computes_whole({*join.made.op, join.made.attrs, operands});
    }

    // Condition 1.
    bool is_gradient(const Node& node) const {
        if (node.op != &ops::conv_backward_data() && node.op != &ops::conv_backward_data_epilogue())
            return false;
        const Type& result = type(node.outputs[0]);
        return result.layout == Layout::channels_last &&
               (result.dtype == DType::f32 ? runtime::product_rules().tf32
                                           : runtime::takes_halves(*node.op, result.dtype));
    }

    void take_mask(Join& join, NodeId product) const {
        const auto mask = masks_.find(join.gradient);
        std::string& steps = std::get<std::string>(join.made.attrs.back());
        if (mask == masks_.end() || steps.find("mask") != std::string::npos) return;
        const Node& node = rewrite_.from.node(mask->second);
        const ValueId by = node.inputs[0];
        if (!(type(by) == type(join.gradient)) || !(type(node.outputs[0]) == type(by)) ||
            maker(by) >= product)
            return;
        steps += steps.empty() ? "mask" : " mask";
        join.made.inputs.push_back(by);
        join.made.marks.stays |= node.marks.stays;
        join.gradient = node.outputs[0];
        join.mask = mask->second;
    }

    void place(const Node& node, const Join& join) {
        std::vector<ValueId> inputs = rewrite_.map(join.made.inputs);
        if (const Type& weights = rewrite_.to.type(inputs[1]);
            layout_of_weights(weights) != weights.layout)
            inputs[1] = rewrite_.to.make(ops::relayout(), {inputs[1]},
                                         {to_string(Layout::channels_last)}, node);
        for (const Product* product : join.products) {
            inputs.push_back(rewrite_.map(product->x));
            inputs.push_back(reshaped(rewrite_.map(product->mean),
                                      runtime::sums_by_channel(type(product->x)), node));
        }
        const std::vector<ValueId> made =
            rewrite_.to.add_op(*join.made.op, std::move(inputs), join.made.attrs, join.made);
        rewrite_.replace(join.gradient, made[0]);
        const auto replace = [&](const std::vector<ValueId>& sums, ValueId by) {
            for (ValueId sum : sums) rewrite_.replace(sum, reshaped(by, type(sum), node));
        };
        replace(sums_.at(join.gradient).plain, made[1]);
        for (size_t i = 0; i < join.products.size(); ++i)
            replace(join.products[i]->results, made[2 + i]);
    }
    ValueId reshaped(ValueId value, const Type& to, const Node& node) {
        if (rewrite_.to.type(value) == to) return value;
        return rewrite_.to.make(ops::reshape(), {value}, {Ints(to.shape.begin(), to.shape.end())},
                                node);
    }
    bool is_placed(const Node& node) const {
        return std::ranges::find(done_, node.outputs.front()) != done_.end();
    }

    Rewriter rewrite_;
    std::vector<uint32_t> readers_;  // by old value
    std::map<ValueId, Sums> sums_;  // by old value that is added up
    std::map<ValueId, NodeId> masks_;  // by old value: the mask that alone reads it
    std::map<NodeId, Join> joins_;  // by the convolution
    std::vector<ValueId> done_;  // results of old nodes that joins give
};

}  // namespace

Graph join_gradient_sums(Graph graph, const PipelineOptions& options) {
    if (!libraries_add_up(graph, options)) return graph;
    GradientSumsJoiner joiner(graph);
    return joiner.has_work() ? joiner.run() : graph;
}

}  // namespace megjit::jit
