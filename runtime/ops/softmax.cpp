// runtime/ops/softmax.cpp -- softmax and log_softmax along one axis. Gradients come from the output.
// Rules: S1 a floating dtype    S2 axis lies within the rank
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

std::vector<Type> infer_softmax(const OpCall& call) {
    const Type& x = call.inputs[0];
    if (!is_floating(x.dtype))
        refuse(call, cat("softmax S1: the dtype is floating, not ", info(x.dtype).name), "cast to float32", ErrorKind::type);
    normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    return {{x.dtype, x.shape}};
}

TensorRef sum_along(const GradCall& g, const TensorRef& x) {
    return build::reduce_sum(x, {normalize_axis(g.call.integer("axis"), x->shape().rank(), g.call.op.name)}, true);
}

Cost cost_softmax(const OpCall& call, std::span<const Type> outputs) {
    return {20.0 * static_cast<double>(outputs[0].numel()), bytes_of(call, outputs)};
}

}  // namespace

std::vector<OpDef> softmax_ops() {
    return {
        {.name = "softmax",
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
         .cost = cost_softmax},
    };
}

}  // namespace megjit::runtime
