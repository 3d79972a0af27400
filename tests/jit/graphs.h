// tests/jit/graphs.h -- what tests of passes ask of a graph, and feed it.
#pragma once

#include "jit/step/step.h"
#include "tests/jit/world.h"

namespace megjit::jit {

// How many nodes apply that op?
inline size_t count(const Graph& graph, std::string_view op) {
    size_t found = 0;
    for (const Node& node : graph.nodes()) found += node.op && node.op->name == op;
    return found;
}

inline size_t kernels_in(const Graph& graph) {
    size_t found = 0;
    for (const Node& node : graph.nodes()) found += node.kind == NodeKind::fused;
    return found;
}

// The text with `by` in place of each `part`.
inline std::string replaced(std::string_view part, std::string_view by, std::string text) {
    for (size_t from = 0; (from = text.find(part, from)) != std::string::npos; from += by.size())
        text.replace(from, part.size(), by);
    return text;
}

// released: by slot, what the caller gives away. replaces: by output.
inline Step step_of(const Graph& graph, const std::vector<bool>& released,
                    const std::vector<int>& replaces = {}) {
    Step step{graph};
    for (const bool each : released) step.inputs.push_back({.is_released = each});
    for (const int slot : replaces) step.outputs.push_back({.replaces = slot});
    return step;
}

// By slot: small numbers of both signs, others for each slot.
inline std::vector<TensorRef> inputs_for(const Graph& graph) {
    std::vector<TensorRef> inputs;
    for (const Node& node : graph.nodes()) {
        if (node.kind != NodeKind::input) continue;
        TensorRef tensor =
            runtime::empty_tensor(runtime::host_device(), graph.type(node.outputs[0]));
        for (int64_t i = 0; i < tensor->type().numel(); ++i)
            tensor->as<float>()[i] =
                static_cast<float>((i * 37 + node.slot * 11) % 17) / 8.0f - 1.0f;
        inputs.push_back(tensor);
    }
    return inputs;
}

}  // namespace megjit::jit
