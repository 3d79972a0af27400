#include "jit/plan/passes/row_rules.h"

#include <algorithm>

namespace megjit::jit {

using runtime::Access;
using runtime::Shape;

std::optional<int> row_axes(const Shape& shape, int64_t rows) {
    int64_t product = 1;
    int axis = 0;
    while (axis < shape.rank() && product < rows) product *= shape[axis++];
    return product == rows ? std::optional(axis) : std::nullopt;
}

std::optional<Shape> part_of(Shape shape, int64_t rows, int64_t parts) {
    const std::optional<int> axes = row_axes(shape, rows);
    for (int axis = 0; axes && axis < *axes; ++axis) {
        const int64_t cut = std::min(parts, shape[axis]);
        if (shape[axis] % cut || parts % cut) return {};
        shape[axis] /= cut;
        parts /= cut;
    }
    return axes && parts == 1 ? std::optional(shape) : std::nullopt;
}

namespace {

// An operand has the rows of the result that it broadcasts to, or is the same for all of them.
std::optional<bool> follows_rows(const Shape& operand, const Shape& result, int axes) {
    size_t same = 0, spread = 0, long_axes = 0;
    for (int axis = 0; axis < axes; ++axis) {
        if (result[axis] == 1) continue;
        ++long_axes;
        const int own = axis - (result.rank() - operand.rank());
        ++(own < 0 || operand[own] == 1 ? spread : same);
    }
    if (spread && same) return {};
    return same == long_axes;
}

std::optional<RowRule> rule_of_broadcast(std::span<const Type> inputs, const Shape& result,
                                         int axes) {
    RowRule rule;
    for (const Type& input : inputs) {
        const std::optional<bool> follows = follows_rows(input.shape, result, axes);
        if (!follows) return {};
        rule.by_rows.push_back(*follows);
    }
    return rule;
}

std::optional<RowRule> rule_of_product(const runtime::Contraction& product,
                                       std::span<const Type> inputs, int64_t rows) {
    const int summed = product.space.rank() - 1;
    // Are the rows the outermost axes of operand i, by these axes of the space?
    const auto are_outside = [&](size_t i, int first, int end) {
        int64_t stride = inputs[i].numel();
        for (int axis = first; axis < end; ++axis) {
            stride /= product.space[axis];
            if (product.space[axis] > 1 && product.strides[i][static_cast<size_t>(axis)] != stride)
                return false;
        }
        return true;
    };
    if (product.space[summed] == rows && are_outside(0, summed, summed + 1) &&
        are_outside(1, summed, summed + 1))
        return RowRule{{true, true}, true};
    const std::optional<int> axes = row_axes(product.space, rows);
    if (!axes || *axes > summed || !are_outside(0, 0, *axes)) return {};
    for (int axis = 0; axis < *axes; ++axis)
        if (product.space[axis] > 1 && product.strides[1][static_cast<size_t>(axis)] != 0)
            return {};
    return RowRule{{true, false}};
}

std::optional<RowRule> rule_of_reduction(const runtime::OpCall& call, int64_t rows) {
    const std::optional<int> axes = row_axes(call.inputs[0].shape, rows);
    if (!axes) return {};
    const uint32_t own = (1u << *axes) - 1, reduced = runtime::reduced_axes(call);
    if (!(reduced & own)) return RowRule{{true}};
    if ((reduced & own) != own || *call.op.reduction != runtime::Reduce::sum) return {};
    return RowRule{{true}, true};
}

}  // namespace

std::optional<RowRule> rule_of(const Graph& graph, const Node& node, int64_t rows) {
    if (node.kind != NodeKind::op || node.outputs.size() != 1) return {};
    const std::vector<Type> inputs = graph.types(node.inputs);
    const Shape& result = graph.type(node.outputs[0]).shape;
    const runtime::OpCall call{*node.op, node.attrs, inputs};
    if (node.op->reduction) return rule_of_reduction(call, rows);
    if (node.op->contraction && inputs.size() == 2)
        if (const auto product = node.op->contraction(call))
            return rule_of_product(*product, inputs, rows);
    const std::optional<int> axes = row_axes(result, rows);
    if (!axes) return {};
    if (node.op->multiplies_rows)
        return *axes < result.rank() ? std::optional(RowRule{{true, false}}) : std::nullopt;
    if (node.op->is_elementwise() || node.op->access == Access::broadcast)
        return rule_of_broadcast(inputs, result, *axes);
    if (node.op == &ops::full()) return RowRule{};
    if (node.op == &ops::coordinates() && call.integer("axis") >= *axes) return RowRule{};
    if (node.op->is_view && node.op->access == Access::reshaped && row_axes(inputs[0].shape, rows))
        return RowRule{{true}};
    return {};
}

}  // namespace megjit::jit
