// runtime/ops/attention.cpp -- scaled dot product attention, y = softmax(scale * q k') v.
// With s = scale * q k', p = softmax(s) and dp = dy v':
//   lse = log sum exp(s)      dv = p' dy      ds = p * (dp - <dy y>)      dq = scale * ds k      dk
//   = scale * ds' q
// so that backward computes p anew from lse, and keeps nothing as large as the scores.
// Source: Vaswani et al. 2017, "Attention Is All You Need"; Dao et al. 2022, "FlashAttention".
// Rules: A1 q, k and v are [n, heads, length, width] of one floating dtype    A2 q and k have one
// width, k and v one
//        length, and all have the same n and heads    A3 there are keys    A4 y, lse and dy are
//        what attention makes
#include <algorithm>
#include <limits>

#include "runtime/eager/autodiff.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using build::Axes;
using build::product;

constexpr int kQueries = 2, kKeys = 3;  // axes of the scores

std::vector<Type> infer_attention(const OpCall& call) {
    const Type &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
    for (const Type* x : {&q, &k, &v})
        if (x->rank() != 4 || x->dtype != q.dtype || !is_floating(x->dtype))
            refuse(call,
                   "attention A1: q, k and v are [n, heads, length, width] of one floating dtype",
                   "reshape, or cast", x->rank() == 4 ? ErrorKind::type : ErrorKind::value);
    const bool fit = q.shape[3] == k.shape[3] && k.shape[2] == v.shape[2];
    for (int axis : {0, 1})
        if (!fit || q.shape[axis] != k.shape[axis] || k.shape[axis] != v.shape[axis])
            refuse(
                call,
                "attention A2: q and k have one width, k and v one length, and all have the same "
                "n and heads",
                "repeat the heads of keys and values where queries have more");
    if (k.shape[2] == 0) refuse(call, "attention A3: there is no key to attend to");
    return {{q.dtype, {q.shape[0], q.shape[1], q.shape[2], v.shape[3]}},
            {DType::f32, {q.shape[0], q.shape[1], q.shape[2]}}};
}

std::vector<Type> infer_attention_grad(const OpCall& call) {
    const std::span<const Type> given = call.inputs;
    const std::vector<Type> made = infer_attention({call.op, call.attrs, given.first(3)});
    using Pair = std::pair<size_t, size_t>;
    for (const auto& [input, like] : {Pair{3, 0}, Pair{4, 1}, Pair{5, 0}})
        if (given[input].dtype != made[like].dtype || !(given[input].shape == made[like].shape))
            refuse(call, cat("attention A4: ", call.op.inputs[input].name, " is ",
                             to_string(given[input]), " and should be ", to_string(made[like])));
    return {{given[0].dtype, given[0].shape},
            {given[1].dtype, given[1].shape},
            {given[2].dtype, given[2].shape}};
}

Shape with_one_key(const TensorRef& lse) {
    Shape shape = lse->shape();
    shape.push_back(1);
    return shape;
}

// In float32; minus infinity where the query comes before the key.
TensorRef scores(const OpCall& call, const TensorRef& q, const TensorRef& k) {
    const TensorRef s =
        build::mul(build::cast(product(q, k, false, true), DType::f32), call.real("scale"));
    if (!call.flag("causal")) return s;
    const Axes extents(s->shape().begin(), s->shape().end());
    const auto place = [&](int64_t axis) {
        return apply(find_op("coordinates"), {extents, axis}, {}, &s->device())[0];
    };
    const TensorRef hidden = build::number(-std::numeric_limits<double>::infinity(), s);
    return build::where(build::op("greater_equal", {place(kQueries), place(kKeys)}), s, hidden);
}

TensorRef probabilities(const OpCall& call, const TensorRef& q, const TensorRef& k,
                        const TensorRef& lse) {
    const TensorRef rows = build::reshape(lse, with_one_key(lse));
    return build::op("exp", {build::sub(scores(call, q, k), rows)});
}

