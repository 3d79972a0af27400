// runtime/ops/norm.cpp -- batch and layer normalization with their gradients.
// Statistics are float32, whatever the dtype of x. Notation: xh = (x - mean) * r, r = 1 / sqrt(var
// + eps), M elements in a group, <v> the sum over the group.
//   dx = s * r * (dy - <dy> / M - xh * <dy xh> / M)      dscale = <dy xh>      dbias = <dy>
// Source: Ioffe and Szegedy 2015, "Batch Normalization", section 3; Ba et al. 2016, "Layer
// Normalization". Rules:
//   N1 x has a floating dtype
//   N2 x has a channel axis (batch), or at least `axes` axes (layer)
//   N3 scale and bias have one element per channel (batch), or the trailing shape (layer)
//   N4 scale and bias are float32 or of x's dtype
//   N5 dy has x's type, mean and var the statistics' type
//   N6 a group is not empty
#include "runtime/core/device.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using build::Axes;

void check_floating(const OpCall& call, const Type& x) {
    if (!is_floating(x.dtype))
        refuse(call, cat("the dtype is floating, not ", info(x.dtype).name), "cast to float32",
               ErrorKind::type);
}

void check_affine(const OpCall& call, const Type& x, const Type& term, const Shape& shape) {
    if (!(term.shape == shape))
        refuse(call,
               cat("scale and bias have shape ", to_string(shape), ", not ", to_string(term.shape)),
               "reshape them");
    if (term.dtype != DType::f32 && term.dtype != x.dtype)
        refuse(call, cat("scale and bias are float32 or ", info(x.dtype).name), "cast them",
               ErrorKind::type);
}

void check_like(const OpCall& call, const Type& got, DType dtype, const Shape& shape,
                std::string_view what) {
    if (got.dtype != dtype || !(got.shape == shape))
        refuse(call,
               cat(what, " is ", to_string(got), " and should be ", to_string(Type{dtype, shape})));
}

Shape channels_of(const OpCall& call, const Type& x) {
    check_floating(call, x);
    if (x.rank() < 2) refuse(call, "x is [n, c, ...]", "reshape to two axes or more");
    if (x.shape[1] && x.numel() == 0) refuse(call, "there is nothing to take statistics of");
    return {x.shape[1]};
}

std::vector<Type> infer_batch_norm(const OpCall& call) {
    const Type& x = call.inputs[0];
    const Shape channels = channels_of(call, x);
    check_affine(call, x, call.inputs[1], channels);
    check_affine(call, x, call.inputs[2], channels);
    return {x, {DType::f32, channels}, {DType::f32, channels}};
}

std::vector<Type> infer_batch_norm_grad(const OpCall& call) {
    const Type &x = call.inputs[0], &scale = call.inputs[3];
    const Shape channels = channels_of(call, x);
    check_like(call, call.inputs[1], DType::f32, channels, "mean");
    check_like(call, call.inputs[2], DType::f32, channels, "var");
    check_affine(call, x, scale, channels);
    check_like(call, call.inputs[4], x.dtype, x.shape, "dy");
    return {x, {scale.dtype, channels}, {scale.dtype, channels}};
}

std::vector<Type> infer_batch_norm_stats(const OpCall& call) {
    const Shape channels = channels_of(call, call.inputs[0]);
    return {{DType::f32, channels}, {DType::f32, channels}};
}

std::vector<Type> infer_batch_norm_grad_sums(const OpCall& call) {
    const Type& x = call.inputs[0];
    const Shape channels = channels_of(call, x);
    check_like(call, call.inputs[1], DType::f32, channels, "mean");
    check_like(call, call.inputs[2], DType::f32, channels, "var");
    check_like(call, call.inputs[3], x.dtype, x.shape, "dy");
    return {{DType::f32, channels}, {DType::f32, channels}};
}

struct LayerShapes {
    Shape outer, inner;
};
LayerShapes layer_shapes(const OpCall& call, const Type& x) {
    check_floating(call, x);
    const int64_t axes = call.integer("axes");
    if (axes < 1 || axes > x.rank())
        refuse(call,
               cat("axes is ", axes,
                   ", the number of trailing axes to normalize, for a tensor of rank ", x.rank()));
    const auto split = static_cast<size_t>(x.rank() - axes);
    const LayerShapes shapes{Shape(x.shape.extents().first(split)),
                             Shape(x.shape.extents().subspan(split))};
    if (shapes.outer.numel() && !shapes.inner.numel())
        refuse(call, "there is nothing to take statistics of");
    return shapes;
}

