// tests/fuzz/random_convolution.h -- a random convolution: one to three spatial axes, with steps,
// padding, dilation and groups.
#pragma once

#include "runtime/core/op.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::fuzz {

struct RandomConvolution {
    runtime::Shape x, w;
    runtime::Attrs window;  // stride, padding, dilation, groups

    // The attributes of a gradient: those of the window, and the spatial extents of what it gives.
    runtime::Attrs of_gradient(const runtime::Shape& result) const {
        runtime::Attrs attrs = window;
        attrs.emplace_back(std::vector<int64_t>(result.begin() + 2, result.end()));
        return attrs;
    }
};

// A convolution of images of the shape `x`, which has three to five axes.
inline RandomConvolution random_convolution(codegen::Random& random, const runtime::Shape& x) {
    using Ints = std::vector<int64_t>;
    Ints groups, stride, padding, dilation;
    for (int64_t count = 1; count <= x[1]; ++count)
        if (x[1] % count == 0) groups.push_back(count);
    const int64_t group = random.range(0, 1) ? 1 : groups.empty() ? 1 : random.pick(groups);
    runtime::Shape w{group * random.range(1, group > 4 ? 2 : 9), x[1] / group};
    for (int axis = 2; axis < x.rank(); ++axis) {
        w.push_back(random.pick(Ints{1, 1, 2, 3, 3, 5}));
        stride.push_back(random.pick(Ints{1, 1, 1, 2, 3}));
        padding.push_back(random.range(0, w[axis] - 1));
        dilation.push_back(random.range(0, 3) ? 1 : 2);
    }
    return {x, w, {stride, padding, dilation, group}};
}

// Images for a convolution.
inline runtime::Shape random_images(codegen::Random& random) {
    const std::vector<int64_t> channels = {1, 2, 3, 4, 6, 8, 16, 17}, extents = {1, 3, 5, 8, 9, 14};
    runtime::Shape x{random.range(1, 3), random.pick(channels)};
    for (int64_t dims = random.range(1, 3); dims > 0; --dims)
        x.push_back(dims == 3 ? random.range(1, 5) : random.pick(extents));
    return x;
}

}  // namespace megjit::fuzz
