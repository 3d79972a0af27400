// Element-wise ops behind a convolution or matrix product become steps of it
// (runtime/ops/epilogue.h): a bias, a residual, relu. The node then stands where the product stood.
// A node joins the product before it when
//   1. it is the only reader of that product, and the graph does not return it: nobody misses the
//      intermediate value (in training relu's gradient reads relu's result, which remains);
//   2. both have one type, float32 in the same layout. A float16 product would be rounded less
//   often;
//   3. it is an add whose other operand is a bias along the channels or has that same type, or
//   relu, and
//      the product has no such step yet;
//   4. its other operand exists where the product stands, so that nothing lives longer than before:
//      it is an input, a constant, or was computed earlier;
//   5. that operand is stored in any case, for it is no element-wise value that a kernel would keep
//   in
//      registers: an addend made for this product alone would cost the pass over memory that is
//      saved;
//   6. an addend is not row-major behind a convolution, which would reorder it.
// The addend's bytes are read once, and the intermediate ones never: no node moves more than those
// it replaces.
#include <algorithm>

#include "jit/passes/passes.h"
#include "runtime/ops/epilogue.h"

namespace megjit::jit {
namespace {

enum class Steps : uint8_t { additions, relu };

// The op that has the steps of `node`'s op as an attribute; null where there is none.
const OpDef* with_epilogue(const Node& node) {
    if (node.kind != NodeKind::op) return nullptr;
    const std::string& name = node.op->name;
    if (name == "conv" || name == "conv_epilogue") return &runtime::find_op("conv_epilogue");
    if (name == "matmul" || name == "matmul_epilogue") return &runtime::find_op("matmul_epilogue");
    return nullptr;
}

bool is_part_of_kernels(const Node& node) {
    return node.kind == NodeKind::op &&
           (node.op->is_elementwise() || node.op->name == "broadcast_to");
}

class EpilogueFuser {
public:
    EpilogueFuser(const Graph& graph, Steps wanted)
        : rewrite_(graph),
          wanted_(wanted),
          done_(graph.nodes().size()),
          readers_(graph.value_count()) {
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
            if (const OpDef* op = with_epilogue(node)) place(node, *op);
            else copy(static_cast<NodeId>(id));
        }
        return rewrite_.finish();
    }

private:
    struct Epilogue {
        std::string steps = {};
        std::vector<ValueId> operands = {};
        ValueId result = {};  // of the last step

        bool has(std::string_view step) const { return steps.find(step) != std::string::npos; }
        void append(std::string_view step) {
            steps += runtime::cat(steps.empty() ? "" : " ", step);
        }
    };

    void copy(NodeId id) {
        rewrite_.copy(rewrite_.from.node(id));
        done_[at(id)] = true;
    }

    void place(const Node& product, const OpDef& op) {
        const bool has_some = product.op == &op;
        Epilogue epilogue{.steps = has_some ? std::get<std::string>(product.attrs.back()) : "",
                          .result = product.outputs[0]};
        const size_t before = epilogue.steps.size();
        while (take_next(product, epilogue)) {}
        if (epilogue.steps.size() == before)
            return copy(rewrite_.from.value(product.outputs[0]).producer);
        Node fresh = product;
        fresh.op = &op;
        if (has_some) fresh.attrs.pop_back();
        fresh.attrs.emplace_back(epilogue.steps);
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
        if (node.kind != NodeKind::op || type.dtype != runtime::DType::f32 ||
            !(rewrite_.from.type(node.outputs[0]) == type))
            return false;
        if (wanted_ == Steps::relu) {
            if (node.op->name != "relu" || epilogue.has("relu")) return false;
            epilogue.append("relu");
        } else {
            if (node.op->name != "add") return false;
            const ValueId other = node.inputs[node.inputs[0] == epilogue.result ? 1 : 0];
            const std::string_view step = step_of(product, type, other);
            if (step.empty() || epilogue.has(step) || !is_ready(other) || !is_stored(other))
                return false;
            epilogue.append(step);
            epilogue.operands.push_back(other);
        }
        done_[at(readers[0])] = true;
        epilogue.result = node.outputs[0];
        return true;
    }

    // Which step adds `other`; empty: none.
    std::string_view step_of(const Node& product, const Type& type, ValueId other) const {
        const Type& its = rewrite_.from.type(other);
        const bool is_conv = product.op->name.starts_with("conv");
        if (runtime::is_bias(its, type, is_conv ? 1 : type.rank() - 1)) return "bias";
        if (its == type && (!is_conv || type.layout == runtime::Layout::channels_last))
            return "add";
        return "";
    }

    // Condition 4.
    bool is_ready(ValueId id) const {
        const NodeKind kind = rewrite_.from.producer(id).kind;
        return done_[at(rewrite_.from.value(id).producer)] || kind == NodeKind::input ||
               kind == NodeKind::constant;
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
    Steps wanted_;
    std::vector<bool> done_;  // by old node: copied, or a step of a product
    std::vector<std::vector<NodeId>> readers_;  // by old value; twice where a node reads it twice
    std::vector<bool> returned_;
};

}  // namespace

Graph fuse_epilogues(const Graph& graph) { return EpilogueFuser(graph, Steps::additions).run(); }
Graph fuse_relu(const Graph& graph) { return EpilogueFuser(graph, Steps::relu).run(); }

}  // namespace megjit::jit
