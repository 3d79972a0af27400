#include "jit/plan/failure_rule.h"

#include "jit/plan/known_places.h"
#include "jit/step/host_copy.h"
#include "runtime/ops/known.h"

namespace megjit::jit {

bool FirstFailures::may_be(const Node& node) {
    if (is_host_copy(node)) return graph_.device().is_host();  // a disk may fail
    if (!node.op || !node.op->extent_of_places) return may_fail(node);
    const std::vector<Type> types = graph_.types(node.inputs);
    const runtime::OpCall call{*node.op, node.attrs, types};
    bool is_new = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.op->kind_of(i) != runtime::OperandKind::places) continue;
        const int64_t extent = node.op->extent_of_places(call, i);
        // Places that are read at wrong places are read behind the failure.
        const Node& maker = graph_.producer(node.inputs[i]);
        const ValueId places = maker.op == &ops::index_get() ? maker.inputs[0] : node.inputs[i];
        if (are_known_places(graph_, places, extent)) continue;
        const auto [known, fresh] = within_.emplace(node.inputs[i], extent);
        is_new = is_new || fresh || extent < known->second;
        known->second = std::min(known->second, extent);
    }
    return is_new;
}

}  // namespace megjit::jit