void check_count(const OpCall& call, size_t plain, size_t affine) {
    const size_t wanted = call.flag("affine") ? affine : plain;
    if (call.inputs.size() != wanted)
        refuse(call,
               cat("with affine = ", call.integer("affine"), " it takes ", wanted, " tensors, not ",
                   call.inputs.size()),
               {}, ErrorKind::type);
}

std::vector<Type> infer_layer_norm(const OpCall& call) {
    check_count(call, 1, 3);
    const Type& x = call.inputs[0];
    const auto [outer, inner] = layer_shapes(call, x);
    for (const Type& term : call.inputs.subspan(1)) check_affine(call, x, term, inner);
    return {{x.dtype, x.shape}, {DType::f32, outer}, {DType::f32, outer}};
}

std::vector<Type> infer_layer_norm_grad(const OpCall& call) {
    check_count(call, 4, 5);
    const Type& x = call.inputs[0];
    const auto [outer, inner] = layer_shapes(call, x);
    check_like(call, call.inputs[1], DType::f32, outer, "mean");
    check_like(call, call.inputs[2], DType::f32, outer, "rstd");
    check_like(call, call.inputs[3], x.dtype, x.shape, "dy");
    if (!call.flag("affine")) return {{x.dtype, x.shape}};
    check_affine(call, x, call.inputs[4], inner);
    return {{x.dtype, x.shape}, {call.inputs[4].dtype, inner}, {call.inputs[4].dtype, inner}};
}

// --- second order, and gradients of the statistics themselves: in element-wise ops and sums ---

TensorRef operator+(const TensorRef& a, const TensorRef& b) { return build::add(a, b); }
TensorRef operator-(const TensorRef& a, const TensorRef& b) { return build::sub(a, b); }
TensorRef operator*(const TensorRef& a, const TensorRef& b) { return build::mul(a, b); }
TensorRef operator*(const TensorRef& a, double b) { return build::mul(a, b); }

// Groups of elements of x that share statistics, and the axes along which scale and bias vary.
struct Groups {
    Shape stats;  // statistics, reshaped to broadcast against x
    Shape affine;  // scale and bias, likewise
    Axes within;  // axes of one group
    Axes across;  // axes that share one element of scale
    double count = 1;  // elements in a group

    TensorRef sum(const TensorRef& v) const { return build::reduce_sum(v, within, true); }
    TensorRef sum_affine(const TensorRef& v) const {
        return across.empty() ? v : build::reduce_sum(v, across, true);
    }
};

Groups batch_groups(const Shape& x) {
    Groups groups;
    for (int axis = 0; axis < x.rank(); ++axis) {
        groups.stats.push_back(axis == 1 ? x[1] : 1);
        if (axis != 1) groups.within.push_back(axis), groups.count *= static_cast<double>(x[axis]);
    }
    groups.affine = groups.stats;
    groups.across = groups.within;
    return groups;
}

Groups layer_groups(const Shape& x, int64_t axes) {
    Groups groups;
    for (int axis = 0; axis < x.rank(); ++axis) {
        const bool inner = axis >= x.rank() - axes;
        groups.stats.push_back(inner ? 1 : x[axis]);
        groups.affine.push_back(inner ? x[axis] : 1);
        (inner ? groups.within : groups.across).push_back(axis);
        if (inner) groups.count *= static_cast<double>(x[axis]);
    }
    return groups;
}

TensorRef as_f32(const TensorRef& x) { return build::cast(x, DType::f32); }

