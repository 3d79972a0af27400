// jit/graph_writer.h -- GraphWriter: writes what is dispatched while it lives into a graph.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include "jit/graph.h"
#include "runtime/eager/dispatch.h"

namespace megjit::jit {

class GraphWriter final : public runtime::Tracer {
public:
    // `where`, `role`, `marks`: of all nodes.
    GraphWriter(Graph& graph, std::string where, Role role = {}, Marks marks = {})
        : graph_(graph),
          where_(std::move(where)),
          role_(role),
          marks_(marks),
          outer_(runtime::context().tracer) {
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
        Node node{.kind = NodeKind::op,
                  .op = &op,
                  .attrs = attrs,
                  .where = where_,
                  .marks = marks_,
                  .role = role_};
        for (const TensorRef& input : inputs) node.inputs.push_back(value_of(input));
        const std::vector<Type> types = graph_.types(node.inputs);
        runtime::Results outputs;
        for (ValueId output : graph_.add(std::move(node), runtime::infer({op, attrs, types})))
            outputs.push_back(placeholder(output));
        return outputs;
    }

    void on_read(runtime::Tensor&) override {}  // a writer of graphs reads no values
    bool can_read(const runtime::Tensor&) const override { return false; }

private:
    Graph& graph_;
    std::string where_;
    Role role_;
    Marks marks_;
    runtime::Tracer* outer_;
    std::unordered_map<uint64_t, ValueId> values_;  // by the tensor's id
};

}  // namespace megjit::jit
