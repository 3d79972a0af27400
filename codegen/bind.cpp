// From shapes to an iteration space: broadcasting becomes strides, and axes are merged until only
// those are left that some operand walks differently.
#include <algorithm>
#include <numeric>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

// Axes of a tensor of `rank` axes in the order in which they lie in memory, outermost first.
std::vector<int> memory_order(Layout layout, int rank) {
    std::vector<int> order(rank);
    std::iota(order.begin(), order.end(), 0);
    if (layout == Layout::channels_last && rank > 2) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
    return order;
}

// Strides of `type` broadcast to `space`, per axis of space; an axis of extent 1 does not move.
std::vector<int64_t> broadcast_strides(const Type& type, const Shape& space) {
    std::vector<int64_t> own(type.rank(), 0), strides(space.rank(), 0);
    const std::vector<int> order = memory_order(type.layout, type.rank());
    int64_t step = 1;
    for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
        own[*axis] = type.shape[*axis] == 1 ? 0 : step;
        step *= std::max<int64_t>(type.shape[*axis], 1);
    }
    const int offset = space.rank() - type.rank();
    for (int axis = 0; axis < type.rank(); ++axis) strides[axis + offset] = own[axis];
    return strides;
}

struct Walk {
    std::vector<int64_t> extents;
    std::vector<std::vector<int64_t>> strides;  // per input

    bool can_merge(size_t outer) const {  // with the axis after it
        return std::all_of(strides.begin(), strides.end(), [&](const std::vector<int64_t>& s) {
            return s[outer] == s[outer + 1] * extents[outer + 1];
        });
    }
    void drop(size_t axis) {
        extents.erase(extents.begin() + static_cast<ptrdiff_t>(axis));
        for (auto& s : strides) s.erase(s.begin() + static_cast<ptrdiff_t>(axis));
    }
    void collapse() {
        for (size_t axis = extents.size(); axis-- > 0;)
            if (extents[axis] == 1) drop(axis);
        for (size_t axis = extents.size(); axis-- > 1;) {
            if (!can_merge(axis - 1)) continue;
            extents[axis] *= extents[axis - 1];
            drop(axis - 1);
        }
    }
};

Inner inner_of(int64_t stride) {
    if (stride == 0) return Inner::broadcast;
    return stride == 1 ? Inner::contiguous : Inner::strided;
}

}  // namespace

int64_t LaunchShape::numel() const {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

int64_t LaunchShape::rows() const {
    return std::accumulate(extents.begin(), extents.end() - 1, int64_t{1}, std::multiplies<>());
}

BoundKernel bind(ScalarProgram program, std::vector<int> results, std::vector<DType> outputs, const Shape& space,
                 std::span<const Type> inputs, Layout layout) {
    Walk walk;
    const std::vector<int> order = memory_order(layout, space.rank());
    for (int axis : order) walk.extents.push_back(space[axis]);
    for (const Type& type : inputs) {
        const std::vector<int64_t> logical = broadcast_strides(type, space);
        auto& strides = walk.strides.emplace_back();
        for (int axis : order) strides.push_back(logical[axis]);
    }
    // An empty space is walked by no one: any structure serves, so take the one of a flat kernel.
    if (space.numel() == 0) {
        walk.extents = {0};
        for (auto& strides : walk.strides) strides = {1};
    }
    walk.collapse();
    if (walk.extents.empty()) {  // one element in all; a tensor of one element shares the kernel of longer ones
        walk.extents = {1};
        for (size_t i = 0; i < inputs.size(); ++i) walk.strides[i] = {inputs[i].rank() > 0 && inputs[i].rank() == space.rank()};
    }

    program.keep_only(results);
    BoundKernel bound;
    bound.kernel.rank = static_cast<int>(walk.extents.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
        bound.kernel.inputs.push_back({inputs[i].dtype, inner_of(walk.strides[i].back())});
        bound.launch.strides.insert(bound.launch.strides.end(), walk.strides[i].begin(), walk.strides[i].end());
    }
    bound.kernel.outputs = std::move(outputs);
    bound.kernel.program = std::move(program);
    bound.kernel.results = std::move(results);
    bound.launch.extents = std::move(walk.extents);
    return bound;
}

BoundKernel elementwise_kernel(const OpCall& call, const Type& output) {
    ScalarProgram program;
    const int result = build_expr(call, output.dtype, program);
    return bind(std::move(program), {result}, {output.dtype}, output.shape, call.inputs, output.layout);
}

}  // namespace megjit::codegen
