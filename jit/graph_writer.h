// jit/graph_writer.h -- GraphWriter: writes what is dispatched while it lives into a graph.
#pragma once

#include <unordered_map>
#include <utility>

#include "jit/graph.h"
#include "runtime/eager/dispatch.h"

namespace megjit::jit {

class GraphWriter final : public runtime::Tracer {
public:
    // All nodes get the line, the role and the marks of `like`, which outlives the writer.
    GraphWriter(Graph& graph, const Node& like)
        : graph_(graph), like_(like), outer_(runtime::context().tracer) {
        runtime::context().tracer = this;
    }
    ~GraphWriter() override { runtime::context().tracer = outer_; }
    GraphWriter(const GraphWriter&) = delete;

    TensorRef placeholder(ValueId value) {
        TensorRef tensor = runtime::make_placeholder(graph_.type(value), graph_.device());
        values_[tensor->id()] = value;
        return tensor;
    }

    ValueId value_of(const TensorRef& tensor) {
        const auto [found, is_new] = values_.try_emplace(tensor->id());
        if (is_new) found->second = graph_.add_constant(tensor);  // a number
        return found->second;
    }

    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device&) override {
        std::vector<ValueId> operands;
        for (const TensorRef& input : inputs) operands.push_back(value_of(input));
        runtime::Results outputs;
        for (ValueId output : graph_.add_op(op, std::move(operands), attrs, like_)) {
            graph_.marks_of(graph_.value(output).producer) = like_.marks;
            outputs.push_back(placeholder(output));
        }
        return outputs;
    }

    void on_read(runtime::Tensor&) override {}  // a writer of graphs reads no values
    bool can_read(const runtime::Tensor&) const override { return false; }

private:
    Graph& graph_;
    const Node& like_;
    runtime::Tracer* outer_;
    std::unordered_map<uint64_t, ValueId> values_;  // by the tensor's id
};

}  // namespace megjit::jit
