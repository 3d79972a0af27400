// runtime/ops/pool.cpp -- max and average pooling over [n, c, spatial...], with given windows or
// adaptive ones (output place o of out covers input [floor(o * in / out), ceil((o + 1) * in /
// out))).
// Rules:
//   P1 a floating dtype
//   P2 rank 3 to 5
//   P3 one kernel, stride and padding per spatial axis
//   P4 padding is smaller than the kernel, so that every window holds an element
//   P5 the window fits into the padded extent
//   P6 dy has the shape that the forward op gives
// Max: a NaN in the window wins; the gradient goes to the first largest element in row-major order.
#include "runtime/ops/pool.h"

#include "runtime/ops/builders.h"
#include "runtime/ops/known.h"

namespace megjit::runtime {
namespace {

using build::op;
using Extents = std::vector<int64_t>;

Type pooled(const OpCall& call, const Type& x) {
    const int dims = spatial_dims(call, x);
    const Window window = pool_window(call, dims).window;
    Type y{x.dtype, {x.shape[0], x.shape[1]}, x.layout};
    for (int axis = 0; axis < dims; ++axis) {
        if (window.padding[axis] >= window.kernel[axis])
            refuse(call, cat("padding ", window.padding[axis], " is not smaller than the kernel ",
                             window.kernel[axis]));
        const int64_t places = window.places(axis, x.shape[axis + 2]);
        if (places < 1 || x.shape[axis + 2] == 0)
            refuse(call, cat("a kernel of ", window.kernel[axis], " does not fit into ",
                             x.shape[axis + 2], " + 2 * ", window.padding[axis],
                             " of spatial axis ", axis));
        y.shape.push_back(places);
    }
    return y;
}

Type adaptively_pooled(const OpCall& call, const Type& x) {
    const int dims = spatial_dims(call, x);
    const auto output = per_axis(call, "output", dims, 1);
    Type y{x.dtype, {x.shape[0], x.shape[1]}, x.layout};
    for (int axis = 0; axis < dims; ++axis) {
        if (x.shape[axis + 2] == 0) refuse(call, cat("spatial axis ", axis, " is empty"));
        y.shape.push_back(output[axis]);
    }
    return y;
}

Type with_spatial(const OpCall& call, const Type& dy) {
    const int dims = spatial_dims(call, dy);
    const auto extents = per_axis(call, "input_shape", dims, 1);
    Type x{dy.dtype, {dy.shape[0], dy.shape[1]}, dy.layout};
    for (int axis = 0; axis < dims; ++axis) x.shape.push_back(extents[axis]);
    return x;
}

void check_dy(const OpCall& call, const Type& expected, const Type& dy) {
    if (dy.dtype != expected.dtype)
        refuse(call, "dy has another dtype than x", "cast dy", ErrorKind::type);
    if (!(dy.shape == expected.shape))
        refuse(call, cat("dy has shape ", to_string(dy.shape), ", but pooling gives ",
                         to_string(expected.shape)));
}

Extents spatial(const TensorRef& x) { return {x->shape().begin() + 2, x->shape().end()}; }

Cost cost_pool(const OpCall& call, std::span<const Type> outputs) {
    return {4.0 * static_cast<double>(std::max(call.inputs[0].numel(), outputs[0].numel())),
            bytes_of(call, outputs)};
}

// The gradient of max pooling for dy picks, at the same places, from the gradient of its result. It
// has no gradient for x: the choice of places is piecewise constant. The op "max_pool_pick" needs
// no recorded positions: it sums ddx over the window where x is the window's first largest.
Grads grad_of_max_grad(const GradCall& g, std::string_view pick) {
    Grads grads(2);
    if (g.needs[1]) grads[1] = op(pick, {g.inputs[0], g.out_grads[0]}, g.call.attrs);
    return grads;
}
Grads grad_of_pick(const GradCall& g, std::string_view scatter) {
    Grads grads(2);
    if (g.needs[1]) grads[1] = op(scatter, {g.inputs[0], g.out_grads[0]}, g.call.attrs);
    return grads;
}

void check_pick(const OpCall& call) {
    if (!(call.inputs[0].shape == call.inputs[1].shape) ||
        call.inputs[0].dtype != call.inputs[1].dtype)
        refuse(call, "both operands have the same type");
}

const AttrSpec kKernel{"kernel", AttrKind::integers}, kStride{"stride", AttrKind::integers},
    kPadding{"padding", AttrKind::integers, Attr{Extents{0}}},
    kOutput{"output", AttrKind::integers}, kInputShape{"input_shape", AttrKind::integers},
    kInclude{"count_include_padding", AttrKind::integer, Attr{int64_t{0}}};

std::vector<OpDef> max_ops() {
    return {
        {.name = "max_pool",
         .dumped_as = "Pooling",
         .doc = "Largest element of each window of x [n, c, spatial...]; a NaN in the window wins.",
         .inputs = {{"x", OperandKind::activation}},
         .attrs = {kKernel, kStride, kPadding},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        return {pooled(call, call.inputs[0])};
    },
         .grad = [](const GradCall& g) -> Grads {
        return {op("max_pool_grad", {g.inputs[0], g.out_grads[0]}, g.call.attrs)};
    },
         .keeps = Keeps::inputs,
         .cost = cost_pool},
        {.name = "max_pool_grad",
         .doc = "Gradient of max_pool: adds each dy to the first largest element of its window.",
         .inputs = {{"x", OperandKind::activation}, {"dy", OperandKind::activation}},
         .attrs = {kKernel, kStride, kPadding},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        check_dy(call, pooled(call, call.inputs[0]), call.inputs[1]);
        return {call.inputs[0]};
    },
         .grad = [](const GradCall& g) { return grad_of_max_grad(g, "max_pool_pick"); },
         .keeps = Keeps::inputs,
         .chooser = &ops::max_pool,
         .cost = cost_pool},
        {.name = "max_pool_pick",
         .doc =
             "The elements of v at the positions that max_pool takes from x: the gradient of max_pool_grad for dy.",
         .inputs = {"x", "v"},
         .attrs = {kKernel, kStride, kPadding},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        check_pick(call);
        return {pooled(call, call.inputs[0])};
    },
         .grad = [](const GradCall& g) { return grad_of_pick(g, "max_pool_grad"); },
         .keeps = Keeps::inputs,
         .cost = cost_pool},
        {.name = "adaptive_max_pool",
         .dumped_as = "AdaptivePooling",
         .doc =
             "Largest element of each of `output` even parts per spatial axis; a NaN in the part wins.",
         .inputs = {"x"},
         .attrs = {kOutput},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        return {adaptively_pooled(call, call.inputs[0])};
    },
         .grad = [](const GradCall& g) -> Grads {
        return {op("adaptive_max_pool_grad", {g.inputs[0], g.out_grads[0]}, g.call.attrs)};
    },
         .keeps = Keeps::inputs,
         .cost = cost_pool},
        {.name = "adaptive_max_pool_grad",
         .doc = "Gradient of adaptive_max_pool.",
         .inputs = {"x", "dy"},
         .attrs = {kOutput},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        check_dy(call, adaptively_pooled(call, call.inputs[0]), call.inputs[1]);
        return {call.inputs[0]};
    },
         .grad = [](const GradCall& g) { return grad_of_max_grad(g, "adaptive_max_pool_pick"); },
         .keeps = Keeps::inputs,
         .chooser = &ops::adaptive_max_pool,
         .cost = cost_pool},
        {.name = "adaptive_max_pool_pick",
         .doc = "The elements of v at the positions that adaptive_max_pool takes from x.",
         .inputs = {"x", "v"},
         .attrs = {kOutput},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        check_pick(call);
        return {adaptively_pooled(call, call.inputs[0])};
    },
         .grad = [](const GradCall& g) { return grad_of_pick(g, "adaptive_max_pool_grad"); },
         .keeps = Keeps::inputs,
         .cost = cost_pool},
    };
}

