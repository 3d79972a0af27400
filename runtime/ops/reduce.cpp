// runtime/ops/reduce.cpp -- reductions over any set of axes, and arg-reductions over one.
// Rules: U1 axes are sorted, distinct and within the rank
//        U2 max, min, argmax and argmin of an empty axis are not defined
//        U3 complex tensors can only be summed
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using Ints = std::vector<int64_t>;

Shape reduced_shape(const OpCall& call, const Shape& of, const Ints& axes, bool keepdims) {
    int64_t before = -1;
    uint32_t mask = 0;
    for (const int64_t axis : axes) {
        if (axis <= before || axis >= of.rank())
            refuse(call, cat("axes ", to_string(Attr{axes}), " are sorted, distinct and below ",
                             of.rank()));
        mask |= 1u << axis;
        before = axis;
    }
    Shape shape;
    for (int i = 0; i < of.rank(); ++i) {
        if (!(mask >> i & 1u)) shape.push_back(of[i]);
        else if (keepdims) shape.push_back(1);
    }
    return shape;
}

void check_not_empty(const OpCall& call, const Type& x, const Shape& result) {
    if (x.numel() == 0 && result.numel() > 0)
        refuse(call, "there is no element to choose along an empty axis",
               "check the shape before reducing");
}

std::vector<Type> infer_reduce(const OpCall& call) {
    const Type& x = call.inputs[0];
    const Reduce kind = *call.op.reduction;
    if (x.dtype == DType::c64 && kind != Reduce::sum)
        refuse(call, "complex tensors can only be summed", "reduce real and imag", ErrorKind::type);
    Type result{x.dtype,
                reduced_shape(call, x.shape, call.integers("axes"), call.flag("keepdims"))};
    if (kind == Reduce::max || kind == Reduce::min) check_not_empty(call, x, result.shape);
    else if (x.dtype == DType::b8) result.dtype = DType::i32;
    if (kind == Reduce::mean && x.dtype != DType::f64) result.dtype = DType::f32;
    if (kind == Reduce::variance && x.dtype != DType::f32 && x.dtype != DType::f64)
        refuse(call, cat("x is ", info(x.dtype).name, ", and not float32 or float64"), {},
               ErrorKind::type);
    return {result};
}

std::vector<Type> infer_arg(const OpCall& call) {
    const Type& x = call.inputs[0];
    if (x.dtype == DType::c64) refuse(call, "complex numbers have no order", {}, ErrorKind::type);
    const int axis = normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    check_places_fit(call, x.shape[axis]);
    const Shape shape = reduced_shape(call, x.shape, {axis}, call.flag("keepdims"));
    check_not_empty(call, x, shape);
    return {{DType::i32, shape}};
}

// Returns y or dy with the reduced axes as extents of 1.
TensorRef widened(const GradCall& g, const TensorRef& y) {
    Shape shape = g.inputs[0]->shape();
    for (const int64_t axis : g.call.integers("axes")) shape[static_cast<int>(axis)] = 1;
    return build::reshape(y, shape);
}
TensorRef spread(const GradCall& g, const TensorRef& y) {
    return build::broadcast_to(widened(g, y), g.inputs[0]->shape());
}

// Every element equal to the extreme one receives the whole gradient.
Grads grad_extreme(const GradCall& g) {
    const TensorRef mask = build::op("equal", {g.inputs[0], spread(g, g.outputs[0])}),
                    dy = spread(g, g.out_grads[0]);
    return {build::where(mask, dy, build::zeros_like(dy))};
}

// Elements equal to the extreme one receive equal parts.
Grads grad_shared(const GradCall& g) {
    const TensorRef mask = build::op("equal", {g.inputs[0], spread(g, g.outputs[0])}),
                    dy = widened(g, g.out_grads[0]),
                    count = build::reduce_sum(build::cast(mask, dy->dtype()),
                                              g.call.integers("axes"), true),
                    part = build::broadcast_to(build::div(dy, count), g.inputs[0]->shape());
    return {build::where(mask, part, build::zeros_like(part))};
}

// The product of the other elements, without dividing by zero: where one is zero only that one has
// a gradient, and where several are none has. The derivative of this gradient takes the zeros as
// given.
Grads grad_prod(const GradCall& g) {
    const TensorRef& x = g.inputs[0];
    const Ints& axes = g.call.integers("axes");
    const TensorRef zero = build::number(0, x), is_zero = build::op("equal", {x, zero});
    const TensorRef safe =
        build::where(is_zero, build::full(x->shape(), 1, x->dtype(), x->device()), x);
    const TensorRef product = build::op("reduce_prod", {safe}, {axes, int64_t{1}});
    const TensorRef zeros = build::broadcast_to(
        build::reduce_sum(build::cast(is_zero, x->dtype()), axes, true), x->shape());
    const TensorRef none = build::zeros_like(x), all = build::broadcast_to(product, x->shape());
    const TensorRef one_zero = build::op("equal", {zeros, build::number(1, zeros)}),
                    no_zero = build::op("equal", {zeros, build::number(0, zeros)});
    const TensorRef at_zero = build::where(one_zero, all, none),
                    elsewhere = build::where(no_zero, build::div(all, safe), none);
    return {build::mul(spread(g, g.out_grads[0]), build::where(is_zero, at_zero, elsewhere))};
}

