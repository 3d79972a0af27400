// runtime/ops/softmax.cpp -- softmax and log_softmax along one axis. Gradients come from the
// output. Rules: S1 a floating dtype    S2 axis lies within the rank
#include "runtime/core/device.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

std::vector<Type> infer_softmax(const OpCall& call) {
    const Type& x = call.inputs[0];
    if (!is_floating(x.dtype))
        refuse(call, cat("the dtype is floating, not ", info(x.dtype).name), "cast to float32",
               ErrorKind::type);
    normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    return {{x.dtype, x.shape}};
}

TensorRef sum_along(const GradCall& g, const TensorRef& x) {
    return build::reduce_sum(
        x, {normalize_axis(g.call.integer("axis"), x->shape().rank(), g.call.op.name)}, true);
}

// On a CPU, the threads of generated kernels share rows, not the elements of a row. A few long rows
// are for the eager kernel, which shares them no better, but does not walk memory three times.
bool has_fit_rows(const Device& device, const Shape& shape, int axis) {
    if (shape.numel() == 0) return false;
    return device.shares_rows() ||
           (shape[axis] > 1 && (shape.numel() / shape[axis] >= 8 || shape.numel() <= 32768));
}

std::vector<TensorRef> expand_softmax(const OpCall& call, std::span<const TensorRef> inputs) {
    const int axis = normalize_axis(call.integer("axis"), call.inputs[0].rank(), call.op.name);
    if (!has_fit_rows(inputs[0]->device(), call.inputs[0].shape, axis)) return {};
    const DType dtype = call.inputs[0].dtype;
    const build::Axes axes{axis};
    const TensorRef x = build::cast(inputs[0], DType::f32);
    const TensorRef shifted = build::sub(x, build::op("reduce_max", {x}, {axes, int64_t{1}}));
    const TensorRef e = build::op("exp", {shifted}), total = build::reduce_sum(e, axes, true);
    const bool log = call.op.name == "log_softmax";
    const TensorRef y = log ? build::sub(shifted, build::op("log", {total}))
                            : build::mul(e, build::op("reciprocal", {total}));
    return {build::cast(y, dtype)};
}

Cost cost_softmax(const OpCall& call, std::span<const Type> outputs) {
    return {20.0 * static_cast<double>(outputs[0].numel()), bytes_of(call, outputs)};
}

}  // namespace

std::vector<OpDef> softmax_ops() {
    return {
        {.name = "softmax",
         .dumped_as = "Softmax",
         .doc = "exp(x) / sum(exp(x)) along one axis, shifted by the largest element.",
         .inputs = {"x"},
         .attrs = {{"axis", AttrKind::integer}},
         .promotion = Promotion::floating,
         .infer = infer_softmax,
         .grad = [](const GradCall& g) -> Grads {  // dx = y * (dy - sum(y * dy))
        const TensorRef &y = g.outputs[0], &dy = g.out_grads[0];
        return {build::mul(y, build::sub(dy, sum_along(g, build::mul(y, dy))))};
    },
         .keeps = Keeps::outputs,
         .expand = expand_softmax,
         .cost = cost_softmax},
        {.name = "log_softmax",
         .doc = "x - log(sum(exp(x))) along one axis, shifted by the largest element.",
         .inputs = {"x"},
         .attrs = {{"axis", AttrKind::integer}},
         .promotion = Promotion::floating,
         .infer = infer_softmax,
         .grad = [](const GradCall& g) -> Grads {  // dx = dy - exp(y) * sum(dy)
        const TensorRef &y = g.outputs[0], &dy = g.out_grads[0];
        return {build::sub(dy, build::mul(build::op("exp", {y}), sum_along(g, dy)))};
    },
         .keeps = Keeps::outputs,
         .expand = expand_softmax,
         .cost = cost_softmax},
    };
}

}  // namespace megjit::runtime