// Gradients of (dx, dscale, dbias) as functions of x, mean, r, scale and dy, given g, gs, gb.
struct SecondOrder {
    TensorRef x, mean, r, scale, dy;  // r takes the place of var
};
SecondOrder second_order(const Groups& groups, const TensorRef& x0, const TensorRef& mean0,
                         const TensorRef& r, const TensorRef& scale0, const TensorRef& dy0,
                         const TensorRef& g0, const TensorRef& gs0, const TensorRef& gb0) {
    const TensorRef x = as_f32(x0), dy = as_f32(dy0), mean = build::reshape(mean0, groups.stats);
    const TensorRef s = scale0 ? build::reshape(as_f32(scale0), groups.affine)
                               : build::full(groups.affine, 1, DType::f32, x->device());
    const TensorRef g = g0 ? as_f32(g0) : build::zeros_like(x);
    const TensorRef gs = gs0 ? build::reshape(as_f32(gs0), groups.affine) : build::zeros_like(s);
    const TensorRef gb = gb0 ? build::reshape(as_f32(gb0), groups.affine) : build::zeros_like(s);
    const double inverse = 1 / groups.count;
    // With t = dy * s:  dx = r * (t - <t> / M - xh * <t xh> / M).
    const TensorRef xh = (x - mean) * r, t = dy * s;
    const TensorRef sum_t = groups.sum(t), sum_txh = groups.sum(t * xh), sum_g = groups.sum(g),
                    sum_gxh = groups.sum(g * xh);
    const TensorRef d_t = r * (g - sum_g * inverse - xh * (sum_gxh * inverse));
    const TensorRef d_xh = gs * dy - r * (g * sum_txh + t * sum_gxh) * inverse;
    const TensorRef q = groups.sum(g * t) - sum_g * sum_t * inverse -
                        sum_gxh * sum_txh * inverse;  // d dx / d r, contracted
    SecondOrder result;
    result.dy = d_t * s + gs * xh + gb;
    result.scale = groups.sum_affine(d_t * dy);
    result.x = d_xh * r;
    result.mean = groups.sum(build::neg(d_xh * r));
    result.r = q + groups.sum(d_xh * (x - mean));
    return result;
}

TensorRef rstd_of(const TensorRef& var, double eps) {
    return build::op("rsqrt", {build::add(var, eps)});
}

Grads grad_batch_norm(const GradCall& g) {
    const TensorRef &x = g.inputs[0], &scale = g.inputs[1], &mean = g.outputs[1],
                    &var = g.outputs[2];
    const TensorRef &dy = g.out_grads[0], &dmean = g.out_grads[1], &dvar = g.out_grads[2];
    const Groups groups = batch_groups(x->shape());
    Grads grads(3);
    if (dy) {
        const Tensors all = build::op_n("batch_norm_grad", std::array{x, mean, var, scale, dy},
                                        {g.call.real("eps")});
        grads = {all[0], all[1], build::cast(all[2], g.inputs[2]->dtype())};
    }
    if (!g.needs[0] || (!dmean && !dvar)) return grads;
    TensorRef extra;
    if (dmean)
        extra = build::broadcast_to(build::reshape(dmean, groups.stats) * (1 / groups.count),
                                    x->shape());
    if (dvar) {
        const TensorRef part = (as_f32(x) - build::reshape(mean, groups.stats)) *
                               (build::reshape(dvar, groups.stats) * (2 / groups.count));
        extra = extra ? extra + part : part;
    }
    extra = build::cast(extra, x->dtype());
    grads[0] = grads[0] ? grads[0] + extra : extra;
    return grads;
}

Grads grad_batch_norm_grad(const GradCall& g) {
    const TensorRef &x = g.inputs[0], &mean = g.inputs[1], &var = g.inputs[2], &scale = g.inputs[3],
                    &dy = g.inputs[4];
    const Groups groups = batch_groups(x->shape());
    const TensorRef r = rstd_of(build::reshape(var, groups.stats), g.call.real("eps"));
    const SecondOrder d =
        second_order(groups, x, mean, r, scale, dy, g.out_grads[0], g.out_grads[1], g.out_grads[2]);
    return {build::cast(d.x, x->dtype()), build::reshape(d.mean, mean->shape()),
            build::reshape(d.r * r * r * r * -0.5, var->shape()),
            build::reshape(build::cast(d.scale, scale->dtype()), scale->shape()),
            build::cast(d.dy, dy->dtype())};
}

