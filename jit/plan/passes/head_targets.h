// jit/plan/passes/head_targets.h -- where a program wants the results of attention, and its
// gradients.
#pragma once

#include <map>
#include <memory>

#include "jit/plan/passes/strided_view.h"
#include "runtime/ops/attention.h"

namespace megjit::jit {

// Returns the view as attention takes it. Nothing for a view that is no box, or is less
// aligned than a whole tensor of those heads: kernels would not take it alike.
std::optional<runtime::HeadsView> heads_of(const StridedView& view, const Type& tensor);

// Where a result goes: `view` of a row-major value of the graph, which attention makes in place of
// that value's producer.
struct HeadTarget {
    ValueId tensor = {};
    runtime::HeadsView view = {};
};

// Finds the targets of the results of attention and attention_grad. A result without a target keeps
// its own layout.
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
