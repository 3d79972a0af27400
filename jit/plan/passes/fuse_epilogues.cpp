// Element-wise ops after a convolution or matrix product become steps of it
// (runtime/ops/epilogue.h): a bias, a residual, relu. The node then stands where the product stood.
// A node joins the product before it when
//   1. it is the only reader of that product, and the graph does not return it: nobody misses the
//      intermediate value (in training relu's gradient reads relu's result, which remains);
//   2. both have one type, float32 in the same layout. A product of halves would be rounded less
//   often: only fuse_half_biases takes it, on a GPU, where its rows begin at 16 bytes, and
//   fuse_masks;
//   3. it is an add whose other operand is a bias along the channels or has that same type, or
//   relu, and
//      the product has no such step yet;
//   4. its other operand exists where the product stands, so that nothing lives longer than before:
//      it is an input, a constant, or was computed earlier;
//   5. that operand is stored in any case, for it is no element-wise value that a kernel would keep
//   in
//      registers: an addend made for this product alone would cost the pass over memory that is
//      saved;
//   6. an addend is not row-major after a product that prefers channels-last and would reorder it.
//   7. no other element-wise op follows the steps where fuse would take the product with it
//   (product_choice.h), nor does a kernel make its weights (makers_of_weights).
// The steps of a gradient are the sum of gradients that a residual makes, and relu's gradient,
// which masks it (fuse_masks, on a GPU). They join where also
//   8. tensor cores compute the gradient, weights have one tap, and all lie channels-last: the
//   library has steps for that;
//   9. a mask without an addend is written in any case (else it is computed where it is read).
// The addend's bytes are read once, and the intermediate ones never: no node moves more than those
// it replaces.
#include <algorithm>

#include "jit/plan/passes/fusion_group.h"
#include "jit/plan/passes/product_choice.h"
#include "runtime/host/product_rules.h"
#include "runtime/ops/epilogue.h"
#include "runtime/ops/matmul.h"

namespace megjit::jit {
namespace {

using runtime::EpilogueKind;

bool is_part_of_kernels(const Node& node) {
    return node.op && (node.op->is_elementwise() || node.op->access == runtime::Access::broadcast);
}

class EpilogueFuser {
public:
    // wanted: add takes biases, too; bias takes those of halves alone; mask takes all that stands
    // behind gradients.
    EpilogueFuser(const Graph& graph, const PipelineOptions& options, EpilogueKind wanted)
        : rewrite_(graph),
          options_(options),
          wanted_(wanted),
          done_(graph.nodes().size()),
          readers_(graph.value_count()),
          counts_(reader_counts(graph)) {
        for (size_t id = 0; id < graph.nodes().size(); ++id)
            for (ValueId input : graph.nodes()[id].inputs)
                readers_[at(input)].push_back(static_cast<NodeId>(id));
        returned_.resize(graph.value_count());
        for (ValueId output : graph.outputs) returned_[at(output)] = true;
    }

    Graph run() {
        for (size_t id = 0; id < done_.size(); ++id) {
            const Node& node = rewrite_.from.nodes()[id];
            if (done_[id]) continue;
            if (node.op && node.op->epilogue && has_wanted_steps(*node.op->epilogue)) place(node);
            else copy(static_cast<NodeId>(id));
        }
        return drop_dead(rewrite_.finish());
    }

private:
    struct Epilogue {
        std::vector<runtime::EpilogueStep> steps = {};
        std::vector<ValueId> operands = {};
        ValueId result = {};  // the last step's
        bool stays = false;  // some step has that mark

        bool has(EpilogueKind kind) const {
            return std::any_of(steps.begin(), steps.end(),
                               [&](const auto& step) { return step.kind == kind; });
        }
    };

    bool has_wanted_steps(const runtime::EpilogueSpec& spec) const {
        return spec.of_gradient == (wanted_ == EpilogueKind::mask);
    }

    void copy(NodeId id) {
        rewrite_.copy(rewrite_.from.node(id));
        done_[at(id)] = true;
    }
    void copy_product(const Node& product) {
        rewrite_.copy(product);
        done_[at(rewrite_.from.value(product.outputs[0]).producer)] = true;
    }

    // Goes on to an element-wise op that is no step.
    bool feeds_kernels(const Node& product) const {
        ValueId result = product.outputs[0];
        const Type& type = rewrite_.from.type(result);
        for (;;) {
            const std::vector<NodeId>& readers = readers_[at(result)];
            const auto is_next = [&](NodeId id) {
                const Node& reader = rewrite_.from.node(id);
                return reader.op && reader.op->is_elementwise() &&
                       rewrite_.from.type(reader.outputs[0]) == type;
            };
            const auto next = std::ranges::find_if(readers, is_next);
            if (next == readers.end()) return false;
            const Node& reader = rewrite_.from.node(*next);
            if (readers.size() > 1 || returned_[at(result)] || !reader.op->as_epilogue ||
                !runtime::takes_step(*product.op->epilogue, *reader.op->as_epilogue))
                return true;
            result = reader.outputs[0];
        }
    }

