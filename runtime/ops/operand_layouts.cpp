#include "runtime/ops/operand_layouts.h"

#include <algorithm>

namespace megjit::runtime {
namespace {

bool has_spatial_axes(const Type& type) { return type.rank() >= 3 && type.rank() <= 5; }

bool is_channels_last(const Type& type) { return type.layout == Layout::channels_last; }

// Has the operand, broadcast to `rank`, the same bytes in both orders? It has if at most the batch
// and the channel axis are not 1.
bool keeps_order(const Type& operand, int rank) {
    const int offset = rank - operand.rank();
    for (int axis = 0; axis < operand.rank(); ++axis)
        if (axis + offset >= 2 && operand.shape[axis] != 1) return false;
    return !is_packed(operand.layout);
}

std::vector<Layout> of_elementwise(std::span<const Type> inputs) {
    std::vector<Layout> layouts(inputs.size(), Layout::row_major);
    Shape result = inputs[0].shape;
    for (const Type& input : inputs) {
        const auto both = broadcast(result, input.shape);
        if (!both) return layouts;  // inference will report that
        result = *both;
    }
    bool any = false;
    for (const Type& input : inputs) {
        if (input.shape == result) any = any || is_channels_last(input);
        else if (!keeps_order(input, result.rank())) return layouts;
    }
    if (!any) return layouts;
    for (size_t i = 0; i < inputs.size(); ++i)
        layouts[i] = inputs[i].shape == result ? Layout::channels_last : inputs[i].layout;
    return layouts;
}

}  // namespace

std::vector<Layout> operand_layouts(const OpDef& op, std::span<const Type> inputs,
                                    ChannelsLast channels_last) {
    if (op.is_elementwise() && !inputs.empty()) return of_elementwise(inputs);
    // Bytes are the activations of convolutions alone: pooling has no channels-last loops for them.
    const auto may_lie_so = [&](size_t i) {
        return has_spatial_axes(inputs[i]) &&
               (op.follows_layout || (op.kind_of(i) == OperandKind::activation &&
                                      (op.prefers_channels_last || is_floating(inputs[i].dtype))));
    };
    bool wants = channels_last == ChannelsLast::everywhere && !op.follows_layout;
    for (size_t i = 0; i < inputs.size(); ++i)
        wants = wants || (may_lie_so(i) && is_channels_last(inputs[i]));
    std::vector<Layout> layouts(inputs.size(), Layout::row_major);
    for (size_t i = 0; i < inputs.size(); ++i) {
        const Layout own = inputs[i].layout;
        if (is_packed(own))
            layouts[i] = op.kind_of(i) == OperandKind::weights ? own : Layout::row_major;
        else if (wants && may_lie_so(i))
            layouts[i] = i > 0 && !op.follows_layout && keeps_order(inputs[i], inputs[i].rank())
                             ? own
                             : Layout::channels_last;
    }
    return layouts;
}

}  // namespace megjit::runtime
