// runtime/ops/attention.cpp -- scaled dot product attention, y = (d * softmax(scale * q k' + mask))
// v, where d is what dropout makes of ones. With s = scale * q k' + mask, p = softmax(s) and dp = d
// * (dy v'):
//   lse = log sum exp(s)      dv = (d * p)' dy      ds = p * (dp - <dy y>)      dq = scale * ds k
//   dk = scale * ds' q
// so that backward computes p anew from lse, and keeps nothing as large as the scores.
// Source: Vaswani et al. 2017, "Attention Is All You Need"; Dao et al. 2022, "FlashAttention";
// Ainslie et al. 2023, "GQA" (keys and values of fewer heads).
// Rules: A1 q, k and v are [n, heads, length, width] of one floating dtype
//        A2 q and k have one width, k and v one length; all have the same n, k and v the same
//        heads, whose number divides that of q
//        A3 there are keys
//        A4 y, lse and dy are what attention makes
//        A5 a mask is float32, of four axes, each of the scores' extent or 1
//        A6 0 <= drop_prob < 1, and a key is int32[4]
#include "runtime/ops/attention.h"

#include <algorithm>
#include <limits>

#include "runtime/eager/autodiff.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {

AttentionProblem attention_problem(const OpCall& call) {
    const Type &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
    AttentionProblem p{.batch = q.shape[0],
                       .heads = q.shape[1],
                       .queries = q.shape[2],
                       .keys = k.shape[2],
                       .width = q.shape[3],
                       .value_width = v.shape[3],
                       .key_heads = k.shape[1],
                       .scale = call.real("scale"),
                       .drop_prob = call.real("drop_prob"),
                       .is_causal = call.flag("causal")};
    int more = static_cast<int>(call.op.inputs.size()) - 1;
    if (call.flag("masked")) p.mask = more++;
    if (p.drop_prob > 0) p.random_key = more;
    return p;
}

std::array<int64_t, 4> mask_strides(const Shape& mask) {
    const auto row_major = mask.row_major_strides();
    std::array<int64_t, 4> strides{};
    for (int axis = 0; axis < 4; ++axis)
        if (mask[axis] > 1)
            strides[static_cast<size_t>(axis)] = row_major[static_cast<size_t>(axis)];
    return strides;
}

namespace {

using build::Axes;
using build::product;

constexpr int kQueries = 2, kKeys = 3;  // axes of the scores

void check_lengths(const OpCall& call) {
    const Type &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
    for (const Type* x : {&q, &k, &v})
        if (x->rank() != 4 || x->dtype != q.dtype || !is_floating(x->dtype))
            refuse(call, "q, k and v are [n, heads, length, width] of one floating dtype",
                   "reshape, or cast", x->rank() == 4 ? ErrorKind::type : ErrorKind::value);
    if (q.shape[3] != k.shape[3] || k.shape[2] != v.shape[2] || q.shape[0] != k.shape[0] ||
        k.shape[0] != v.shape[0] || k.shape[1] != v.shape[1] ||
        (k.shape[1] == 0 ? q.shape[1] != 0 : q.shape[1] % k.shape[1] != 0))
        refuse(call,
               "q and k have one width, k and v one length; all have the same n, k "
               "and v the same heads, whose number divides that of q",
               q.shape[3] == k.shape[3] && k.shape[2] == v.shape[2]
                   ? "repeat the heads of keys and values until they divide the queries'"
                   : "they are [n, heads, length, width]; transpose or reshape what is not");
    if (k.shape[2] == 0) refuse(call, "there is no key to attend to");
}

void check_mask_and_key(const OpCall& call) {
    const double drop = call.real("drop_prob");
    if (!(drop >= 0 && drop < 1)) refuse(call, cat("drop_prob is ", drop, ", not in [0, 1)"));
    const size_t fixed = call.op.inputs.size() - 1,
                 more = size_t{call.flag("masked")} + size_t{drop > 0};
    if (call.inputs.size() != fixed + more)
        refuse(call, cat("attention: masked and drop_prob ask for ", more,
                         " operands behind the others, there are ", call.inputs.size() - fixed));
    const AttentionProblem p = attention_problem(call);
    if (p.mask >= 0) {
        const Type& mask = call.inputs[static_cast<size_t>(p.mask)];
        const Shape scores = p.scores();
        bool fits = mask.dtype == DType::f32 && mask.rank() == 4;
        for (int axis = 0; fits && axis < 4; ++axis)
            fits = mask.shape[axis] == 1 || mask.shape[axis] == scores[axis];
        if (!fits)
            refuse(call, cat("a mask is float32 and broadcasts to ", to_string(scores),
                             " axis by axis, not ", to_string(mask)));
    }
    if (p.random_key >= 0) {
        const Type& key = call.inputs[static_cast<size_t>(p.random_key)];
        if (key.dtype != DType::i32 || !(key.shape == Shape{4}))
            refuse(call, cat("a key is int32[4], not ", to_string(key)));
    }
}

std::vector<Type> attention_results(const OpCall& call) {
    const AttentionProblem p = attention_problem(call);
    return {{call.inputs[0].dtype, {p.batch, p.heads, p.queries, p.value_width}},
            {DType::f32, {p.batch, p.heads, p.queries}}};
}

std::vector<Type> infer_attention(const OpCall& call) {
    check_lengths(call);
    check_mask_and_key(call);
    return attention_results(call);
}

std::vector<Type> infer_attention_grad(const OpCall& call) {
    check_lengths(call);
    check_mask_and_key(call);
    const std::span<const Type> given = call.inputs;
    const std::vector<Type> made = attention_results(call);
    using Pair = std::pair<size_t, size_t>;
    for (const auto& [input, like] : {Pair{3, 0}, Pair{4, 1}, Pair{5, 0}})
        if (given[input].dtype != made[like].dtype || !(given[input].shape == made[like].shape))
            refuse(call, cat(call.op.inputs[input].name, " is ", to_string(given[input]),
                             " and should be ", to_string(made[like])));
    return {{given[0].dtype, given[0].shape},
            {given[1].dtype, given[1].shape},
            {given[2].dtype, given[2].shape}};
}

// The formulas in simpler ops, with keys and values for each head of the queries.
class Composed {
public:
    Composed(const OpCall& call, std::span<const TensorRef> inputs)
        : p_(attention_problem(call)), inputs_(inputs), q(inputs[0]) {
        k = for_each_head(inputs[1]);
        v = for_each_head(inputs[2]);
    }

