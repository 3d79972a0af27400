#include "jit/file/bounded_rows.h"

#include <algorithm>

#include "jit/step/graph_tracer.h"

namespace megjit::jit {

std::vector<ValueId> BoundedRows::select(const OutsideOp& op, std::vector<ValueId> inputs,
                                         const std::string& where) {
    const auto same = std::ranges::find_if(made_, [&](const Made& made) {
        return made.op == op.op && runtime::same(made.attrs, op.attrs) && made.inputs == inputs;
    });
    if (same != made_.end()) return same->outputs;
    const std::vector<Type> types = graph_.types(inputs);
    const runtime::WithoutTapes quiet;
    const Node like{.where = where};
    GraphWriter writer(graph_, like);
    const runtime::Tensors results =
        op.op->bounded({*op.op, op.attrs, types}, writer.operands(inputs));
    std::vector<ValueId> outputs;
    for (const TensorRef& result : results) outputs.push_back(writer.value_of(result));
    const ValueId count = outputs.back();
    outputs.pop_back();
    note(outputs, count);
    made_.push_back({op.op, op.attrs, std::move(inputs), outputs});
    return outputs;
}

std::optional<ValueId> BoundedRows::count_of(std::span<const ValueId> values) const {
    for (const ValueId value : values)
        if (const auto found = counts_.find(value); found != counts_.end()) return found->second;
    return {};
}

// Tells by the facts of ops whether row i of the result is made of row i of each bounded operand,
// and of data that is the same for all rows.
bool BoundedRows::keeps_rows(const Node& node, std::span<const Type> recorded,
                             const Type& result) const {
    const std::optional<ValueId> count = count_of(node.inputs);
    const auto is_bounded = [&](size_t i) { return counts_.contains(node.inputs[i]); };
    for (size_t i = 0; i < node.inputs.size(); ++i)
        if (is_bounded(i) && counts_.at(node.inputs[i]) != count) return false;
    // Operands `from`... broadcast to `rank` axes.
    const auto broadcasts_rows = [&](size_t from, int rank) {
        for (size_t i = from; i < node.inputs.size(); ++i) {
            const Type& type = recorded[i];
            if (is_bounded(i) ? type.rank() != rank : type.rank() == rank && type.shape[0] != 1)
                return false;
        }
        return true;
    };
    const runtime::OpCall call{*node.op, node.attrs, recorded};
    const Type& x = recorded[0];
    if (node.op->is_elementwise()) return broadcasts_rows(0, result.rank());
    if (node.op->reduction) return !(runtime::reduced_axes(call) & 1u);
    if (node.op == &ops::slice())
        return call.integers("begin")[0] == 0 && call.integers("end")[0] == x.shape[0] &&
               call.integers("step")[0] == 1;
    if (node.op->access == runtime::Access::broadcast) return result.shape == x.shape;
    if (node.op == &ops::concat()) {
        for (size_t i = 0; i < node.inputs.size(); ++i)
            if (!is_bounded(i)) return false;
        return call.integer("axis") % x.rank() != 0;
    }
    if (node.op == &ops::reshape()) {
        const auto row = [](const runtime::Shape& shape) {
            return runtime::Shape(shape.extents().subspan(1)).numel();
        };
        return result.rank() > 0 && result.shape[0] == x.shape[0] &&
               row(result.shape) == row(x.shape);
    }
    if (node.op->access == runtime::Access::picked && !is_bounded(0)) {  // rows that were selected
        const auto* axes = std::get_if<std::vector<int64_t>>(&node.attrs[0]);
        int rank = 0;
        for (size_t i = 1; i < node.inputs.size(); ++i) rank = std::max(rank, recorded[i].rank());
        return axes && axes->front() == 0 && broadcasts_rows(1, rank);
    }
    return false;
}

bool BoundedRows::fit(Node& node, std::span<const Type> recorded, const Type& result) const {
    if (!keeps_rows(node, recorded, result)) return false;
    const int64_t rows = graph_.type(node.inputs[0]).shape[0];
    if (node.op == &ops::slice()) std::get<std::vector<int64_t>>(node.attrs[1])[0] = rows;
    if (node.op == &ops::reshape() || node.op->access == runtime::Access::broadcast)
        std::get<std::vector<int64_t>>(node.attrs[0])[0] = rows;
    return true;
}

void BoundedRows::note(std::span<const ValueId> outputs, ValueId count) {
    for (const ValueId output : outputs) counts_.emplace(output, count);
}

}  // namespace megjit::jit
