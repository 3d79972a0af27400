// jit/passes/head_targets.h -- where a program wants the results of attention, and its gradients.
#pragma once

#include <map>
#include <memory>

#include "jit/passes/strided_view.h"
#include "runtime/ops/attention.h"

namespace megjit::jit {

// Returns the view as attention takes it. Nothing where kernels would not take it as they take a
// whole tensor of those heads: it is no box, or is less aligned.
std::optional<runtime::HeadsView> heads_of(const StridedView& view, const Type& tensor);

// Where a result goes: `view` of a row-major value of the graph, which attention makes in place of
// that value's producer.
struct HeadTarget {
    ValueId tensor = {};
    runtime::HeadsView view = {};
};

// By result of an op attention, or attention_grad. Results without a target are wanted as they are.
class HeadTargets {
public:
    explicit HeadTargets(const Graph& graph);
    ~HeadTargets();
    std::map<ValueId, HeadTarget> of(const Node& attention) const;

private:
    class Finder;
    std::unique_ptr<const Finder> finder_;
};

}  // namespace megjit::jit
