#include "backends/cpu/kernels/window_product.h"

#include <algorithm>
#include <array>

#include "backends/cpu/kernels/contraction.h"

namespace megjit::cpu {
namespace {

using runtime::ConvProblem;
using runtime::Type;
using Role = runtime::ConvRole;
using Axes = std::array<int64_t, 3>;

Axes spatial(const Type& type) {
    Axes extents = {1, 1, 1};
    for (int axis = 2; axis < type.rank(); ++axis) extents[axis - 2] = type.shape[axis];
    return extents;
}
int64_t product_of(const Axes& axes) { return axes[0] * axes[1] * axes[2]; }
Axes axes_at(int64_t index, const Axes& extents) {
    return {index / (extents[1] * extents[2]), index / extents[2] % extents[1], index % extents[2]};
}

// A window of three axes; those that it does not have are of one tap.
runtime::Window in_three_axes(runtime::Window window) {
    for (int axis = window.dims; axis < 3; ++axis)
        window.kernel[axis] = window.stride[axis] = window.dilation[axis] = 1,
        window.padding[axis] = 0;
    return window;
}

// Reads the elements of an image that meet a tap of the window: for forward and filter those of x
// at a place of y, for data those of y to which a pixel of x contributes.
struct Windows {
    Windows(const ConvProblem& p, Role role)
        : window(in_three_axes(p.window)),
          is_data(role == Role::data),
          places(spatial(is_data ? p.x : p.y)),
          image(spatial(is_data ? p.y : p.x)) {}

    int64_t taps() const { return product_of(window.kernel); }

    // The image's index along an axis; -1 outside.
    int64_t index(int axis, int64_t place, int64_t tap) const {
        const int64_t reach = tap * window.dilation[axis] - window.padding[axis],
                      step = window.stride[axis];
        int64_t at = is_data ? place - reach : place * step + reach;
        if (is_data) at = at >= 0 && at % step == 0 ? at / step : -1;
        return at < image[axis] ? at : -1;
    }

    // to[i * step] = the elements for `count` places from `first` on, at one tap of a channel.
    template <class T>
    void gather(const T* channel, int64_t tap, int64_t first, int64_t count, T* to,
                int64_t step) const {
        const Axes at_tap = axes_at(tap, window.kernel);
        Axes place = axes_at(first, places);
        for (int64_t i = 0; i < count; ++place[2] = 0) {
            const int64_t a = index(0, place[0], at_tap[0]), b = index(1, place[1], at_tap[1]);
            const T* const row = channel + (a * image[1] + b) * image[2];
            const bool is_inside = a >= 0 && b >= 0;
            for (; place[2] < places[2] && i < count; ++place[2], ++i) {
                const int64_t c = is_inside ? index(2, place[2], at_tap[2]) : -1;
                to[i * step] = c >= 0 ? row[c] : 0;
            }
            if (++place[1] == places[1]) place[1] = 0, ++place[0];
        }
    }

    const runtime::Window window;
    const bool is_data;
    const Axes places, image;
};

// w [groups, out, in, taps] as [groups, in, out, taps].
template <class T>
void swap_channels(const T* w, int64_t groups, int64_t out, int64_t in, int64_t taps, T* to) {
    for (int64_t g = 0; g < groups; ++g)
        for (int64_t i = 0; i < in; ++i)
            for (int64_t o = 0; o < out; ++o, to += taps)
                std::copy_n(w + ((g * out + o) * in + i) * taps, taps, to);
}

// Forward and data: results [images, groups, rows, places], each the product of the group's weights
// [rows, channels * taps] and the gathered windows of `channels`.
template <class T>
struct Activations {
    Activations(const ConvProblem& p, Role role)
        : windows(p, role),
          images(p.x.shape[0]),
          groups(p.groups),
          rows((role == Role::data ? p.x : p.y).shape[1] / p.groups),
          channels((role == Role::data ? p.y : p.x).shape[1] / p.groups) {}

    void run(const T* from, const T* weights, T* to) const {
        const int64_t taps = windows.taps(), terms = channels * taps,
                      places = product_of(windows.places), size = product_of(windows.image);
        each_tile<T>(images * groups, rows, places, terms,
                     [&](int64_t batch, ContractionTile<T>& tile) {
            const T* const first = from + batch * channels * size;
            tile.add({weights + batch % groups * rows * terms, terms, 1}, terms,
                     [&](int64_t term, int64_t count, T* block) {
                for (int64_t t = 0; t < count; ++t)
                    windows.gather(first + (term + t) / taps * size, (term + t) % taps, tile.column,
                                   tile.columns, block + t * ContractionTile<T>::kColumns, 1);
            });
            tile.store(to + batch * rows * places, places);
        });
    }

    const Windows windows;
    const int64_t images, groups, rows, channels;
};

// Filter: gradients [groups, rows, channels * taps], sums over images and places of y's gradient.
template <class T>
struct Filters {
    explicit Filters(const ConvProblem& p)
        : windows(p, Role::filter),
          images(p.x.shape[0]),
          groups(p.groups),
          rows(p.y.shape[1] / p.groups),
          channels(p.x.shape[1] / p.groups) {}

    void run(const T* x, const T* dy, T* to) const {
        const int64_t taps = windows.taps(), columns = channels * taps,
                      places = product_of(windows.places), size = product_of(windows.image);
        each_tile<T>(groups, rows, columns, images * places,
                     [&](int64_t group, ContractionTile<T>& tile) {
            for (int64_t image = 0; image < images; ++image) {
                const int64_t own = image * groups + group;
                tile.add({dy + own * rows * places, places, 1}, places,
                         [&](int64_t term, int64_t count, T* block) {
                    for (int64_t c = 0; c < tile.columns; ++c) {
                        const int64_t column = tile.column + c;
                        windows.gather(x + (own * channels + column / taps) * size, column % taps,
                                       term, count, block + c, ContractionTile<T>::kColumns);
                    }
                });
            }
            tile.store(to + group * rows * columns, columns);
        });
    }

    const Windows windows;
    const int64_t images, groups, rows, channels;
};

template <class T>
Prepared prepare_forward(const ConvProblem& p) {
    return executable(
        [a = Activations<T>(p, Role::forward)](void* const* in, void* const* out, void*) {
        a.run(static_cast<const T*>(in[0]), static_cast<const T*>(in[1]), static_cast<T*>(out[0]));
    });
}

template <class T>
Prepared prepare_data(const ConvProblem& p) {
    return executable(
        [a = Activations<T>(p, Role::data)](void* const* in, void* const* out, void* work) {
        auto* const weights = static_cast<T*>(work);
        swap_channels(static_cast<const T*>(in[1]), a.groups, a.channels, a.rows, a.windows.taps(),
                      weights);
        a.run(static_cast<const T*>(in[0]), weights, static_cast<T*>(out[0]));
    }, p.w.bytes());
}

template <class T>
Prepared prepare_filter(const ConvProblem& p) {
    return executable([f = Filters<T>(p)](void* const* in, void* const* out, void*) {
        f.run(static_cast<const T*>(in[0]), static_cast<const T*>(in[1]), static_cast<T*>(out[0]));
    });
}

}  // namespace

Prepared prepare_window_products(const ConvProblem& p, Role role) {
    switch (role) {
        case Role::forward: return prepare_forward<double>(p);
        case Role::data: return prepare_data<double>(p);
        case Role::filter: break;
    }
    return p.x.dtype == runtime::DType::f64 ? prepare_filter<double>(p) : prepare_filter<float>(p);
}

}  // namespace megjit::cpu
