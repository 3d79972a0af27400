#include "codegen/strides.h"

#include <algorithm>
#include <numeric>

namespace megjit::codegen {

using namespace runtime;

std::vector<int> memory_order(Layout layout, int rank) {
    std::vector<int> order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    if (layout == Layout::channels_last && rank > 2)
        std::rotate(order.begin() + 1, order.begin() + 2, order.end());
    return order;
}

std::vector<int64_t> dense_strides(const Type& type) {
    std::vector<int64_t> strides(static_cast<size_t>(type.rank()));
    int64_t step = 1;
    const std::vector<int> order = memory_order(type.layout, type.rank());
    for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
        strides[static_cast<size_t>(*axis)] = step;
        step *= std::max<int64_t>(type.shape[*axis], 1);
    }
    return strides;
}

std::vector<int64_t> broadcast_strides(const Shape& shape, const std::vector<int64_t>& own,
                                       const Shape& space) {
    std::vector<int64_t> strides(static_cast<size_t>(space.rank()), 0);
    const int offset = space.rank() - shape.rank();
    for (int axis = 0; axis < shape.rank(); ++axis)
        if (shape[axis] != 1)
            strides[static_cast<size_t>(axis + offset)] = own[static_cast<size_t>(axis)];
    return strides;
}

}  // namespace megjit::codegen
