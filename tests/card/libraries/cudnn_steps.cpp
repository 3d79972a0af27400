#include "tests/card/libraries/cudnn_steps.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/card/libraries/library.h"

namespace megjit::cuda::cudnn {
namespace {

using card_libraries::cat;
using card_libraries::count_of;

Dims row_major(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
    return strides;
}

// Returns by element of `dims` which element of an array of extents `small` goes with it: those are
// the same, or 1.
std::vector<int64_t> places_in(const Dims& small, const Dims& dims) {
    Dims strides = row_major(small);
    for (size_t axis = 0; axis < small.size(); ++axis)
        if (small[axis] == 1) strides[axis] = 0;
    std::vector<int64_t> places(static_cast<size_t>(count_of(dims)));
    const Dims whole = row_major(dims);
    for (size_t i = 0; i < places.size(); ++i)
        for (size_t axis = 0; axis < dims.size(); ++axis)
            places[i] += static_cast<int64_t>(i) / whole[axis] % dims[axis] * strides[axis];
    return places;
}

// ---- products

void compute_conv(const Operands& o) {
    const int first = first_of_conv(o.step.kind);
    const Tensor &x = o.tensor(first + 4), &w = o.tensor(first + 3);
    const Window window = conv_window(o.step, w.dims);
    runtime::Attrs attrs = {window.stride, window.padding, window.dilation, x.dims[1] / w.dims[1]};
    const auto operand = [&](int port) {
        Array array = o[port];
        if (o.is_tf32) card_libraries::round_to_tf32(array);
        return array;
    };
    const auto apply = [&](const char* op, int a, int b, int result) {
        const Array left = operand(a), right = operand(b);
        o[result] = card_libraries::compute(op, {&left, &right}, attrs);
    };
    if (o.step.kind == Kind::conv_forward) return apply("conv", first + 4, first + 3, first + 5);
    const Dims& result = (o.step.kind == Kind::conv_data ? x : w).dims;
    attrs.push_back(Dims(result.begin() + 2, result.end()));
    if (o.step.kind == Kind::conv_data)
        return apply("conv_backward_data", first + 5, first + 3, first + 4);
    apply("conv_backward_filter", first + 4, first + 5, first + 3);
}

void compute_matmul(const Operands& o) {
    o[kMatmulC] =
        card_libraries::compute("matmul", {&o[kMatmulA], &o[kMatmulB]}, {int64_t{0}, int64_t{0}});
}

// ---- elements

float applied(PointwiseMode mode, float x, float b) {
    switch (mode) {
        case PointwiseMode::add: return x + b;
        case PointwiseMode::mul: return x * b;
        case PointwiseMode::max: return x > b || std::isnan(x) ? x : b;
        case PointwiseMode::div: return x / b;
        case PointwiseMode::sub: return x - b;
        case PointwiseMode::exp: return std::exp(x);
        case PointwiseMode::log: return std::log(x);
        case PointwiseMode::rsqrt: return 1 / std::sqrt(x);
        case PointwiseMode::identity: return x;
        case PointwiseMode::reciprocal: return 1 / x;
        case PointwiseMode::relu: return x > 0 || std::isnan(x) ? x : 0;
        case PointwiseMode::greater_equal: return x >= b;
        default: throw std::runtime_error(cat("pointwise mode ", static_cast<int>(mode)));
    }
}

void compute_pointwise(const Operands& o) {
    const auto mode = static_cast<PointwiseMode>(o.setting(kPointwiseMode));
    Array& y = o[o.has(kPointwiseY) ? kPointwiseY : kPointwiseDx];
    const int64_t count = count_of(y.dims);
    if (mode == PointwiseMode::coordinate) {
        const auto axis = static_cast<size_t>(o.setting(kPointwiseAxis));
        const int64_t step = row_major(y.dims)[axis];
        for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(i / step % y.dims[axis]);
        return;
    }
    const auto reader = [&](int port) {
        return [&array = o[port], places = places_in(o[port].dims, y.dims)](int64_t i) {
            return array[places[static_cast<size_t>(i)]];
        };
    };
    const auto x = reader(kPointwiseX), b = reader(o.has(kPointwiseB) ? kPointwiseB : kPointwiseX);
    if (mode == PointwiseMode::select) {
        const auto t = reader(kPointwiseT);
        for (int64_t i = 0; i < count; ++i) y[i] = t(i) != 0 ? x(i) : b(i);
        return;
    }
    if (mode == PointwiseMode::relu_gradient) {
        const auto dy = reader(kPointwiseDy);
        for (int64_t i = 0; i < count; ++i) y[i] = x(i) > 0 ? dy(i) : 0;
        return;
    }
    for (int64_t i = 0; i < count; ++i) y[i] = applied(mode, x(i), b(i));
}

void compute_reduction(const Operands& o) {
    const bool is_max = o.setting(kReductionMode) == static_cast<int64_t>(ReduceMode::max);
    const Array& x = o[kReductionX];
    Array& y = o[kReductionY];
    const std::vector<int64_t> places = places_in(y.dims, x.dims);
    std::vector<double> sums(y.data.size(),
                             is_max ? -std::numeric_limits<double>::infinity() : 0.0);
    for (size_t i = 0; i < places.size(); ++i) {
        double& sum = sums[static_cast<size_t>(places[i])];
        const double value = x.data[i];
        sum = is_max ? (value > sum || std::isnan(value) ? value : sum) : sum + value;
    }
    std::transform(sums.begin(), sums.end(), y.data.begin(),
                   [](double sum) { return static_cast<float>(sum); });
}

void compute_sums(const Operands& o) {
    const Array& x = o[kSumsX];
    Array &elements = o[kSumsOfElements], &squares = o[kSumsOfSquares];
    const std::vector<int64_t> places = places_in(elements.dims, x.dims);
    std::vector<double> sums(elements.data.size()), of_squares(sums.size());
    for (size_t i = 0; i < places.size(); ++i) {
        const auto to = static_cast<size_t>(places[i]);
        const double value = x.data[i];
        sums[to] += value;
        of_squares[to] += value * value;
    }
    const auto as_float = [](double sum) { return static_cast<float>(sum); };
    std::ranges::transform(sums, elements.data.begin(), as_float);
    std::ranges::transform(of_squares, squares.data.begin(), as_float);
}

// The same memory, seen with other extents and strides.
void compute_reshape(const Operands& o) {
    const Tensor &x = o.tensor(kReshapeX), &y = o.tensor(kReshapeY);
    std::vector<std::byte> memory(
        std::max(card_libraries::span_bytes(Element::f32, x.dims, x.strides),
                 card_libraries::span_bytes(Element::f32, y.dims, y.strides)));
    card_libraries::scatter(o[kReshapeX], memory.data(), Element::f32, x.strides);
    o[kReshapeY] = card_libraries::gather(memory.data(), Element::f32, y.dims, y.strides);
}

// ---- windows

// visit(place of y, element of x, which element of the window) for each that is no padding.
template <class Visit>
void each_of_windows(const Dims& x, const Dims& y, const Window& window, const Visit& visit) {
    const Dims steps = row_major(x), y_steps = row_major(y);
    const int64_t size = count_of(window.kernel), count = count_of(y);
    const Dims inner = row_major(window.kernel);
    for (int64_t i = 0; i < count; ++i)
        for (int64_t k = 0; k < size; ++k) {
            int64_t at = i / y_steps[0] * steps[0] + i / y_steps[1] % y[1] * steps[1];
            bool is_inside = true;
            for (size_t axis = 0; axis < window.kernel.size(); ++axis) {
                const int64_t place = i / y_steps[axis + 2] % y[axis + 2] * window.stride[axis] -
                                      window.padding[axis] + k / inner[axis] % window.kernel[axis];
                is_inside = is_inside && place >= 0 && place < x[axis + 2];
                at += place * steps[axis + 2];
            }
            if (is_inside) visit(i, at, k);
        }
}

// Returns by window what a mean divides by.
std::vector<float> divisors(ResampleMode mode, const Dims& x, const Dims& y, const Window& window) {
    std::vector<float> counts(static_cast<size_t>(count_of(y)), 0);
    if (mode == ResampleMode::mean_with_padding)
        std::fill(counts.begin(), counts.end(), static_cast<float>(count_of(window.kernel)));
    else
        each_of_windows(x, y, window,
                        [&](int64_t i, int64_t, int64_t) { ++counts[static_cast<size_t>(i)]; });
    return counts;
}

// By window: the element of x that is its largest, and which of the window's it is.
struct Largest {
    std::vector<int64_t> at, which;
};
Largest largest(const Array& x, const Dims& y, const Window& window) {
    const auto count = static_cast<size_t>(count_of(y));
    Largest found{std::vector<int64_t>(count, -1), std::vector<int64_t>(count)};
    each_of_windows(x.dims, y, window, [&](int64_t i, int64_t at, int64_t k) {
        int64_t& best = found.at[static_cast<size_t>(i)];
        const bool is_larger =
            best < 0 || x[at] > x[best] || (std::isnan(x[at]) && !std::isnan(x[best]));
        if (is_larger) best = at, found.which[static_cast<size_t>(i)] = k;
    });
    return found;
}

void compute_pool(const Operands& o) {
    const Window window = pool_window(o.step);
    const auto mode = static_cast<ResampleMode>(o.setting(kResampleMode));
    const Array& x = o[kResampleForwardX];
    Array& y = o[kResampleForwardY];
    if (mode != ResampleMode::max) {
        const std::vector<float> by = divisors(mode, x.dims, y.dims, window);
        each_of_windows(x.dims, y.dims, window,
                        [&](int64_t i, int64_t at, int64_t) { y[i] += x[at]; });
        for (size_t i = 0; i < by.size(); ++i) y.data[i] /= by[i];
        return;
    }
    const Largest found = largest(x, y.dims, window);
    for (size_t i = 0; i < found.at.size(); ++i) {
        y.data[i] = found.at[i] < 0 ? -std::numeric_limits<float>::infinity() : x[found.at[i]];
        if (o.has(kResampleForwardIndex))
            o[kResampleForwardIndex].data[i] = static_cast<float>(found.which[i]);
    }
}

void compute_pool_grad(const Operands& o) {
    const Window window = pool_window(o.step);
    const auto mode = static_cast<ResampleMode>(o.setting(kResampleMode));
    Array& dx = o[kResampleBackwardDx];
    const Array& dy = o[kResampleBackwardDy];
    std::fill(dx.data.begin(), dx.data.end(), 0.0f);
    if (mode != ResampleMode::max) {
        const std::vector<float> by = divisors(mode, dx.dims, dy.dims, window);
        each_of_windows(dx.dims, dy.dims, window, [&](int64_t i, int64_t at, int64_t) {
            dx[at] += dy[i] / by[static_cast<size_t>(i)];
        });
    } else if (o.has(kResampleBackwardIndex)) {
        const Array& index = o[kResampleBackwardIndex];
        each_of_windows(dx.dims, dy.dims, window, [&](int64_t i, int64_t at, int64_t k) {
            if (static_cast<int64_t>(index[i]) == k) dx[at] += dy[i];
        });
    } else {
        const Largest found = largest(o[kResampleBackwardX], dy.dims, window);
        for (size_t i = 0; i < found.at.size(); ++i)
            if (found.at[i] >= 0) dx[found.at[i]] += dy.data[i];
    }
}

// ---- norms: over the elements that share an element of `mean`

void compute_norm(const Operands& o) {
    const Array &x = o[kNormForwardX], &scale = o[kNormForwardScale], &bias = o[kNormForwardBias];
    Array &mean = o[kNormForwardMean], &rstd = o[kNormForwardRstd], &y = o[kNormForwardY];
    const std::vector<int64_t> group = places_in(mean.dims, x.dims),
                               weight = places_in(scale.dims, x.dims);
    const double count = static_cast<double>(x.data.size()) / static_cast<double>(mean.data.size());
    std::vector<double> means(mean.data.size()), squares(mean.data.size());
    for (size_t i = 0; i < group.size(); ++i)
        means[static_cast<size_t>(group[i])] += x.data[i] / count;
    for (size_t i = 0; i < group.size(); ++i) {
        const double apart = x.data[i] - means[static_cast<size_t>(group[i])];
        squares[static_cast<size_t>(group[i])] += apart * apart / count;
    }
    for (size_t g = 0; g < means.size(); ++g) {
        mean.data[g] = static_cast<float>(means[g]);
        rstd.data[g] = static_cast<float>(
            1 / std::sqrt(squares[g] + static_cast<double>(o[kNormForwardEps][0])));
    }
    for (size_t i = 0; i < group.size(); ++i)
        y.data[i] =
            (x.data[i] - mean[group[i]]) * rstd[group[i]] * scale[weight[i]] + bias[weight[i]];
}

void compute_norm_grad(const Operands& o) {
    const Array &x = o[kNormBackwardX], &mean = o[kNormBackwardMean], &rstd = o[kNormBackwardRstd],
                &scale = o[kNormBackwardScale], &dy = o[kNormBackwardDy];
    Array& dx = o[kNormBackwardDx];
    const std::vector<int64_t> group = places_in(mean.dims, x.dims),
                               weight = places_in(scale.dims, x.dims);
    const double count = static_cast<double>(x.data.size()) / static_cast<double>(mean.data.size());
    std::vector<double> sums(mean.data.size()), products(mean.data.size()),
        dscale(scale.data.size()), dbias(scale.data.size());
    const auto normal = [&](size_t i) { return (x.data[i] - mean[group[i]]) * rstd[group[i]]; };
    for (size_t i = 0; i < group.size(); ++i) {
        const auto g = static_cast<size_t>(group[i]), w = static_cast<size_t>(weight[i]);
        const double slope = dy.data[i] * scale.data[w];
        sums[g] += slope / count;
        products[g] += slope * normal(i) / count;
        dscale[w] += dy.data[i] * normal(i);
        dbias[w] += dy.data[i];
    }
    for (size_t i = 0; i < group.size(); ++i) {
        const auto g = static_cast<size_t>(group[i]);
        dx.data[i] = static_cast<float>(
            rstd.data[g] * (dy.data[i] * scale[weight[i]] - sums[g] - normal(i) * products[g]));
    }
    for (size_t w = 0; w < dscale.size(); ++w) {
        o[kNormBackwardDscale].data[w] = static_cast<float>(dscale[w]);
        o[kNormBackwardDbias].data[w] = static_cast<float>(dbias[w]);
    }
}

}  // namespace

int first_of_conv(Kind kind) {
    return kind == Kind::conv_forward ? kConvForward
           : kind == Kind::conv_data  ? kConvData
                                      : kConvFilter;
}

Window conv_window(const Step& step, const Dims& weights) {
    return {Dims(weights.begin() + 2, weights.end()), step.settings.at(kConvolutionStrides),
            step.settings.at(kConvolutionPaddingBefore), step.settings.at(kConvolutionDilations)};
}

Window pool_window(const Step& step) {
    const Dims& kernel = step.settings.at(kResampleWindow);
    return {kernel, step.settings.at(kResampleStrides), step.settings.at(kResamplePaddingBefore),
            Dims(kernel.size(), 1)};
}

void compute_step(const Operands& operands) {
    switch (operands.step.kind) {
        case Kind::conv_forward:
        case Kind::conv_data:
        case Kind::conv_filter: return compute_conv(operands);
        case Kind::matmul_op: return compute_matmul(operands);
        case Kind::pointwise_op: return compute_pointwise(operands);
        case Kind::reduction_op: return compute_reduction(operands);
        case Kind::sums_op: return compute_sums(operands);
        case Kind::reshape_op: return compute_reshape(operands);
        case Kind::resample_forward: return compute_pool(operands);
        case Kind::resample_backward: return compute_pool_grad(operands);
        case Kind::norm_forward: return compute_norm(operands);
        case Kind::norm_backward: return compute_norm_grad(operands);
        default: throw std::runtime_error("no operation");
    }
}

}  // namespace megjit::cuda::cudnn