TensorRef mean_of(const TensorRef& x, const OpCall& call, bool keepdims) {
    return build::op("reduce_mean", {x}, {call.integers("axes"), int64_t{keepdims}});
}

Grads grad_variance(const GradCall& g) {
    const TensorRef& x = g.inputs[0];
    const auto results = static_cast<double>(std::max<int64_t>(1, g.outputs[0]->type().numel()));
    const double count = static_cast<double>(x->type().numel()) / results;
    return {build::mul(spread(g, build::mul(g.out_grads[0], 2 / std::max(1.0, count))),
                       build::sub(x, mean_of(x, g.call, true)))};
}

// A GPU reads the rows only once, and adds squares in float64.
std::vector<TensorRef> expand_variance(const OpCall& call, std::span<const TensorRef> inputs) {
    const TensorRef& x = inputs[0];
    if (x->device().shares_rows()) return {};
    const TensorRef distance = build::sub(x, mean_of(x, call, true));
    return {mean_of(build::mul(distance, distance), call, call.flag("keepdims"))};
}

Cost cost_reduce(const OpCall& call, std::span<const Type> outputs) {
    return {static_cast<double>(call.inputs[0].numel()), bytes_of(call, outputs)};
}

OpDef reduction(std::string name, Reduce kind, std::string doc, Grads (*grad)(const GradCall&),
                Keeps keeps) {
    return {
        .name = std::move(name),
        .dumped_as = "Reduce",
        .doc = std::move(doc),
        .inputs = {"x"},
        .attrs = {{"axes", AttrKind::integers}, {"keepdims", AttrKind::integer, Attr{int64_t{0}}}},
        .infer = infer_reduce,
        .grad = grad,
        .keeps = keeps,
        .reduction = kind,
        .cost = cost_reduce};
}

OpDef arg_reduction(std::string name, Reduce kind, std::string doc) {
    return {
        .name = std::move(name),
        .dumped_as = kind == Reduce::argmax ? "Argmax" : "Argmin",
        .doc = std::move(doc),
        .inputs = {"x"},
        .attrs = {{"axis", AttrKind::integer}, {"keepdims", AttrKind::integer, Attr{int64_t{0}}}},
        .infer = infer_arg,
        .keeps = Keeps::nothing,
        .reduction = kind,
        .cost = cost_reduce};
}

}  // namespace

std::vector<OpDef> reduce_ops() {
    return {
        reduction(
            "reduce_sum", Reduce::sum,
            "Sum over axes; bool counts in int32, other dtypes stay (integers wrap, float16 adds in float32).",
            [](const GradCall& g) -> Grads { return {spread(g, g.out_grads[0])}; }, Keeps::nothing),
        reduction("reduce_mean", Reduce::mean, "Mean over axes: float64 of float64, else float32.",
                  [](const GradCall& g) -> Grads {
        const int64_t n =
            g.inputs[0]->type().numel() / std::max<int64_t>(1, g.outputs[0]->type().numel());
        const TensorRef share =
            build::mul(g.out_grads[0], 1.0 / static_cast<double>(std::max<int64_t>(1, n)));
        return {build::cast(spread(g, share), g.inputs[0]->dtype())};
    }, Keeps::nothing),
        [] {
        OpDef op =
            reduction("reduce_variance", Reduce::variance,
                      "Mean squared distance from the mean over axes, of float32 or float64.",
                      grad_variance, Keeps::inputs);
        op.expand = expand_variance;
        return op;
    }(),
        reduction(
            "reduce_prod", Reduce::prod,
            "Product over axes; bool counts in int32. The gradient is right where x has zeros.",
            grad_prod, Keeps::inputs),
        reduction(
            "reduce_max", Reduce::max,
            "Largest element over axes; NaN wins. Each of several equal largest elements receives the whole gradient.",
            grad_extreme, Keeps::both),
        reduction(
            "reduce_min", Reduce::min,
            "Smallest element over axes; NaN wins. Each of several equal smallest elements receives the whole gradient.",
            grad_extreme, Keeps::both),
        reduction("even_max", Reduce::max,
                  "Largest element over axes; NaN wins. Equal largest elements share the gradient.",
                  grad_shared, Keeps::both),
        reduction(
            "even_min", Reduce::min,
            "Smallest element over axes; NaN wins. Equal smallest elements share the gradient.",
            grad_shared, Keeps::both),
        arg_reduction(
            "argmax", Reduce::argmax,
            "int32 index of the first largest element along an axis; NaN counts as the largest."),
        arg_reduction(
            "argmin", Reduce::argmin,
            "int32 index of the first smallest element along an axis; NaN counts as the smallest."),
    };
}

}  // namespace megjit::runtime