Grads grad_layer_norm(const GradCall& g) {
    const TensorRef &x = g.inputs[0], &mean = g.outputs[1], &rstd = g.outputs[2];
    const TensorRef &dy = g.out_grads[0], &dmean = g.out_grads[1], &drstd = g.out_grads[2];
    const bool affine = g.call.flag("affine");
    Grads grads(g.inputs.size());
    if (dy) {
        Tensors inputs{x, mean, rstd, dy};
        if (affine) inputs.push_back(g.inputs[1]);
        grads = build::op_n("layer_norm_grad", inputs,
                            {g.call.integer("axes"), g.call.integer("affine")});
        if (affine) grads[2] = build::cast(grads[2], g.inputs[2]->dtype());
    }
    if (!g.needs[0] || (!dmean && !drstd)) return grads;
    const Groups groups = layer_groups(x->shape(), g.call.integer("axes"));
    TensorRef extra;
    if (dmean)
        extra = build::broadcast_to(build::reshape(dmean, groups.stats) * (1 / groups.count),
                                    x->shape());
    if (drstd) {  // d r / d x = -r^3 * (x - mean) / M
        const TensorRef r = build::reshape(rstd, groups.stats);
        const TensorRef part =
            (as_f32(x) - build::reshape(mean, groups.stats)) *
            (build::reshape(drstd, groups.stats) * r * r * r * (-1 / groups.count));
        extra = extra ? extra + part : part;
    }
    extra = build::cast(extra, x->dtype());
    grads[0] = grads[0] ? grads[0] + extra : extra;
    return grads;
}

Grads grad_layer_norm_grad(const GradCall& g) {
    const TensorRef &x = g.inputs[0], &mean = g.inputs[1], &rstd = g.inputs[2], &dy = g.inputs[3];
    const bool affine = g.call.flag("affine");
    const Groups groups = layer_groups(x->shape(), g.call.integer("axes"));
    const SecondOrder d =
        second_order(groups, x, mean, build::reshape(rstd, groups.stats),
                     affine ? g.inputs[4] : TensorRef(), dy, g.out_grads[0],
                     affine ? g.out_grads[1] : TensorRef(), affine ? g.out_grads[2] : TensorRef());
    Grads grads{build::cast(d.x, x->dtype()), build::reshape(d.mean, mean->shape()),
                build::reshape(d.r, rstd->shape()), build::cast(d.dy, dy->dtype())};
    if (affine)
        grads.push_back(
            build::reshape(build::cast(d.scale, g.inputs[4]->dtype()), g.inputs[4]->shape()));
    return grads;
}

// --- the same in simpler ops, for code generation ---------------------------------------------

TensorRef mean_of(const TensorRef& x, const Axes& axes) {
    return build::op("reduce_mean", {x}, {axes, int64_t{1}});
}

// Do the extents suit generated kernels, as in softmax.cpp?
bool has_fit_rows(const Device& device, const Shape& outer, const Shape& inner) {
    const int64_t rows = outer.numel(), length = inner.numel();
    if (rows * length == 0) return false;
    return device.shares_rows() || (length > 1 && (rows >= 8 || rows * length <= 32768));
}

std::vector<TensorRef> expand_layer_norm(const OpCall& call, std::span<const TensorRef> inputs) {
    const Type& type = call.inputs[0];
    const auto [outer, inner] = layer_shapes(call, type);
    if (!has_fit_rows(inputs[0]->device(), outer, inner)) return {};
    const Groups groups = layer_groups(type.shape, call.integer("axes"));
    const TensorRef x = as_f32(inputs[0]), mean = mean_of(x, groups.within), centered = x - mean;
    const TensorRef r =
        rstd_of(mean_of(build::op("square", {centered}), groups.within), call.real("eps"));
    TensorRef y = centered * r;
    if (call.flag("affine"))
        y = y * build::reshape(as_f32(inputs[1]), groups.affine) +
            build::reshape(as_f32(inputs[2]), groups.affine);
    return {build::cast(y, type.dtype), build::reshape(mean, outer), build::reshape(r, outer)};
}

// Mean and variance by channel. A CPU's own kernel divides long columns among threads; a GPU's
// generated ones share them among blocks, and take in what is computed of the sums.
Tensors batch_stats(const TensorRef& x) {
    if (!x->device().shares_rows()) return build::op_n("batch_norm_stats", std::array{x});
    const Groups groups = batch_groups(x->shape());
    const Shape channels{x->shape()[1]};
    const TensorRef v = as_f32(x),
                    var = build::op("reduce_variance", {v}, {groups.within, int64_t{1}});
    return {build::reshape(mean_of(v, groups.within), channels), build::reshape(var, channels)};
}

