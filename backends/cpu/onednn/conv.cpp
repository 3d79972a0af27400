// backends/cpu/onednn/conv.cpp -- convolution and its gradients by oneDNN. Ours are, for float32,
// gradients of weights (kernels/filter_gradient.h, kernels/grouped_filter_gradient.h) and many
// depthwise and grouped convolutions (kernels/grouped_conv.h), and for float64 all
// (kernels/window_product.h).
// Row-major activations go through the layout that the primitive prefers; channels_last ones are
// passed as they are (dnn.h has the measurements). Weights go through the preferred layout, unless
// they were packed into it.
//
// A channels_last convolution of 1x1 in steps of 1 is a product of two matrices, which reorders
// nothing. Time as a product over time as a convolution, for layers of ResNet-50 (batch 4, f32, two
// cores of a Zen 5, oneDNN 3.2):
//                        forward       data
//   64-256    at 56 x 56   1.15          0.95
//   128-512   at 28 x 28   1.13          0.95, 1.09
//   256-1024  at 14 x 14   1.03, 1.02    0.87, 1.10
//   512-2048  at 7 x 7     0.75          0.78
// (Two numbers: to the larger and to the smaller number of channels.) So it is one if there are
// fewer pixels than channels, for then most bytes are weights.
//
// In row-major order such a convolution is a product for each image, y [oc, pixels] = w [oc, ic] x
// [ic, pixels], if there are enough pixels (runtime/ops/conv.h). Forward and data take 0.5 to 0.8
// of a convolution's time at 56 x 56 and 28 x 28, 1.3 to 1.9 at 14 x 14 and 7 x 7 (batch 8, two
// cores of a Zen 1).
#include <algorithm>

#include "backends/cpu/convert.h"
#include "backends/cpu/in_parts.h"
#include "backends/cpu/kernels/filter_gradient.h"
#include "backends/cpu/kernels/grouped_conv.h"
#include "backends/cpu/kernels/grouped_filter_gradient.h"
#include "backends/cpu/kernels/window_product.h"
#include "backends/cpu/kernels/winograd.h"
#include "backends/cpu/onednn/dnn.h"
#include "backends/cpu/onednn/dnn_epilogue.h"
#include "backends/cpu/onednn/dnn_packed.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {
namespace {

using dnn::Dims;
using dnnl::memory;
using runtime::ConvProblem;
using runtime::Layout;
using runtime::OpCall;
using runtime::Type;
using Role = runtime::ConvRole;

// Drops last axes of one place: oneDNN computes a run of places along the last axis at once, which
// in a column (512 x 1, from a text) is one place. A column of 512 places, 256 channels and five
// taps took 16 ms, as a row 3 ms.
ConvProblem of_rows(ConvProblem p) {
    const auto is_single = [](const Type& type) { return type.shape[type.rank() - 1] == 1; };
    const auto drop = [](Type& type) {
        type.shape =
            runtime::Shape(type.shape.extents().first(static_cast<size_t>(type.rank() - 1)));
    };
    while (p.window.dims > 1 && p.window.padding[p.window.dims - 1] == 0 && is_single(p.x) &&
           is_single(p.w) && is_single(p.y)) {
        for (Type* type : {&p.x, &p.w, &p.y}) drop(*type);
        --p.window.dims;
    }
    return p;
}

// A problem in the form that oneDNN sees.
struct Convolution : ConvProblem {
    explicit Convolution(ConvProblem problem)
        : ConvProblem(std::move(problem)),
          slides(dnn::slides_of(window)),
          dtype(dnn::data_type(x.dtype)),
          any_layout(x.layout == Layout::row_major && y.layout == Layout::row_major) {}

    dnn::Slides slides;
    memory::data_type dtype;
    bool any_layout;  // oneDNN may choose the layout of x and y

