// runtime/ops/loop.h -- Loop: one step of an op that computes step after step (OpDef::loop). A
// device without a kernel of its own for such an op runs it as a scan
// (jit/plan/ops/control_flow.h); the gradient of a gradient is that of its steps, unrolled.
#pragma once

#include <functional>

#include "runtime/eager/dispatch.h"

namespace megjit::runtime {

// Maps (carries, x[t]) to (carries, y[t]) for each element of the slices.
struct Loop {
    using Step = std::function<Tensors(std::span<const TensorRef> carries,
                                       std::span<const TensorRef> slices)>;

    Tensors carries = {};  // what the first step gets
    Tensors slices = {};  // hold an element for each step along axis 0; there is at least one slice
    bool is_reverse = false;  // the steps go from the last element to the first
    size_t returned = 0;  // the op returns all y, stacked, and this many of the last carries
    Step step = {};  // returns the next carries, then y; it may read any other tensors, too

    int64_t steps() const { return slices[0]->shape()[0]; }
    // Makes the op's results from the last carries and all y.
    Tensors results(std::span<const TensorRef> last_carries, std::span<const TensorRef> ys) const;
};

// The op's results, with each step written out.
Tensors unrolled(const OpCall& call, std::span<const TensorRef> inputs);

}  // namespace megjit::runtime
