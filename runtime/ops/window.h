// runtime/ops/window.h -- geometry of sliding windows: what convolution and pooling share, in the
// type rules and in the kernels. Tensors are [n, c, spatial...] with 1 to 3 spatial axes.
#pragma once

#include <array>

#include "runtime/core/op.h"

namespace megjit::runtime {

struct Window {
    int dims = 0;  // spatial axes
    std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
    // Places of the window along one axis of that extent, rounded down; below 1 when the window
    // does not fit.
    int64_t places(int axis, int64_t extent) const {
        const int64_t reach = (kernel[axis] - 1) * dilation[axis] + 1,
                      room = extent + 2 * padding[axis] - reach;
        return room < 0 ? 0 : room / stride[axis] + 1;
    }
};

// "conv: cannot take f32[8, 3, 9, 9] and f32[4, 5, 3, 3]" with `why` and `fix`.
[[noreturn]] void refuse(const OpCall& call, std::string why, std::string fix = {},
                         ErrorKind kind = ErrorKind::operands);

// Places along an axis are int32: refuses an op that gives places of a longer axis.
void check_places_fit(const OpCall& call, int64_t extent);

// One value per spatial axis; a single value serves all of them. `lowest` is the least value
// allowed.
std::array<int64_t, 3> per_axis(const OpCall& call, std::string_view name, int dims,
                                int64_t lowest);

// Requires rank 3 to 5 and a floating dtype; returns the number of spatial axes.
int spatial_dims(const OpCall& call, const Type& x);

bool has_attr(const OpCall& call, std::string_view name);

// The window of `call`, from its attributes: stride and padding, and kernel and dilation if it has
// them.
Window window_of(const OpCall& call, int dims);

// Flops of a convolution are the same whichever of its three operands is the result.
double conv_flops(const Type& y, const Type& w);
double bytes_of(const OpCall& call, std::span<const Type> outputs);
inline Cost moves(const OpCall& call, std::span<const Type> outputs) {
    return {0, bytes_of(call, outputs)};
}  // computes nothing

}  // namespace megjit::runtime