std::vector<OpDef> average_ops() {
    return {
        {.name = "avg_pool",
         .dumped_as = "Pooling",
         .doc =
             "Mean of each window of x [n, c, spatial...]; padding counts as zeros if count_include_padding.",
         .inputs = {{"x", OperandKind::activation}},
         .attrs = {kKernel, kStride, kPadding, kInclude},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        return {pooled(call, call.inputs[0])};
    },
         .grad = [](const GradCall& g) -> Grads {
        Attrs attrs = g.call.attrs;
        attrs.push_back(spatial(g.inputs[0]));
        return {op("avg_pool_grad", {g.out_grads[0]}, attrs)};
    },
         .keeps = Keeps::nothing,
         .cost = cost_pool},
        {.name = "avg_pool_grad",
         .doc = "Gradient of avg_pool; input_shape has x's spatial extents.",
         .inputs = {{"dy", OperandKind::activation}},
         .attrs = {kKernel, kStride, kPadding, kInclude, kInputShape},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        const Type x = with_spatial(call, call.inputs[0]);
        check_dy(call, pooled(call, x), call.inputs[0]);
        return {x};
    },
         .grad = [](const GradCall& g) -> Grads {
        return {op("avg_pool", {g.out_grads[0]}, {g.call.attrs.begin(), g.call.attrs.begin() + 4})};
    },
         .keeps = Keeps::nothing,
         .cost = cost_pool},
        {.name = "adaptive_avg_pool",
         .dumped_as = "AdaptivePooling",
         .doc = "Mean of each of `output` even parts per spatial axis.",
         .inputs = {{"x", OperandKind::activation}},
         .attrs = {kOutput},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        return {adaptively_pooled(call, call.inputs[0])};
    },
         .grad = [](const GradCall& g) -> Grads {
        return {op("adaptive_avg_pool_grad", {g.out_grads[0]}, {spatial(g.inputs[0])})};
    },
         .keeps = Keeps::nothing,
         .cost = cost_pool},
        {.name = "adaptive_avg_pool_grad",
         .doc = "Gradient of adaptive_avg_pool; input_shape has x's spatial extents.",
         .inputs = {"dy"},
         .attrs = {kInputShape},
         .infer = [](const OpCall& call) -> std::vector<Type> {
        return {with_spatial(call, call.inputs[0])};
    },
         .grad = [](const GradCall& g) -> Grads {
        return {op("adaptive_avg_pool", {g.out_grads[0]}, {spatial(g.inputs[0])})};
    },
         .keeps = Keeps::nothing,
         .cost = cost_pool},
    };
}

}  // namespace

PoolRange PoolWindow::range(int axis, int64_t o, int64_t in, int64_t out) const {
    if (is_adaptive) return {o * in / out, ((o + 1) * in + out - 1) / out};
    const int64_t begin = o * window.stride[axis] - window.padding[axis];
    return {std::max<int64_t>(begin, 0), std::min(begin + window.kernel[axis], in)};
}

PoolWindow pool_window(const OpCall& call, int dims) {
    if (!has_attr(call, kKernel.name)) return {.is_adaptive = true};
    return {.window = window_of(call, dims),
            .counts_padding = has_attr(call, kInclude.name) && call.flag(kInclude.name)};
}

std::vector<OpDef> pool_ops() {
    std::vector<OpDef> ops = max_ops();
    for (OpDef& average : average_ops()) ops.push_back(std::move(average));
    return ops;
}

}  // namespace megjit::runtime