    memory::desc activation(const Type& type) const {
        return dnn::activation_of(type, dtype, any_layout);
    }
    memory::desc weights() const { return dnn::weights_of(w, groups, dtype, true); }
    memory::desc dense_weights() const { return dnn::weights_of(w, groups, dtype, false); }
};

// Does the window reach over a short first axis of three, or begin further outside than half of it?
// Then the loops that oneDNN 3.2 prefers give wrong gradients of weights. Its products of matrices,
// which it takes for row-major operands, give right ones.
bool is_wrong_in_loops(const Convolution& p, Role role) {
    const runtime::Window& window = p.window;
    const int64_t reach = (window.kernel[0] - 1) * window.dilation[0] + 1;
    return role == Role::filter && window.dims == 3 && window.padding[0] > 0 &&
           (2 * window.padding[0] >= reach || p.x.shape[2] < reach);
}

memory::desc in_rows(Type type) {
    type.layout = Layout::row_major;
    return dnn::desc_of(type);
}

dnnl::primitive_desc_base create(const Convolution& p, Role role,
                                 const dnnl::primitive_attr& attr = dnn::attributes(),
                                 const memory::desc& bias = {}) {
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const bool by_products = is_wrong_in_loops(p, role);
    const memory::desc x = by_products ? in_rows(p.x) : p.activation(p.x),
                       w = by_products ? p.dense_weights() : p.weights(),
                       y = by_products ? in_rows(p.y) : p.activation(p.y);
    const auto& [stride, dilation, padding] = p.slides;
    const auto kind = role == Role::forward ? dnnl::prop_kind::forward_inference
                                            : dnnl::prop_kind::forward_training;
    const dnnl::convolution_forward::primitive_desc forward(
        dnn::engine(), kind, algorithm, x, w, bias, y, stride, dilation, padding, padding, attr);
    switch (role) {
        case Role::forward: return forward;
        case Role::data:
            return dnnl::convolution_backward_data::primitive_desc(dnn::engine(), algorithm, x, w,
                                                                   y, stride, dilation, padding,
                                                                   padding, forward, attr);
        case Role::filter: break;
    }
    return dnnl::convolution_backward_weights::primitive_desc(
        dnn::engine(), algorithm, x, w, y, stride, dilation, padding, padding, forward, attr);
}

// The operands and results of the role's primitive, as they lie in memory.
std::vector<dnn::Operand> operands_of(const Convolution& p, Role role) {
    const memory::desc x = dnn::desc_of(p.x), w = dnn::desc_of_weights(p.w, p.dense_weights()),
                       y = dnn::desc_of(p.y);
    switch (role) {
        case Role::forward:
            return {{DNNL_ARG_SRC, false, 0, x},
                    {DNNL_ARG_WEIGHTS, false, 1, w},
                    {DNNL_ARG_DST, true, 0, y}};
        case Role::data:
            return {{DNNL_ARG_DIFF_DST, false, 0, y},
                    {DNNL_ARG_WEIGHTS, false, 1, w},
                    {DNNL_ARG_DIFF_SRC, true, 0, x}};
        case Role::filter: break;
    }
    return {{DNNL_ARG_SRC, false, 0, x},
            {DNNL_ARG_DIFF_DST, false, 1, y},
            {DNNL_ARG_DIFF_WEIGHTS, true, 0, w}};
}

// Is a product of matrices faster, for results and data?
bool is_product(const Convolution& p) {
    if (p.w.layout != Layout::row_major || p.dtype != memory::data_type::f32 ||
        !runtime::is_pointwise(p))
        return false;
    if (p.any_layout) return runtime::multiplies_images(p);
    return p.x.layout == p.y.layout &&
           p.x.numel() / p.x.shape[1] < std::min(p.w.shape[0], p.w.shape[1]);
}

// The product that computes the role: dst = src weights. Channels-last x is [pixels, ic], w [oc,
// ic] and y [pixels, oc]; row-major ones are [images, ic, pixels], [1, oc, ic] and [images, oc,
// pixels].
struct Pointwise {
    Pointwise(const Convolution& p, Role role) {
        const int64_t images = p.any_layout ? p.x.shape[0] : 1, ic = p.x.shape[1],
                      oc = p.y.shape[1], pixels = p.x.numel() / ic / images;
        const auto matrix = [&](int64_t count, int64_t rows, int64_t columns, bool turned = false) {
            Dims dims{rows, columns}, strides{turned ? 1 : columns, turned ? rows : 1};
            if (p.any_layout) {
                dims.insert(dims.begin(), count);
                strides.insert(strides.begin(), rows * columns);
            }
            return memory::desc(dims, p.dtype, strides);
        };
        const auto reads = [&](memory::desc a, int input_a, memory::desc b, int input_b) {
            src = {DNNL_ARG_SRC, false, input_a, std::move(a)};
            weights = {DNNL_ARG_WEIGHTS, false, input_b, std::move(b)};
        };
        const int64_t channels = role == Role::data ? ic : oc;
        if (role == Role::data) {
            if (p.any_layout) reads(matrix(1, ic, oc, true), 1, matrix(images, oc, pixels), 0);
            else reads(matrix(1, pixels, oc), 0, matrix(1, oc, ic), 1);
        } else {
            if (p.any_layout) reads(matrix(1, oc, ic), 1, matrix(images, ic, pixels), 0);
            else reads(matrix(1, pixels, ic), 0, matrix(1, ic, oc, true), 1);
        }
        dst = {DNNL_ARG_DST, true, 0,
               p.any_layout ? matrix(images, channels, pixels) : matrix(1, pixels, channels)};
    }
    dnnl::primitive_desc_base create(const dnnl::primitive_attr& attr = dnn::attributes()) const {
        return dnnl::matmul::primitive_desc(dnn::engine(), src.desc, weights.desc, dst.desc, attr);
    }
    std::vector<dnn::Operand> operands() const { return {src, weights, dst}; }
    dnn::Operand src, weights, dst;
};

Prepared prepare(const OpCall& call, const Convolution& p, Role role) {
    if (role != Role::filter && is_product(p)) {
        const Pointwise product(p, role);
        return dnn::make(call, [product] { return product.create(); }, product.operands());
    }
    return dnn::make(call, [p, role] { return create(p, role); }, operands_of(p, role));
}

void check_weights(const OpCall& call, Role role, const Type& w) {
    if (w.layout == Layout::channels_last ||
        (role != Role::forward && w.layout != Layout::row_major))
        throw runtime::InternalError(
            runtime::cat(call.op.name, ": weights in layout ", to_string(w)));
}

bool is_packed_for_groups(const ConvProblem& p) {
    return !dnn::is_winograd(p.w.layout) &&
           dnn::is_packed_for(
               dnn::weights_of(p.w, p.groups, dnn::data_type(p.w.dtype), /*any_layout=*/false),
               p.w);
}

// Does a tap of the window lie in the padding at every place?
bool has_idle_taps(const ConvProblem& p) {
    for (int axis = 0; axis < p.window.dims; ++axis)
        for (int64_t tap = 0; tap < p.window.kernel[axis]; ++tap) {
            const int64_t step = p.window.stride[axis],
                          first = tap * p.window.dilation[axis] - p.window.padding[axis],
                          place = first < 0 ? (step - 1 - first) / step : 0;  // the first inside
            if (place >= p.y.shape[axis + 2] || first + place * step >= p.x.shape[axis + 2])
                return true;
        }
    return false;
}

// oneDNN 3.2 computes in float16 on CPUs that can, but many gradients go through its reference
// loops: all of filters, and of data where steps are 2 or there are groups (200 to 500 times
// float32's time). In bfloat16 it writes what was in memory as the gradients of idle taps.
bool computes_as_it_is(const ConvProblem& p, Role role) {
    if (role == Role::filter && p.x.dtype == runtime::DType::bf16 && has_idle_taps(p)) return false;
    return computes_natively(p.x.dtype) &&
           (p.x.dtype != runtime::DType::f16 || role == Role::forward);
}

// Prepares a convolution of float64, with activations in row-major order.
template <Role role>
Prepared prepare_wide_conv(const OpCall& call, std::span<const Type> outputs) {
    const ConvProblem p = runtime::conv_problem(call, outputs, role);
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return make_zeros(outputs);
    Type rows = p.x;
    rows.layout = Layout::row_major;
    if (Prepared converted = in_float32_like(rows, call, outputs, prepare_wide_conv<role>))
        return converted;
    return prepare_window_products(p, role);
}

// Prepares for weights in row-major order or packed, and a dtype that this CPU computes in.
template <Role role>
Prepared prepare_conv(const OpCall& call, std::span<const Type> outputs) {
    if (outputs[0].dtype == runtime::DType::f64) return prepare_wide_conv<role>(call, outputs);
    const ConvProblem p = of_rows(runtime::conv_problem(call, outputs, role));
    check_weights(call, role, p.w);
    if (role == Role::forward && dnn::is_winograd(p.w.layout) && takes_winograd(p))
        return prepare_winograd(p);
    if (!is_packed_for_groups(p)) return dnn::unpacking(call, outputs, prepare_conv<role>);
    if (!computes_as_it_is(p, role)) return in_float32(call, outputs, prepare_conv<role>);
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return make_zeros(outputs);
    if (role == Role::filter && takes_filter_gradient(p)) return prepare_filter_gradient(p);
    if (role == Role::filter && takes_grouped_filter_gradient(p))
        return prepare_grouped_filter_gradient(p);
    constexpr PrepareOp again = prepare_conv<role>;
    if (Prepared parts = role == Role::filter ? sum_by_images(call, outputs, again)
                                              : by_images(call, outputs, {true, false}, again))
        return parts;
    if (role != Role::filter && takes_grouped_conv(p, role)) return prepare_grouped_conv(p, role);
    return prepare(call, Convolution(p), role);
}

Prepared prepare_conv_epilogue(const OpCall& call, std::span<const Type> outputs) {
    const ConvProblem problem = of_rows(runtime::conv_problem(call, outputs));
    const Type &x = problem.x, &w = problem.w, &y = problem.y;
    check_weights(call, Role::forward, w);
    if (y.numel() == 0) return make_zeros(outputs);
    if (dnn::is_winograd(w.layout) && takes_winograd(problem)) return prepare_winograd(problem);
    if (!is_packed_for_groups(problem)) return dnn::unpacking(call, outputs, prepare_conv_epilogue);
    if (Prepared parts =
            by_images(call, outputs, with_images(call, problem.steps), prepare_conv_epilogue))
        return parts;
    const memory::desc result = dnn::desc_of(y);
    if (x.numel() == 0 || w.numel() == 0)
        return dnn::epilogue_after(make_zeros(outputs), problem.steps, result, 1);
    if (takes_grouped_conv(problem, Role::forward))
        return dnn::epilogue_after(prepare_grouped_conv(problem, Role::forward), problem.steps,
                                   result, 1);
    const Convolution p(problem);
    if (is_product(p)) {
        const Pointwise product(p, Role::forward);
        return dnn::make_with_epilogue(
            call, p.steps, [product](const dnnl::primitive_attr& attr, const memory::desc&) {
            return product.create(attr);
        }, product.operands(), product.dst.desc, 1);
    }
    const memory::desc bias({w.shape[0]}, p.dtype, memory::format_tag::a);
    const auto with = [p](const dnnl::primitive_attr& attr, const memory::desc& bias) {
        return create(p, Role::forward, attr, bias);
    };
    return dnn::make_with_epilogue(call, p.steps, with, operands_of(p, Role::forward), result, 1,
                                   bias);
}

Layout packed_conv_weights(const OpCall& call, std::span<const Type> outputs) {
    const ConvProblem problem = of_rows(runtime::conv_problem(call, outputs));
    const Type& w = problem.w;
    if (w.dtype != runtime::DType::f32 || problem.x.numel() == 0 || w.numel() == 0 ||
        problem.y.numel() == 0 || takes_grouped_conv(problem, Role::forward))
        return Layout::row_major;
    const Convolution p(problem);
    if (p.any_layout && is_product(p)) return Layout::row_major;
    if (suits_winograd(p)) return dnn::winograd_layout(w, p.dense_weights());
    return dnn::packed_layout(
        dnn::preferred([&] { return create(p, Role::forward); }, DNNL_ARG_WEIGHTS),
        p.dense_weights());
}

}  // namespace

void register_conv_kernels() {
    register_kernel("conv", prepare_conv<Role::forward>);
    register_kernel("conv_epilogue", prepare_conv_epilogue);
    register_kernel("conv_backward_data", prepare_conv<Role::data>);
    register_kernel("conv_backward_filter", prepare_conv<Role::filter>);
    for (const char* op : {"conv", "conv_epilogue"}) register_packing(op, packed_conv_weights);
}

}  // namespace megjit::cpu