// Gradients for scale and bias, in float32; computed where the statistics are.
Tensors batch_grad_sums(const TensorRef& x, const TensorRef& mean, const TensorRef& var,
                        const TensorRef& dy, double eps) {
    if (!x->device().shares_rows())
        return build::op_n("batch_norm_grad_sums", std::array{x, mean, var, dy}, {eps});
    const Groups groups = batch_groups(x->shape());
    const Shape channels{x->shape()[1]};
    const TensorRef r = rstd_of(build::reshape(var, groups.stats), eps), g = as_f32(dy);
    const TensorRef centered = as_f32(x) - build::reshape(mean, groups.stats);
    return {build::reshape(groups.sum(g * centered) * r, channels),
            build::reshape(groups.sum(g), channels)};
}

// The ops that normalize with the statistics join the activation and the sum that follow.
std::vector<TensorRef> expand_batch_norm(const OpCall& call, std::span<const TensorRef> inputs) {
    const Type& type = call.inputs[0];
    if (type.numel() == 0) return {};
    const Groups groups = batch_groups(type.shape);
    const Tensors stats = batch_stats(inputs[0]);
    const auto channel = [&](const TensorRef& v) {
        return build::reshape(as_f32(v), groups.stats);
    };
    const TensorRef factor = channel(inputs[1]) * rstd_of(channel(stats[1]), call.real("eps"));
    return {build::cast((as_f32(inputs[0]) - channel(stats[0])) * factor + channel(inputs[2]),
                        type.dtype),
            stats[0], stats[1]};
}

std::vector<TensorRef> expand_batch_norm_stats(const OpCall& call,
                                               std::span<const TensorRef> inputs) {
    if (call.inputs[0].numel() == 0 || !inputs[0]->device().shares_rows()) return {};
    return batch_stats(inputs[0]);
}

std::vector<TensorRef> expand_batch_norm_grad_sums(const OpCall& call,
                                                   std::span<const TensorRef> inputs) {
    if (call.inputs[0].numel() == 0 || !inputs[0]->device().shares_rows()) return {};
    return batch_grad_sums(inputs[0], inputs[1], inputs[2], inputs[3], call.real("eps"));
}

std::vector<TensorRef> expand_batch_norm_grad(const OpCall& call,
                                              std::span<const TensorRef> inputs) {
    const TensorRef &x = inputs[0], &mean = inputs[1], &var = inputs[2], &scale = inputs[3],
                    &dy = inputs[4];
    const Type& type = call.inputs[0];
    if (type.numel() == 0) return {};
    const Groups groups = batch_groups(type.shape);
    const auto channel = [&](const TensorRef& v) {
        return build::reshape(as_f32(v), groups.stats);
    };
    const Tensors sums = batch_grad_sums(x, mean, var, dy, call.real("eps"));
    const TensorRef r = rstd_of(channel(var), call.real("eps"));
    const TensorRef factor = channel(scale) * r, shift = channel(sums[1]) * (1 / groups.count),
                    slope = channel(sums[0]) * r * (1 / groups.count);
    const TensorRef dx = (as_f32(dy) - shift - (as_f32(x) - channel(mean)) * slope) * factor;
    return {build::cast(dx, type.dtype), build::cast(sums[0], scale->dtype()),
            build::cast(sums[1], scale->dtype())};
}