    void place(Node product) {
        if (!makers_of_weights(rewrite_.from, options_, counts_, product).nodes.empty())
            return copy_product(product);
        if (feeds_kernels(product)) {
            ProductChoice choice = choose_product(rewrite_.from, product, options_);
            product.choice = std::move(choice.why);
            if (choice.is_generated()) return copy_product(product);
        }
        const OpDef& op = product.op->epilogue->op();
        const bool has_some = product.op == &op;
        Epilogue epilogue{.result = product.outputs[0]};
        if (has_some) {
            const std::vector<Type> inputs = rewrite_.from.types(product.inputs);
            epilogue.steps = runtime::epilogue_of({op, product.attrs, inputs});
        }
        const size_t before = epilogue.steps.size();
        while (take_next(product, epilogue)) {}
        if (epilogue.steps.size() == before) return copy_product(product);
        Node fresh = product;
        fresh.op = &op;
        fresh.marks.stays |= epilogue.stays;
        if (has_some) fresh.attrs.pop_back();
        fresh.attrs.emplace_back(runtime::epilogue_text(epilogue.steps));
        fresh.inputs = rewrite_.map(product.inputs);
        for (ValueId operand : epilogue.operands) {
            const NodeId producer = rewrite_.from.value(operand).producer;
            if (!done_[at(producer)]) copy(producer);  // an input or a constant that is named later
            fresh.inputs.push_back(rewrite_.map(operand));
        }
        rewrite_.replace(
            epilogue.result,
            rewrite_.to.add(std::move(fresh), {&rewrite_.from.type(epilogue.result), 1})[0]);
    }

    // Makes the reader of epilogue.result a step, if it can be one.
    bool take_next(const Node& product, Epilogue& epilogue) {
        const std::vector<NodeId>& readers = readers_[at(epilogue.result)];
        if (readers.size() != 1 || returned_[at(epilogue.result)]) return false;
        const Node& node = rewrite_.from.node(readers[0]);
        const Type& type = rewrite_.from.type(epilogue.result);
        if (node.kind != NodeKind::op || !takes(product, type.dtype) ||
            !(rewrite_.from.type(node.outputs[0]) == type))
            return false;
        if (!node.op->as_epilogue || !is_wanted(*node.op->as_epilogue)) return false;
        runtime::EpilogueStep step{.kind = *node.op->as_epilogue};
        if (step.takes_operand()) {
            const bool is_first = node.inputs[0] == epilogue.result;
            const ValueId other = node.inputs[is_first ? 1 : 0];
            const std::optional<EpilogueKind> kind = step.kind == EpilogueKind::add
                                                         ? addition_of(product, type, other)
                                                     : !is_first ? mask_of(epilogue, node)
                                                                 : std::nullopt;
            if (!kind || epilogue.has(*kind) || !is_ready(other) || !may_read(*kind, other))
                return false;
            step.kind = *kind;
            epilogue.operands.push_back(other);
        } else if (epilogue.has(step.kind)) {
            return false;
        }
        epilogue.steps.push_back(step);
        done_[at(readers[0])] = true;
        epilogue.result = node.outputs[0];
        epilogue.stays |= node.marks.stays;
        return true;
    }

    bool is_wanted(EpilogueKind of_op) const {
        if (wanted_ == EpilogueKind::bias) return of_op == EpilogueKind::add;
        return of_op == wanted_ || (of_op == EpilogueKind::add && wanted_ == EpilogueKind::mask);
    }

    // Conditions 2 and 8.
    bool takes(const Node& product, runtime::DType dtype) const {
        if (wanted_ == EpilogueKind::mask) return has_steps_of_gradient(product, dtype);
        if (wanted_ != EpilogueKind::bias) return dtype == runtime::DType::f32;
        const std::vector<Type> factors = rewrite_.from.types(std::span(product.inputs).first(2));
        return runtime::takes_halves(*product.op, dtype) && runtime::have_aligned_rows(factors) &&
               runtime::have_aligned_rows({&rewrite_.from.type(product.outputs[0]), 1});
    }