    // In float32; minus infinity where the query comes before the key.
    TensorRef scores() const {
        TensorRef s = build::mul(build::cast(product(q, k, false, true), DType::f32), p_.scale);
        if (p_.mask >= 0) s = build::add(s, inputs_[static_cast<size_t>(p_.mask)]);
        if (!p_.is_causal) return s;
        const Axes extents(s->shape().begin(), s->shape().end());
        const auto place = [&](int64_t axis) {
            return apply(find_op("coordinates"), {extents, axis}, {}, &s->device())[0];
        };
        const TensorRef hidden = build::number(-std::numeric_limits<double>::infinity(), s);
        return build::where(build::op("greater_equal", {place(kQueries), place(kKeys)}), s, hidden);
    }
    TensorRef probabilities(const TensorRef& lse) const {
        return build::op("exp", {build::sub(scores(), with_one_key(lse))});
    }
    TensorRef dropped(const TensorRef& x) const {
        if (p_.random_key < 0) return x;
        const Shape scores = p_.scores();
        return build::mul(x,
                          build::op("dropout_mask", {inputs_[static_cast<size_t>(p_.random_key)]},
                                    {Axes(scores.begin(), scores.end()), p_.drop_prob}));
    }
    // The gradient of scores, of those of y.
    TensorRef scores_grad(const TensorRef& p, const TensorRef& y, const TensorRef& dy) const {
        const auto f32 = [](const TensorRef& x) { return build::cast(x, DType::f32); };
        const TensorRef dot = build::reduce_sum(build::mul(f32(dy), f32(y)), {kKeys}, true),
                        dp = dropped(f32(product(dy, v, false, true)));
        return build::mul(p, build::sub(dp, dot));
    }
    TensorRef query_grad(const TensorRef& ds) const { return product(scaled(ds), k); }
    TensorRef key_grad(const TensorRef& ds) const {
        return for_each_key_head(product(scaled(ds), q, true, false));
    }
    TensorRef value_grad(const TensorRef& p, const TensorRef& dy) const {
        return for_each_key_head(product(build::cast(dropped(p), q->dtype()), dy, true, false));
    }
    static TensorRef with_one_key(const TensorRef& rows) {
        Shape shape = rows->shape();
        shape.push_back(1);
        return build::reshape(rows, shape);
    }

private:
    TensorRef scaled(const TensorRef& ds) const {
        return build::cast(build::mul(ds, p_.scale), q->dtype());
    }
    TensorRef for_each_head(const TensorRef& x) const {
        const int64_t shared = p_.key_heads ? p_.heads / p_.key_heads : 1;
        if (shared == 1) return x;
        const int64_t length = x->shape()[2], width = x->shape()[3];
        const TensorRef one = build::reshape(x, {p_.batch, p_.key_heads, 1, length, width});
        return build::reshape(
            build::broadcast_to(one, {p_.batch, p_.key_heads, shared, length, width}),
            {p_.batch, p_.heads, length, width});
    }
    TensorRef for_each_key_head(const TensorRef& x) const {
        const int64_t shared = p_.key_heads ? p_.heads / p_.key_heads : 1;
        if (shared == 1) return x;
        const int64_t length = x->shape()[2], width = x->shape()[3];
        return build::reduce_sum(build::reshape(x, {p_.batch, p_.key_heads, shared, length, width}),
                                 {2}, false);
    }

