#include "runtime/ops/region.h"

namespace megjit::runtime {

int64_t Region::numel() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= axes[i].extent;
    return count;
}

Region Region::merged() const {
    Region r;
    for (int i = 0; i < rank; ++i) {
        const Axis& axis = axes[i];
        if (axis.extent == 1) continue;
        Axis* last = r.rank ? &r.axes[r.rank - 1] : nullptr;
        if (last && last->from == axis.from * axis.extent && last->to == axis.to * axis.extent)
            *last = {last->extent * axis.extent, axis.from, axis.to};
        else r.push(axis.extent, axis.from, axis.to);
    }
    if (r.rank == 0) r.push(1, 1, 1);
    return r;
}

Split split_at(const Shape& shape, int axis) {
    Split s{.length = shape[axis]};
    for (int i = 0; i < axis; ++i) s.outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) s.inner *= shape[i];
    return s;
}

}  // namespace megjit::runtime