    // Condition 8.
    bool has_steps_of_gradient(const Node& product, runtime::DType dtype) const {
        const std::vector<Type> inputs = rewrite_.from.types(product.inputs);
        const Type &result = rewrite_.from.type(product.outputs[0]), &weights = inputs[1];
        return (dtype == runtime::DType::f32 ? runtime::product_rules().tf32
                                             : runtime::takes_halves(*product.op, dtype)) &&
               result.layout == runtime::Layout::channels_last &&
               weights.numel() == weights.shape[0] * weights.shape[1] &&
               weights.shape[1] == result.shape[1];
    }

    // Says which step adds `other`.
    std::optional<EpilogueKind> addition_of(const Node& product, const Type& type,
                                            ValueId other) const {
        const Type& its = rewrite_.from.type(other);
        if (runtime::is_bias(its, type, product.op->epilogue->bias_axis_of(type)))
            return EpilogueKind::bias;
        if (its == type && (!prefers_channels_last(rewrite_.from, product) ||
                            type.layout == runtime::Layout::channels_last))
            return EpilogueKind::add;
        return {};
    }

    // Condition 9.
    std::optional<EpilogueKind> mask_of(const Epilogue& epilogue, const Node& mask) const {
        const ValueId result = mask.outputs[0];
        const auto stores_it = [&](NodeId reader) {
            const Node& node = rewrite_.from.node(reader);
            return !is_part_of_kernels(node) && !(node.op && node.op->reduction);
        };
        const bool joins = rewrite_.from.type(mask.inputs[0]) == rewrite_.from.type(result) &&
                           (epilogue.has(EpilogueKind::add) ||
                            std::ranges::any_of(readers_[at(result)], stores_it));
        return joins ? std::optional(EpilogueKind::mask) : std::nullopt;
    }

    // Condition 4.
    bool is_ready(ValueId id) const {
        const NodeKind kind = rewrite_.from.producer(id).kind;
        return done_[at(rewrite_.from.value(id).producer)] || kind == NodeKind::input ||
               kind == NodeKind::constant;
    }

    // A bias of halves is mostly cast from float32, by a kernel of its own in any case. A gradient
    // that others read, too, is read by a normalization, in two kernels.
    bool may_read(EpilogueKind kind, ValueId other) const {
        if (wanted_ == EpilogueKind::mask)
            return kind != EpilogueKind::bias &&
                   (is_stored(other) || readers_[at(other)].size() > 1);
        return wanted_ == EpilogueKind::bias ? kind == EpilogueKind::bias : is_stored(other);
    }

    // Condition 5. A number is part of a kernel's code.
    bool is_stored(ValueId id) const {
        const Node& producer = rewrite_.from.producer(id);
        if (producer.kind == NodeKind::input) return true;
        if (producer.kind == NodeKind::constant) return producer.constant->type().numel() > 1;
        if (returned_[at(id)] || !is_part_of_kernels(rewrite_.to.producer(rewrite_.map(id))))
            return true;
        return std::any_of(readers_[at(id)].begin(), readers_[at(id)].end(), [&](NodeId reader) {
            return !is_part_of_kernels(rewrite_.from.node(reader));
        });
    }

    Rewriter rewrite_;
    const PipelineOptions& options_;
    EpilogueKind wanted_;
    std::vector<bool> done_;  // by old node: copied, or a step of a product
    std::vector<std::vector<NodeId>> readers_;  // by old value; twice where a node reads it twice
    std::vector<uint32_t> counts_;  // by old value: reader_counts
    std::vector<bool> returned_;
};

Graph fused_epilogues(Graph graph, const PipelineOptions& options, EpilogueKind wanted) {
    const EpilogueKind of_op = wanted == EpilogueKind::bias ? EpilogueKind::add : wanted;
    const auto is_wanted = [of_op](const Node& node) {
        return node.op && node.op->as_epilogue == of_op;
    };
    if (options.products == Products::generated || std::ranges::none_of(graph.nodes(), is_wanted))
        return graph;
    return EpilogueFuser(graph, options, wanted).run();
}

}  // namespace

Graph fuse_epilogues(Graph graph, const PipelineOptions& options) {
    return fused_epilogues(std::move(graph), options, EpilogueKind::add);
}
Graph fuse_half_biases(Graph graph, const PipelineOptions& options) {
    if (graph.device().is_host()) return graph;
    return fused_epilogues(std::move(graph), options, EpilogueKind::bias);
}
Graph fuse_masks(Graph graph, const PipelineOptions& options) {
    if (graph.device().is_host()) return graph;
    return fused_epilogues(std::move(graph), options, EpilogueKind::mask);
}
Graph fuse_relu(Graph graph, const PipelineOptions& options) {
    return fused_epilogues(std::move(graph), options, EpilogueKind::relu);
}

}  // namespace megjit::jit