    AttentionProblem p_;
    std::span<const TensorRef> inputs_;

public:
    TensorRef q, k, v;
};

Tensors expand_attention(const OpCall& call, std::span<const TensorRef> inputs) {
    const Composed composed(call, inputs);
    const TensorRef s = composed.scores(),
                    top = build::op("reduce_max", {s}, {Axes{kKeys}, int64_t{1}});
    const TensorRef e = build::op("exp", {build::sub(s, top)}),
                    total = build::reduce_sum(e, {kKeys}, true);
    const TensorRef p = composed.dropped(build::mul(e, build::op("reciprocal", {total})));
    return {product(build::cast(p, composed.v->dtype()), composed.v),
            build::reshape(build::add(top, build::op("log", {total})), infer(call)[1].shape)};
}

Tensors expand_attention_grad(const OpCall& call, std::span<const TensorRef> inputs) {
    const Composed composed(call, inputs);
    const TensorRef p = composed.probabilities(inputs[4]),
                    ds = composed.scores_grad(p, inputs[3], inputs[5]);
    return {composed.query_grad(ds), composed.key_grad(ds), composed.value_grad(p, inputs[5])};
}

// Those of lse, which ordinary networks do not read, and of a mask keep the scores.
Grads grad_attention(const GradCall& g) {
    const TensorRef &dy = g.out_grads[0], &dlse = g.out_grads[1];
    Grads grads(g.inputs.size());
    if (dy) {
        Tensors inputs{g.inputs[0], g.inputs[1], g.inputs[2], g.outputs[0], g.outputs[1], dy};
        inputs.insert(inputs.end(), g.inputs.begin() + 3, g.inputs.end());
        const Tensors made = build::op_n("attention_grad", inputs, g.call.attrs);
        std::copy(made.begin(), made.end(), grads.begin());
    }
    const int mask = attention_problem(g.call).mask;
    const bool wants_mask = mask >= 0 && g.needs[static_cast<size_t>(mask)];
    if (!dlse && !(dy && wants_mask)) return grads;
    const Composed composed(g.call, g.inputs);
    const TensorRef p = composed.probabilities(g.outputs[1]);
    TensorRef ds = dy && wants_mask ? composed.scores_grad(p, g.outputs[0], dy) : nullptr;
    if (dlse) {
        const TensorRef rest = build::mul(p, Composed::with_one_key(dlse));
        const TensorRef more[] = {composed.query_grad(rest), composed.key_grad(rest)};
        for (size_t i : {0, 1}) grads[i] = grads[i] ? build::add(grads[i], more[i]) : more[i];
        ds = ds ? build::add(ds, rest) : rest;
    }
    if (wants_mask)
        grads[static_cast<size_t>(mask)] =
            build::reduce_to(ds, g.inputs[static_cast<size_t>(mask)]->shape());
    return grads;
}

Cost cost_attention(const OpCall& call, std::span<const Type> outputs) {
    const AttentionProblem p = attention_problem(call);
    const auto scores = static_cast<double>(p.batch * p.heads * p.queries) *
                        static_cast<double>(p.keys) * (p.is_causal ? 0.5 : 1);
    const double products = outputs.size() == 2 ? 2 : 5;
    return {products * scores * static_cast<double>(p.width + p.value_width),
            bytes_of(call, outputs)};
}

const std::vector<AttrSpec> kAttrs = {{"scale", AttrKind::real},
                                      {"causal", AttrKind::integer, Attr{int64_t{0}}},
                                      {"masked", AttrKind::integer, Attr{int64_t{0}}},
                                      {"drop_prob", AttrKind::real, Attr{0.0}}};

}  // namespace

std::vector<OpDef> attention_ops() {
    return {
        {.name = "attention",
         .doc =
             "(dropout of softmax(scale * q k' + mask)) v over [n, heads, length, width], and the logarithm of the sums "
             "that softmax divides by. causal = 1: a query sees the keys up to its own place. k and v may have fewer heads, "
             "each for as many neighbouring ones of q. Behind v: a mask, where masked = 1; a random key, where drop_prob > 0.",
         .inputs = {"q", "k", "v", "more"},
         .variadic = true,
         .attrs = kAttrs,
         .infer = infer_attention,
         .grad = grad_attention,
         .has_gpu_product = true,
         .expand = expand_attention,
         .cost = cost_attention},
        {.name = "attention_grad",
         .doc = "Gradients of q, k and v from those of attention's first result.",
         .inputs = {"q", "k", "v", "y", "lse", "dy", "more"},
         .variadic = true,
         .attrs = kAttrs,
         .infer = infer_attention_grad,
         .grad = gradients_of_expansion,
         .has_gpu_product = true,
         .expand = expand_attention_grad,
         .cost = cost_attention},
    };
}

}  // namespace megjit::runtime