// Both kernels compute the same parts on purpose: it is cheaper than storing them.
std::vector<TensorRef> expand_layer_norm_grad(const OpCall& call,
                                              std::span<const TensorRef> inputs) {
    const Type& type = call.inputs[0];
    const auto [outer, inner] = layer_shapes(call, type);
    if (!has_fit_rows(inputs[0]->device(), outer, inner)) return {};
    const Groups groups = layer_groups(type.shape, call.integer("axes"));
    const TensorRef mean = build::reshape(inputs[1], groups.stats),
                    r = build::reshape(inputs[2], groups.stats);
    const bool affine = call.flag("affine");
    const auto normalized = [&] { return (as_f32(inputs[0]) - mean) * r; };
    const TensorRef xh = normalized(), dy = as_f32(inputs[3]);
    const TensorRef t = affine ? dy * build::reshape(as_f32(inputs[4]), groups.affine) : dy;
    const TensorRef dx = r * (t - mean_of(t, groups.within) - xh * mean_of(t * xh, groups.within));
    std::vector<TensorRef> results{build::cast(dx, type.dtype)};
    if (!affine) return results;
    const DType dtype = call.inputs[4].dtype;
    const TensorRef again = as_f32(inputs[3]);
    results.push_back(
        build::reshape(build::cast(groups.sum_affine(again * normalized()), dtype), inner));
    results.push_back(build::reshape(build::cast(groups.sum_affine(again), dtype), inner));
    return results;
}

Cost cost_norm(const OpCall& call, std::span<const Type> outputs) {
    return {8.0 * static_cast<double>(call.inputs[0].numel()), bytes_of(call, outputs)};
}

const AttrSpec kEps{"eps", AttrKind::real, Attr{1e-5}}, kAxes{"axes", AttrKind::integer},
    kAffine{"affine", AttrKind::integer, Attr{int64_t{1}}};

}  // namespace

std::vector<OpDef> norm_ops() {
    return {
        {.name = "batch_norm",
         .dumped_as = "BatchNorm",
         .doc =
             "(x - mean) / sqrt(var + eps) * scale + bias with the statistics of this batch, over all axes but axis 1. "
             "Also returns mean and the biased variance, in float32.",
         .inputs = {{"x", OperandKind::activation}, "scale", "bias"},
         .attrs = {kEps},
         .infer = infer_batch_norm,
         .grad = grad_batch_norm,
         .keeps = Keeps::both,
         .expand = expand_batch_norm,
         .cost = cost_norm},
        {.name = "batch_norm_stats",
         .doc = "Mean and biased variance over all axes but axis 1, in float32.",
         .inputs = {{"x", OperandKind::activation}},
         .infer = infer_batch_norm_stats,
         .expand = expand_batch_norm_stats,
         .cost = cost_norm},
        {.name = "batch_norm_grad",
         .doc = "Gradients of batch_norm's first result for x, scale and bias.",
         .inputs = {{"x", OperandKind::activation},
                    "mean",
                    "var",
                    "scale",
                    {"dy", OperandKind::activation}},
         .attrs = {kEps},
         .infer = infer_batch_norm_grad,
         .grad = grad_batch_norm_grad,
         .keeps = Keeps::inputs,
         .expand = expand_batch_norm_grad,
         .cost = cost_norm},
        {.name = "batch_norm_grad_sums",
         .doc =
             "Gradients of batch_norm's first result for scale and bias, in float32: sums over all axes but axis 1.",
         .inputs = {{"x", OperandKind::activation}, "mean", "var", {"dy", OperandKind::activation}},
         .attrs = {kEps},
         .infer = infer_batch_norm_grad_sums,
         .expand = expand_batch_norm_grad_sums,
         .cost = cost_norm},
        {.name = "layer_norm",
         .dumped_as = "LayerNorm",
         .doc =
             "Normalizes over the last `axes` axes, then scales and shifts (x, scale, bias; or x alone with affine = 0). "
             "Also returns mean and 1 / sqrt(var + eps), in float32.",
         .inputs = {"x", "scale_and_bias"},
         .variadic = true,
         .attrs = {kAxes, kEps, kAffine},
         .infer = infer_layer_norm,
         .grad = grad_layer_norm,
         .keeps = Keeps::both,
         .expand = expand_layer_norm,
         .cost = cost_norm},
        {.name = "layer_norm_grad",
         .doc =
             "Gradients of layer_norm's first result for x, and for scale and bias unless affine = 0.",
         .inputs = {"x", "mean", "rstd", "dy", "scale"},
         .variadic = true,
         .attrs = {kAxes, kAffine},
         .infer = infer_layer_norm_grad,
         .grad = grad_layer_norm_grad,
         .keeps = Keeps::inputs,
         .expand = expand_layer_norm_grad,
         .cost = cost_norm},
    };
}

}  // namespace megjit::runtime
