#include "jit/plan/passes/strided_view.h"

namespace megjit::jit {
namespace {

using Ints = std::vector<int64_t>;

// Axes of extent 1 have no place of their own.
void drop_single_axes(StridedView& view) {
    size_t kept = 0;
    for (size_t axis = 0; axis < view.extents.size(); ++axis) {
        if (view.extents[axis] == 1) continue;
        view.extents[kept] = view.extents[axis];
        view.strides[kept++] = view.strides[axis];
    }
    view.extents.resize(kept), view.strides.resize(kept);
}

// Takes axes of both sides until they have equally many elements; those of the view must be
// neighbours in memory. Both sides have the same number of elements, not 0.
std::optional<StridedView> reshaped(StridedView view, const runtime::Shape& shape) {
    drop_single_axes(view);
    StridedView made{view.offset, Ints(shape.begin(), shape.end()),
                     Ints(static_cast<size_t>(shape.rank()))};
    size_t from = 0, to = 0;
    while (from < view.extents.size()) {
        size_t from_end = from + 1, to_end = to + 1;
        int64_t own = view.extents[from], other = made.extents[to];
        while (own != other) {
            if (other < own) {
                other *= made.extents[to_end++];
                continue;
            }
            if (view.strides[from_end - 1] != view.extents[from_end] * view.strides[from_end])
                return {};
            own *= view.extents[from_end++];
        }
        int64_t stride = view.strides[from_end - 1];
        for (size_t axis = to_end; axis-- > to; stride *= made.extents[axis])
            made.strides[axis] = stride;
        from = from_end, to = to_end;
    }
    return made;
}

StridedView transposed(const StridedView& view, const Ints& perm) {
    StridedView made{.offset = view.offset};
    for (const int64_t axis : perm) {
        made.extents.push_back(view.extents[static_cast<size_t>(axis)]);
        made.strides.push_back(view.strides[static_cast<size_t>(axis)]);
    }
    return made;
}

const Ints& ints(const Node& node, size_t attr) { return std::get<Ints>(node.attrs[attr]); }

}  // namespace

StridedView whole_view(const runtime::Shape& shape) {
    const auto strides = shape.row_major_strides();
    return {0, Ints(shape.begin(), shape.end()),
            Ints(strides.begin(), strides.begin() + shape.rank())};
}

bool is_moved_view(const Node& node) {
    return node.kind == NodeKind::op &&
           (node.op == &ops::reshape() || node.op == &ops::transpose() || node.op == &ops::slice());
}

std::optional<StridedView> move_view(const Graph& graph, const Node& node,
                                     const StridedView& view) {
    const runtime::Shape& shape = graph.type(node.outputs[0]).shape;
    if (shape.numel() == 0) return {};
    if (node.op == &ops::transpose()) return transposed(view, ints(node, 0));
    if (node.op == &ops::slice()) return region_view(view, node.attrs, shape);
    return reshaped(view, shape);
}

std::optional<StridedView> move_back(const Graph& graph, const Node& node,
                                     const StridedView& view) {
    const runtime::Shape& shape = graph.type(node.inputs[0]).shape;
    if (shape.numel() == 0 || node.op == &ops::slice()) return {};
    if (node.op == &ops::reshape()) return reshaped(view, shape);
    const Ints& perm = ints(node, 0);
    Ints back(perm.size());
    for (size_t axis = 0; axis < perm.size(); ++axis)
        back[static_cast<size_t>(perm[axis])] = static_cast<int64_t>(axis);
    return transposed(view, back);
}

StridedView region_view(const StridedView& view, const runtime::Attrs& region,
                        const runtime::Shape& extents) {
    const auto &begin = std::get<Ints>(region[0]), &step = std::get<Ints>(region[2]);
    StridedView made{.offset = view.offset, .extents = Ints(extents.begin(), extents.end())};
    for (size_t axis = 0; axis < begin.size(); ++axis) {
        made.offset += begin[axis] * view.strides[axis];
        made.strides.push_back(step[axis] * view.strides[axis]);
    }
    return made;
}

}  // namespace megjit::jit
