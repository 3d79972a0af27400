// jit/api/static_node.h -- NodeMaker: what static_lowering.h puts in place of one node of a graph.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "codegen/kernel_ir.h"
#include "jit/step/graph.h"
#include "runtime/ops/pool.h"

namespace megjit::api {

class NodeMaker {
public:
    using Ints = std::vector<int64_t>;

    explicit NodeMaker(const jit::Graph& graph) : rewrite_(graph) {}

    const runtime::Type& result() const { return rewrite_.from.type(node_->outputs[0]); }
    // Returns a copy, because values are added.
    runtime::Type type(jit::ValueId id) const { return rewrite_.to.type(id); }
    jit::ValueId operand(size_t i) const { return rewrite_.map(node_->inputs[i]); }

    jit::ValueId make(std::string_view op, std::vector<jit::ValueId> inputs,
                      runtime::Attrs attrs = {});
    jit::ValueId kernel(codegen::BoundKernel bound, std::vector<jit::ValueId> inputs,
                        const runtime::Type& type);
    jit::ValueId reshaped(jit::ValueId x, const runtime::Shape& shape);
    jit::ValueId constant(const runtime::Shape& shape, const std::vector<float>& values);
    jit::ValueId constant(const runtime::Shape& shape, const std::vector<int32_t>& values);
    // Puts x into a tensor filled with `value`, from `begin` on, by steps.
    jit::ValueId framed(jit::ValueId x, const runtime::Shape& shape, const Ints& begin,
                        const Ints& step, double value);
    // Takes the padding from the window.
    jit::ValueId padded(jit::ValueId x, runtime::Window& window, double value);
    // How many elements of x each place of `y` sees, in the dtype of x.
    jit::ValueId counts(const runtime::PoolWindow& pool, const runtime::Type& x,
                        const runtime::Shape& y);

protected:
    jit::Rewriter rewrite_;
    const jit::Node* node_ = nullptr;  // the old graph's
};

NodeMaker::Ints ints(const runtime::Shape& shape);
bool is_padded(const runtime::Window& window);

}  // namespace megjit::api
