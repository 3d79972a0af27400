// runtime/ops/conv.cpp -- convolution (cross-correlation) and its two gradients, 1-d to 3-d. Each
// of the three is differentiated by the other two, so that gradients of any order exist.
//   conv:                  y  = x * w        x [n, c, spatial...]   w [oc, c / groups, kernel...]
//   conv_backward_data:    dx from dy and w  also the transposed convolution
//   conv_backward_filter:  dw from x and dy
//   conv_epilogue:         conv, and steps on its result (epilogue.h)
//   conv_backward_data_epilogue: likewise
//   conv_backward_data_sums: likewise, and sums by channel for the gradient of a batch norm
//   conv_stats:            conv, and the sums that statistics by channel need
// Rules (cited by messages and tests):
//   C1 one floating dtype          C2 rank 3 to 5, the same for both operands
//   C3 groups divides the channels of both sides, and w has c / groups input channels
//   C4 one stride, padding and dilation per spatial axis
//   C5 the window fits into the padded extent
//   C6 dy has the batch, channels and extents that conv would give
//   C7 each pair behind the gradient's operands is a tensor like the result, and a float32 for each
//      of its channels
#include "runtime/ops/conv.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "runtime/ops/builders.h"
#include "runtime/ops/known.h"

namespace megjit::runtime {
namespace {

using build::op;

const std::vector<AttrSpec> kWindowAttrs = {
    {"stride", AttrKind::integers, Attr{std::vector<int64_t>{1}}},
    {"padding", AttrKind::integers, Attr{std::vector<int64_t>{0}}},
    {"dilation", AttrKind::integers, Attr{std::vector<int64_t>{1}}},
    {"groups", AttrKind::integer, Attr{int64_t{1}}},
};

std::vector<AttrSpec> window_attrs_and(std::string_view name, AttrKind kind) {
    std::vector<AttrSpec> attrs = kWindowAttrs;
    attrs.push_back({name, kind});
    return attrs;
}

std::vector<AttrSpec> backward_data_epilogue_attrs() {
    std::vector<AttrSpec> attrs = window_attrs_and("input_shape", AttrKind::integers);
    attrs.push_back({"epilogue", AttrKind::text});
    return attrs;
}

int check_operands(const OpCall& call) {
    const Type &a = call.inputs[0], &b = call.inputs[1];
    if (a.dtype != b.dtype)
        refuse(call, "both operands have one dtype", "cast one of them", ErrorKind::type);
    const int dims = spatial_dims(call, a);
    if (a.rank() != b.rank())
        refuse(call, cat("the ranks differ, ", a.rank(), " and ", b.rank()),
               a.rank() + 1 == b.rank()
                   ? "x is [n, channels, space...]; expand_dims(x, 0) makes a batch of one"
                   : "weights are [out channels, in channels / groups, kernel...]");
    return dims;
}

int64_t check_groups(const OpCall& call, int64_t in_channels, int64_t out_channels) {
    const int64_t groups = call.integer("groups");
    if (groups < 1 || in_channels % groups || out_channels % groups)
        refuse(call, cat("groups = ", groups, " does not divide ", in_channels, " input and ",
                         out_channels, " output channels"));
    return groups;
}

// Checks rule C5, and C6 where dy is given.
Shape places_of(const OpCall& call, const Window& window, const Shape& x, const Type* dy) {
    Shape y{x[0], 0};
    for (int axis = 0; axis < window.dims; ++axis) {
        if (window.kernel[axis] == 0) refuse(call, "the kernel is empty");
        const int64_t places = window.places(axis, x[axis + 2]);
        if (places < 1)
            refuse(call,
                   cat("a kernel of ", window.kernel[axis], " with dilation ",
                       window.dilation[axis], " does not fit into ", x[axis + 2], " + 2 * ",
                       window.padding[axis], " of spatial axis ", axis),
                   "enlarge the input or the padding");
        if (dy && dy->shape[axis + 2] != places)
            refuse(call, cat("dy has extent ", dy->shape[axis + 2], " on spatial axis ", axis,
                             ", but an input of ", x[axis + 2], " gives ", places));
        y.push_back(places);
    }
    return y;
}

std::vector<Type> infer_conv(const OpCall& call) {
    check_operands(call);
    const Type &x = call.inputs[0], &w = call.inputs[1];
    const int64_t groups = check_groups(call, x.shape[1], w.shape[0]);
    if (w.shape[1] * groups != x.shape[1])
        refuse(call,
               cat("x has ", x.shape[1], " channels, but the weights take ", w.shape[1],
                   " * groups ", groups, " = ", w.shape[1] * groups),
               "weights are [out channels, in channels / groups, kernel...]");
    Shape y = places_of(call, window_over(call, w), x.shape, nullptr);
    y[1] = w.shape[0];
    return {{x.dtype, y, x.layout}};
}

std::vector<Type> infer_backward_data(const OpCall& call) {
    const int dims = check_operands(call);
    const Type &dy = call.inputs[0], &w = call.inputs[1];
    if (dy.shape[1] != w.shape[0])
        refuse(call, cat("dy has ", dy.shape[1], " channels, but the weights give ", w.shape[0]));
    const int64_t groups = call.integer("groups");
    if (groups < 1 || w.shape[0] % groups)
        refuse(call, cat("groups = ", groups, " does not divide ", w.shape[0], " channels"));
    const auto extents = per_axis(call, "input_shape", dims, 0);
    Shape x{dy.shape[0], w.shape[1] * groups};
    for (int axis = 0; axis < dims; ++axis) x.push_back(extents[axis]);
    places_of(call, window_over(call, w), x, &dy);
    return {{dy.dtype, x, dy.layout}};
}

std::vector<Type> infer_backward_filter(const OpCall& call) {
    const int dims = check_operands(call);
    const Type &x = call.inputs[0], &dy = call.inputs[1];
    if (x.shape[0] != dy.shape[0])
        refuse(call, cat("the batches differ, ", x.shape[0], " and ", dy.shape[0]));
    const int64_t groups = check_groups(call, x.shape[1], dy.shape[1]);
    const Window window = window_of(call, dims);
    places_of(call, window, x.shape, &dy);
    Shape w{dy.shape[1], x.shape[1] / groups};
    for (int axis = 0; axis < dims; ++axis) w.push_back(window.kernel[axis]);
    return {{x.dtype, w}};
}

std::vector<Type> infer_conv_epilogue(const OpCall& call) {
    std::vector<Type> types = infer_conv(call);
    check_epilogue(call, types[0]);
    return types;
}

TensorRef sum_by_channel(const TensorRef& wide) {
    build::Axes axes{0};
    for (int axis = 2; axis < wide->type().rank(); ++axis) axes.push_back(axis);
    return build::reduce_sum(wide, axes, true);
}

std::vector<Type> infer_conv_stats(const OpCall& call) {
    const std::vector<Type> types = infer_conv(call);
    const Type sums = sums_by_channel(types[0]);
    return {types[0], sums, sums};
}

Tensors expand_conv_stats(const OpCall& call, std::span<const TensorRef> inputs) {
    const TensorRef y = op("conv", {inputs[0], inputs[1]}, call.attrs),
                    wide = build::cast(y, DType::f32);
    return {y, sum_by_channel(wide), sum_by_channel(op("square", {wide}))};
}

std::vector<Type> infer_backward_data_epilogue(const OpCall& call) {
    std::vector<Type> types = infer_backward_data(call);
    check_epilogue(call, types[0]);
    return types;
}

// Checks rule C7.
std::vector<Type> infer_backward_data_sums(const OpCall& call) {
    const OpCall gradient = gradient_of_sums(call);
    std::vector<Type> types = infer_backward_data_epilogue(gradient);
    const Type result = types[0], sums = sums_by_channel(result);
    const auto pairs = call.inputs.subspan(gradient.inputs.size());
    if (pairs.size() % 2)
        refuse(call, cat("the last tensor, ", to_string(pairs.back()), ", has no mean"));
    types.push_back(sums);
    for (size_t i = 0; i < pairs.size(); i += 2) {
        if (pairs[i].dtype != result.dtype || !(pairs[i].shape == result.shape))
            refuse(call, cat("a gradient ", to_string(result), " is multiplied by ",
                             to_string(pairs[i])));
        if (pairs[i + 1].dtype != sums.dtype || !(pairs[i + 1].shape == sums.shape))
            refuse(call, cat("the mean is ", to_string(sums), ", not ", to_string(pairs[i + 1])));
        types.push_back(sums);
    }
    return types;
}

Tensors expand_backward_data_sums(const OpCall& call, std::span<const TensorRef> inputs) {
    const OpCall gradient = gradient_of_sums(call);
    const size_t first = gradient.inputs.size();
    const TensorRef g = apply(gradient.op, call.attrs, inputs.first(first), nullptr)[0],
                    wide = build::cast(g, DType::f32);
    Tensors results{g, sum_by_channel(wide)};
    for (size_t i = first; i < inputs.size(); i += 2) {
        const TensorRef apart = op("sub", {build::cast(inputs[i], DType::f32), inputs[i + 1]});
        results.push_back(sum_by_channel(op("mul", {wide, apart})));
    }
    return results;
}

Cost conv_cost(const OpCall& call, std::span<const Type> outputs) {
    return {conv_flops(outputs[0], call.inputs[1]), bytes_of(call, outputs), true};
}

Cost backward_data_cost(const OpCall& call, std::span<const Type> outputs) {
    return {conv_flops(call.inputs[0], call.inputs[1]), bytes_of(call, outputs), true};
}

// The four window attributes of `call`, followed by the spatial extents of `shape`.
Attrs window_attrs(const OpCall& call) { return {call.attrs.begin(), call.attrs.begin() + 4}; }
Attrs window_attrs(const OpCall& call, const Shape& shape) {
    Attrs attrs = window_attrs(call);
    attrs.push_back(std::vector<int64_t>(shape.begin() + 2, shape.end()));
    return attrs;
}

Grads grad_conv(const GradCall& g) {
    const TensorRef &x = g.inputs[0], &w = g.inputs[1], &dy = g.out_grads[0];
    Grads grads(2);
    if (g.needs[0]) grads[0] = op("conv_backward_data", {dy, w}, window_attrs(g.call, x->shape()));
    if (g.needs[1])
        grads[1] = op("conv_backward_filter", {x, dy}, window_attrs(g.call, w->shape()));
    return grads;
}

Grads grad_conv_epilogue(const GradCall& g) { return grad_of_epilogue(g, ops::conv()); }
Tensors expand_conv_epilogue(const OpCall& call, std::span<const TensorRef> inputs) {
    return expand_epilogue(call, inputs, ops::conv());
}

Grads grad_backward_data(const GradCall& g) {
    const TensorRef &dy = g.inputs[0], &w = g.inputs[1], &ddx = g.out_grads[0];
    Grads grads(2);
    if (g.needs[0]) grads[0] = op("conv", {ddx, w}, window_attrs(g.call));
    if (g.needs[1])
        grads[1] = op("conv_backward_filter", {ddx, dy}, window_attrs(g.call, w->shape()));
    return grads;
}

Grads grad_backward_data_epilogue(const GradCall& g) {
    return grad_of_epilogue(g, ops::conv_backward_data());
}
Tensors expand_backward_data_epilogue(const OpCall& call, std::span<const TensorRef> inputs) {
    return expand_epilogue(call, inputs, ops::conv_backward_data());
}

Grads grad_backward_filter(const GradCall& g) {
    const TensorRef &x = g.inputs[0], &dy = g.inputs[1], &ddw = g.out_grads[0];
    Grads grads(2);
    if (g.needs[0])
        grads[0] = op("conv_backward_data", {dy, ddw}, window_attrs(g.call, x->shape()));
    if (g.needs[1]) grads[1] = op("conv", {x, ddw}, window_attrs(g.call));
    return grads;
}

std::vector<Type> infer_relayout(const OpCall& call) {
    Type y = call.inputs[0];
    const std::optional<Layout> layout = layout_from_name(call.text("layout"));
    if (!layout)
        refuse(call, cat("layout is '", call.text("layout"), "'"),
               "use 'row_major' or 'channels_last'");
    if (is_packed(*layout) && y.layout != Layout::row_major && y.layout != *layout)
        refuse(call, cat("a ", to_string(y), " cannot be packed"), "bring it into row_major first");
    y.layout = *layout == Layout::channels_last && y.rank() < 3 ? Layout::row_major : *layout;
    return {y};
}

}  // namespace

Window window_over(const OpCall& call, const Type& w) {
    Window window = window_of(call, w.rank() - 2);
    for (int axis = 0; axis < window.dims; ++axis) window.kernel[axis] = w.shape[axis + 2];
    return window;
}

ConvProblem conv_problem(const OpCall& call, std::span<const Type> outputs, ConvRole role) {
    const Type &first = call.inputs[0], &second = call.inputs[1], &result = outputs[0];
    ConvProblem p;
    switch (role) {
        case ConvRole::forward: p = {.x = first, .w = second, .y = result}; break;
        case ConvRole::data: p = {.x = result, .w = second, .y = first}; break;
        case ConvRole::filter: p = {.x = first, .w = result, .y = second}; break;
    }
    p.window = window_over(call, p.w);
    p.groups = call.integer("groups");
    if (has_attr(call, "epilogue")) p.steps = epilogue_of(call);
    if (has_attr(call, "relu") && call.flag("relu")) p.steps.push_back({EpilogueKind::relu});
    return p;
}

Type sums_by_channel(const Type& of) {
    Shape channels = of.shape;
    for (int axis = 0; axis < channels.rank(); ++axis)
        if (axis != 1) channels[axis] = 1;
    return {DType::f32, channels};
}

OpCall gradient_of_sums(const OpCall& call) {
    std::istringstream words(call.text("epilogue"));
    const auto operands = 2 + std::distance(std::istream_iterator<std::string>(words), {});
    return {ops::conv_backward_data_epilogue(), call.attrs,
            call.inputs.first(std::min<size_t>(static_cast<size_t>(operands), call.inputs.size()))};
}

bool is_pointwise(const ConvProblem& p) {
    for (int axis = 0; axis < p.window.dims; ++axis)
        if (p.window.stride[axis] != 1 || p.window.padding[axis] != 0) return false;
    return p.groups == 1 && p.w.numel() == p.w.shape[0] * p.w.shape[1];
}

bool multiplies_images(const ConvProblem& p) {
    constexpr int64_t kEnough = 512;  // pixels: with fewer ones the product has too few columns
    return is_pointwise(p) && p.x.dtype == DType::f32 &&
           p.x.numel() >= kEnough * p.x.shape[0] * p.x.shape[1];
}

template <ConvRole role>
bool prefers_channels_last(const OpCall& call, std::span<const Type> outputs) {
    // loops of ours compute float64, from row-major operands
    return outputs[0].dtype != DType::f64 && !multiplies_images(conv_problem(call, outputs, role));
}

std::vector<OpDef> conv_ops() {
    const OperandSpec x{"x", OperandKind::activation}, dy{"dy", OperandKind::activation},
        w{"w", OperandKind::weights};
    const EpilogueSpec steps_of_gradient{ops::conv_backward_data_epilogue, 1, true, true};
    return {
        {.name = "conv",
         .dumped_as = "Convolution",
         .doc =
             "Convolution (cross-correlation) of x [n, c, spatial...] with w [oc, c / groups, kernel...]; extents round down.",
         .inputs = {x, w},
         .attrs = kWindowAttrs,
         .promotion = Promotion::arithmetic,
         .takes_64_bits = true,
         .infer = infer_conv,
         .grad = grad_conv,
         .keeps = Keeps::inputs,
         .epilogue = EpilogueSpec{ops::conv_epilogue, 1},
         .prefers_channels_last = prefers_channels_last<ConvRole::forward>,
         .cost = conv_cost},
        {.name = "conv_epilogue",
         .doc = "conv, then the steps of `epilogue` (bias, add, relu) on its result.",
         .inputs = {x, w, {"operands", OperandKind::activation}},
         .variadic = true,
         .attrs = window_attrs_and("epilogue", AttrKind::text),
         .infer = infer_conv_epilogue,
         .grad = grad_conv_epilogue,
         .expand = expand_conv_epilogue,
         .epilogue = EpilogueSpec{ops::conv_epilogue, 1},
         .prefers_channels_last = prefers_channels_last<ConvRole::forward>,
         .cost = conv_cost},
        {.name = "conv_stats",
         .doc =
             "conv, and for each channel of its result the sum of the elements and of their squares, in float32, [1, channels, 1...].",
         .inputs = {x, w},
         .attrs = kWindowAttrs,
         .infer = infer_conv_stats,
         .has_gpu_product = true,
         .expand = expand_conv_stats,
         .prefers_channels_last = prefers_channels_last<ConvRole::forward>,
         .cost = conv_cost},
        {.name = "conv_backward_data",
         .dumped_as = "ConvolutionBackwardData",
         .doc =
             "Gradient of conv for x: the transposed convolution of dy with w; input_shape has x's spatial extents.",
         .inputs = {dy, "w"},
         .attrs = window_attrs_and("input_shape", AttrKind::integers),
         .promotion = Promotion::arithmetic,
         .takes_64_bits = true,
         .infer = infer_backward_data,
         .grad = grad_backward_data,
         .keeps = Keeps::inputs,
         .epilogue = steps_of_gradient,
         .prefers_channels_last = prefers_channels_last<ConvRole::data>,
         .cost = backward_data_cost},
        {.name = "conv_backward_data_epilogue",
         .doc = "conv_backward_data, then the steps of `epilogue` (add, mask) on its result.",
         .inputs = {dy, "w", {"operands", OperandKind::activation}},
         .variadic = true,
         .attrs = backward_data_epilogue_attrs(),
         .infer = infer_backward_data_epilogue,
         .grad = grad_backward_data_epilogue,
         .expand = expand_backward_data_epilogue,
         .epilogue = steps_of_gradient,
         .prefers_channels_last = prefers_channels_last<ConvRole::data>,
         .cost = backward_data_cost},
        {.name = "conv_backward_data_sums",
         .doc =
             "conv_backward_data_epilogue, and sums over all but the channels, float32, [1, channels, 1...]: of its result, and for each pair of a tensor and means, of the result times tensor - means.",
         .inputs = {dy, "w", {"operands", OperandKind::activation}},
         .variadic = true,
         .attrs = backward_data_epilogue_attrs(),
         .infer = infer_backward_data_sums,
         .has_gpu_product = true,
         .expand = expand_backward_data_sums,
         .prefers_channels_last = prefers_channels_last<ConvRole::data>,
         .cost = backward_data_cost},
        {.name = "conv_backward_filter",
         .dumped_as = "ConvolutionBackwardFilter",
         .doc = "Gradient of conv for w; kernel has the weights' spatial extents.",
         .inputs = {x, dy},
         .attrs = window_attrs_and("kernel", AttrKind::integers),
         .promotion = Promotion::arithmetic,
         .takes_64_bits = true,
         .infer = infer_backward_filter,
         .grad = grad_backward_filter,
         .keeps = Keeps::inputs,
         .cost =
             [](const OpCall& call, std::span<const Type> outputs) {
        return Cost{conv_flops(call.inputs[1], outputs[0]), bytes_of(call, outputs), true};
    }},
        {.name = "relayout",
         .doc =
             "The same tensor in another order of memory: 'row_major', 'channels_last', or one of the backend's own.",
         .inputs = {"x"},
         .attrs = {{"layout", AttrKind::text}},
         .takes_64_bits = true,
         .infer = infer_relayout,
         .grad = [](const GradCall& g) -> Grads { return {g.out_grads[0]}; },
         .keeps = Keeps::nothing,
         .cost = [](const OpCall& call,
                    std::span<const Type> outputs) { return Cost{0, bytes_of(call, outputs)}; }},
    };
}

}  // namespace megjit::runtime
