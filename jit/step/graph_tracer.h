// jit/step/graph_tracer.h -- GraphTracer: links the tensors that running code holds to the values
// of the graph that is written of it. Results are placeholders, which know their value; a tensor
// from outside is captured where it is met first. A recorded call (recorder.h), a body that an op
// will hold (body_recorder.h), what an op is made of (GraphWriter) and a graph that its user
// extends (graph_editor.h) are written in this way.
#pragma once

#include <atomic>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jit/step/graph.h"
#include "runtime/eager/dispatch.h"

namespace megjit::jit {

// A number that no other graph or call has. `kind`: a flag of TraceLink, or 0.
inline uint64_t next_trace_id(uint64_t kind = 0) {
    static std::atomic<uint64_t> next{1};
    return kind | next++;
}

class GraphTracer {
public:
    GraphTracer(const GraphTracer&) = delete;

    // The value that stands for the tensor.
    ValueId value_of(const TensorRef& tensor) {
        if (tensor->trace.session == id_) return static_cast<ValueId>(tensor->trace.value);
        if (const auto known = find(tensor->id())) return *known;
        return outside_[tensor->id()] = capture(tensor);
    }
    // The value that stands for a tensor from outside, by its id.
    std::optional<ValueId> find(uint64_t tensor) const {
        const auto found = outside_.find(tensor);
        return found == outside_.end() ? std::nullopt : std::optional(found->second);
    }

protected:
    explicit GraphTracer(uint64_t id) : id_(id) {}
    ~GraphTracer() = default;

    // Adds the value that stands for a tensor from outside, or refuses the tensor.
    virtual ValueId capture(const TensorRef& tensor) = 0;

    void know(const TensorRef& outside, ValueId value) { outside_.emplace(outside->id(), value); }
    std::vector<ValueId> values_of(std::span<const TensorRef> tensors) {
        std::vector<ValueId> values;
        for (const TensorRef& tensor : tensors) values.push_back(value_of(tensor));
        return values;
    }
    void link(runtime::Tensor& tensor, ValueId value) const {
        tensor.trace = {id_, static_cast<uint32_t>(value)};
    }
    TensorRef placeholder(ValueId value, const Type& type, runtime::Device& device) const {
        TensorRef tensor = runtime::make_placeholder(type, device);
        link(*tensor, value);
        return tensor;
    }
    runtime::Results placeholders(const Graph& graph, std::span<const ValueId> values,
                                  runtime::Device& device) const {
        runtime::Results results;
        for (const ValueId value : values)
            results.push_back(placeholder(value, graph.type(value), device));
        return results;
    }

    const uint64_t id_;

private:
    std::unordered_map<uint64_t, ValueId> outside_;  // by tensor id
};

// Writes what is dispatched while it lives into a graph.
class GraphWriter final : public runtime::Tracer, private GraphTracer {
public:
    // All nodes stand for `like`, which outlives the writer.
    GraphWriter(Graph& graph, const Node& like)
        : GraphTracer(next_trace_id()),
          graph_(graph),
          like_(like),
          outer_(std::exchange(runtime::context().tracer, this)) {}
    ~GraphWriter() override { runtime::context().tracer = outer_; }

    using GraphTracer::value_of;
    runtime::Tensors operands(std::span<const ValueId> values) const {
        return placeholders(graph_, values, graph_.device());
    }

    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device&) override {
        return placeholders(graph_, graph_.add_op(op, values_of(inputs), attrs, like_),
                            graph_.device());
    }
    void on_read(runtime::Tensor&) override {}  // a writer of graphs reads no values
    bool can_read(const runtime::Tensor&) const override { return false; }

private:
    ValueId capture(const TensorRef& number) override { return graph_.add_constant(number); }

    Graph& graph_;
    const Node& like_;
    runtime::Tracer* outer_;
};

}  // namespace megjit::jit
