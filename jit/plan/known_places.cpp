#include "jit/plan/known_places.h"

#include "runtime/ops/known.h"

namespace megjit::jit {

using runtime::DType;

bool are_known_places(const Graph& graph, ValueId id, int64_t extent) {
    const Node& node = graph.producer(id);
    if (graph.type(id).dtype != DType::i32 || node.kind != NodeKind::op) return false;
    if (node.op == &ops::full()) {
        const double value = std::get<double>(node.attrs[1]);
        return value >= 0 && value < static_cast<double>(extent);
    }
    if (node.op == &ops::coordinates())
        return graph.type(id).shape[static_cast<int>(std::get<int64_t>(node.attrs[1]))] <= extent;
    // Where the index is wrong, what was there stays.
    if (node.op == &ops::index_set() && !are_known_places(graph, node.inputs[1], extent))
        return false;
    return (node.op == &ops::index_set() || node.op == &ops::reshape()) &&
           are_known_places(graph, node.inputs[0], extent);
}

}  // namespace megjit::jit