Tensors expand_attention(const OpCall& call, std::span<const TensorRef> inputs) {
    const TensorRef &q = inputs[0], &k = inputs[1], &v = inputs[2];
    const TensorRef s = scores(call, q, k),
                    top = build::op("reduce_max", {s}, {Axes{kKeys}, int64_t{1}});
    const TensorRef e = build::op("exp", {build::sub(s, top)}),
                    total = build::reduce_sum(e, {kKeys}, true);
    const TensorRef p = build::mul(e, build::op("reciprocal", {total}));
    return {product(build::cast(p, v->dtype()), v),
            build::reshape(build::add(top, build::op("log", {total})), infer(call)[1].shape)};
}

Tensors expand_attention_grad(const OpCall& call, std::span<const TensorRef> inputs) {
    const TensorRef &q = inputs[0], &k = inputs[1], &v = inputs[2], &dy = inputs[5];
    const DType dtype = q->dtype();
    const auto f32 = [](const TensorRef& x) { return build::cast(x, DType::f32); };
    const TensorRef p = probabilities(call, q, k, inputs[4]);
    const TensorRef dot = build::reduce_sum(build::mul(f32(dy), f32(inputs[3])), {kKeys}, true);
    const TensorRef dp = f32(product(dy, v, false, true));
    const TensorRef ds =
        build::cast(build::mul(build::mul(p, build::sub(dp, dot)), call.real("scale")), dtype);
    return {product(ds, k), product(ds, q, true, false),
            product(build::cast(p, dtype), dy, true, false)};
}

Grads grad_attention(const GradCall& g) {
    const TensorRef &q = g.inputs[0], &k = g.inputs[1], &lse = g.outputs[1];
    const TensorRef &dy = g.out_grads[0], &dlse = g.out_grads[1];
    Grads grads(3);
    if (dy)
        grads = build::op_n("attention_grad", std::array{q, k, g.inputs[2], g.outputs[0], lse, dy},
                            g.call.attrs);
    if (!dlse) return grads;
    const TensorRef rows =
        build::mul(build::reshape(dlse, with_one_key(lse)), g.call.real("scale"));
    const TensorRef ds =
        build::cast(build::mul(probabilities(g.call, q, k, lse), rows), q->dtype());
    const TensorRef more[] = {product(ds, k), product(ds, q, true, false)};
    for (size_t i : {0, 1}) grads[i] = grads[i] ? build::add(grads[i], more[i]) : more[i];
    return grads;
}

Cost cost_attention(const OpCall& call, std::span<const Type> outputs) {
    const Type &q = call.inputs[0], &v = call.inputs[2];
    const auto scores =
        static_cast<double>(q.numel() / std::max<int64_t>(1, q.shape[3]) * v.shape[2]);
    const double products = outputs.size() == 2 ? 2 : 5;
    return {products * scores * static_cast<double>(q.shape[3] + v.shape[3]),
            bytes_of(call, outputs)};
}

const AttrSpec kScale{"scale", AttrKind::real},
    kCausal{"causal", AttrKind::integer, Attr{int64_t{0}}};

}  // namespace

std::vector<OpDef> attention_ops() {
    return {
        {.name = "attention",
         .doc =
             "softmax(scale * q k') v over [n, heads, length, width], and the logarithm of the sums that softmax "
             "divides by. causal = 1: a query sees the keys up to its own place.",
         .inputs = {"q", "k", "v"},
         .attrs = {kScale, kCausal},
         .promotion = Promotion::floating,
         .infer = infer_attention,
         .grad = grad_attention,
         .has_gpu_product = true,
         .expand = expand_attention,
         .cost = cost_attention},
        {.name = "attention_grad",
         .doc = "Gradients of q, k and v from those of attention's first result.",
         .inputs = {"q", "k", "v", "y", "lse", "dy"},
         .attrs = {kScale, kCausal},
         .infer = infer_attention_grad,
         .grad = gradients_of_expansion,
         .has_gpu_product = true,
         .expand = expand_attention_grad,
         .cost = cost_attention},
    };
}

}  // namespace megjit::runtime
