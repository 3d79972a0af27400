// runtime/ops/attention.cpp -- scaled dot product attention, y = (d * softmax(s)) v, where d is
// dropout applied to ones and s = scale * q k' + mask + ..., or a given score for a hidden key.
// With p = softmax(s) and dp = d * (dy v'):
//   lse = log sum exp(s)      dv = (d * p)' dy      ds = p * (dp - <dy y>)      dq = scale * ds k
//   dk = scale * ds' q
// Backward computes p again from lse, and so keeps nothing as large as the scores. Where lse is
// large (kRoundedLse) its rounding error is large, too, and exp(s - lse) does not add up to 1:
// there backward sums exp(s) again, and subtracts log sum exp(s) - lse as well.
// Source: Vaswani et al. 2017, "Attention Is All You Need"; Dao et al. 2022, "FlashAttention";
// Ainslie et al. 2023, "GQA" (keys and values of fewer heads).
// Rules: A1 q, k and v are [n, heads, length, width] of one floating dtype
//        A2 q and k have one width, k and v one length; all have the same n; k and v have equally
//        many heads, whose number divides that of q
//        A3 there is at least one key
//        A4 y, lse and dy have the types of attention's results
//        A5 masks and replaced scores are float32, `seen` is bool; all have four axes with the
//        scores' extent or 1; there are at most kMostMasks masks
//        A6 0 <= drop_prob < 1, and a key is int32[4]
#include "runtime/ops/attention.h"

#include <algorithm>
#include <limits>

#include "runtime/eager/autodiff.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {

AttentionProblem attention_problem(const OpCall& call) {
    AttentionProblem p{.scale = call.real("scale"),
                       .drop_prob = call.real("drop_prob"),
                       .is_causal = call.flag("causal"),
                       .gives_zeros = call.flag("zeros"),
                       .masks = static_cast<int>(call.integer("masked"))};
    if (has_attr(call, "extents")) {
        const std::vector<int64_t>& e = call.integers("extents");
        p.batch = e[0], p.heads = e[1], p.key_heads = e[2], p.queries = e[3], p.keys = e[4];
        p.width = e[5], p.value_width = e[6];
    } else {
        const Shape &q = call.inputs[0].shape, &k = call.inputs[1].shape;
        p.batch = q[0], p.heads = q[1], p.key_heads = k[1], p.queries = q[2], p.keys = k[2];
        p.width = q[3], p.value_width = call.inputs[2].shape[3];
    }
    int more = static_cast<int>(call.op.inputs.size()) - 1;
    if (p.masks > 0) p.first_mask = more, more += p.masks;
    if (call.flag("hides")) p.seen = more++, p.hidden = more++;
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

void check_like_scores(const OpCall& call, const AttentionProblem& p, const char* name, int operand,
                       DType dtype = DType::f32) {
    const Type& type = call.inputs[static_cast<size_t>(operand)];
    const Shape scores = p.scores();
    bool fits = type.dtype == dtype && type.rank() == 4;
    for (int axis = 0; fits && axis < 4; ++axis)
        fits = type.shape[axis] == 1 || type.shape[axis] == scores[axis];
    if (!fits)
        refuse(call, cat(name, " is ", info(dtype).name, " and broadcasts to ", to_string(scores),
                         " axis by axis, not ", to_string(type)));
}

void check_more(const OpCall& call) {
    const double drop = call.real("drop_prob");
    if (!(drop >= 0 && drop < 1)) refuse(call, cat("drop_prob is ", drop, ", not in [0, 1)"));
    const int64_t masks = call.integer("masked");
    if (masks < 0 || masks > AttentionProblem::kMostMasks)
        refuse(call, cat("there are ", masks, " masks, not 0 to ", AttentionProblem::kMostMasks));
    const size_t fixed = call.op.inputs.size() - 1,
                 more =
                     static_cast<size_t>(masks) + 2 * size_t{call.flag("hides")} + size_t{drop > 0};
    if (call.inputs.size() != fixed + more)
        refuse(call, cat("attention: masked, hides and drop_prob ask for ", more,
                         " operands behind the others, there are ", call.inputs.size() - fixed));
    const AttentionProblem p = attention_problem(call);
    for (int i = 0; i < p.masks; ++i) check_like_scores(call, p, "a mask", p.first_mask + i);
    if (p.seen >= 0) {
        check_like_scores(call, p, "seen", p.seen, DType::b8);
        check_like_scores(call, p, "hidden", p.hidden);
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
    check_more(call);
    return attention_results(call);
}

std::vector<Type> infer_attention_grad(const OpCall& call) {
    check_lengths(call);
    check_more(call);
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

// Writes the formulas in simpler ops, with keys and values for each head of the queries.
class Composed {
public:
    Composed(const OpCall& call, std::span<const TensorRef> inputs)
        : p_(attention_problem(call)), inputs_(inputs), q(inputs[0]) {
        k = for_each_head(inputs[1]);
        v = for_each_head(inputs[2]);
    }

    // The scores in float32; minus infinity where the query comes before the key.
    TensorRef scores() const {
        TensorRef s = build::mul(build::cast(product(q, k, false, true), DType::f32), p_.scale);
        for (int i = 0; i < p_.masks; ++i) s = build::add(s, operand(p_.first_mask + i));
        if (p_.seen >= 0) s = build::where(operand(p_.seen), s, operand(p_.hidden));
        if (!p_.is_causal) return s;
        const Axes extents(s->shape().begin(), s->shape().end());
        const auto place = [&](int64_t axis) {
            return apply(find_op("coordinates"), {extents, axis}, {}, &s->device())[0];
        };
        return build::where(build::op("greater_equal", {place(kQueries), place(kKeys)}), s,
                            minus_infinity(s));
    }
    // Each query's largest score `top`, and the sum of exp(s - top). For a query that sees no key
    // and gets zeros, nothing is subtracted: the sum is 0, not NaN.
    struct Sums {
        TensorRef top, e, total;
    };
    Sums sums(const TensorRef& s) const {
        const TensorRef top = build::op("reduce_max", {s}, {Axes{kKeys}, int64_t{1}}),
                        e = build::op("exp", {build::sub(s, seen_or_zero(top, top))});
        return {top, e, build::reduce_sum(e, {kKeys}, true)};
    }
    // Returns `x`, or 0 where -inf in `level` says that the query sees no key and gets zeros.
    TensorRef seen_or_zero(const TensorRef& level, const TensorRef& x) const {
        if (!p_.gives_zeros || (p_.masks == 0 && p_.seen < 0)) return x;
        return build::where(build::op("equal", {level, minus_infinity(level)}), zero(x), x);
    }
    // Recomputes p from lse, and from what rounding took from it; no gradient flows through that.
    TensorRef probabilities(const TensorRef& lse) const {
        const TensorRef s = scores(), one = with_one_key(lse);
        const auto [top, e, total] = sums(build::op("stop_gradient", {s}));
        const TensorRef rest = build::op(
            "stop_gradient", {build::sub(build::op("log", {total}), build::sub(one, top))});
        const TensorRef is_rounded =
            build::op("greater_equal", {build::op("abs", {one}), build::number(kRoundedLse, one)});
        const TensorRef more = seen_or_zero(one, build::where(is_rounded, rest, zero(rest)));
        return build::op("exp", {build::sub(build::sub(s, seen_or_zero(one, one)), more)});
    }
    TensorRef dropped(const TensorRef& x) const {
        if (p_.random_key < 0) return x;
        const Shape scores = p_.scores();
        return build::mul(x,
                          build::op("dropout_mask", {inputs_[static_cast<size_t>(p_.random_key)]},
                                    {Axes(scores.begin(), scores.end()), p_.drop_prob}));
    }
    // Where `seen` replaces scores, the product's gradient is 0.
    TensorRef of_products(const TensorRef& ds) const {
        return p_.seen < 0 ? ds : build::where(operand(p_.seen), ds, zero(ds));
    }
    TensorRef of_hidden(const TensorRef& ds) const {
        return build::where(operand(p_.seen), zero(ds), ds);
    }
    // The gradient of the scores, from that of y.
    TensorRef scores_grad(const TensorRef& p, const TensorRef& y, const TensorRef& dy) const {
        const auto f32 = [](const TensorRef& x) { return build::cast(x, DType::f32); };
        const TensorRef dot = build::reduce_sum(build::mul(f32(dy), f32(y)), {kKeys}, true),
                        dp = dropped(f32(product(dy, v, false, true)));
        return build::mul(p, build::sub(dp, dot));
    }
    TensorRef query_grad(const TensorRef& ds) const { return product(scaled(of_products(ds)), k); }
    TensorRef key_grad(const TensorRef& ds) const {
        return for_each_key_head(product(scaled(of_products(ds)), q, true, false));
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
    const TensorRef& operand(int index) const { return inputs_[static_cast<size_t>(index)]; }
    static TensorRef zero(const TensorRef& like) { return build::number(0, like); }
    static TensorRef minus_infinity(const TensorRef& like) {
        return build::number(-std::numeric_limits<double>::infinity(), like);
    }
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
    const auto [top, e, total] = composed.sums(composed.scores());
    const TensorRef factor = composed.seen_or_zero(top, build::op("reciprocal", {total})),
                    p = composed.dropped(build::mul(e, factor));
    return {product(build::cast(p, composed.v->dtype()), composed.v),
            build::reshape(build::add(top, build::op("log", {total})), infer(call)[1].shape)};
}

Tensors expand_attention_grad(const OpCall& call, std::span<const TensorRef> inputs) {
    const Composed composed(call, inputs);
    const TensorRef p = composed.probabilities(inputs[4]),
                    ds = composed.scores_grad(p, inputs[3], inputs[5]);
    return {composed.query_grad(ds), composed.key_grad(ds), composed.value_grad(p, inputs[5])};
}

// The gradients of lse (which ordinary networks do not read) and of masks keep the scores.
Grads grad_attention(const GradCall& g) {
    const TensorRef &dy = g.out_grads[0], &dlse = g.out_grads[1];
    Grads grads(g.inputs.size());
    if (dy) {
        Tensors inputs{g.inputs[0], g.inputs[1], g.inputs[2], g.outputs[0], g.outputs[1], dy};
        inputs.insert(inputs.end(), g.inputs.begin() + 3, g.inputs.end());
        const Tensors made = build::op_n("attention_grad", inputs, g.call.attrs);
        std::copy(made.begin(), made.end(), grads.begin());
    }
    const AttentionProblem problem = attention_problem(g.call);
    const auto wants = [&](int operand) {
        return operand >= 0 && g.needs[static_cast<size_t>(operand)];
    };
    bool wants_scores = wants(problem.hidden);
    for (int i = 0; i < problem.masks; ++i) wants_scores |= wants(problem.first_mask + i);
    if (!dlse && !(dy && wants_scores)) return grads;
    const Composed composed(g.call, g.inputs);
    const TensorRef p = composed.probabilities(g.outputs[1]);
    TensorRef ds = dy && wants_scores ? composed.scores_grad(p, g.outputs[0], dy) : nullptr;
    if (dlse) {
        const TensorRef rest = build::mul(p, Composed::with_one_key(dlse));
        const TensorRef more[] = {composed.query_grad(rest), composed.key_grad(rest)};
        for (size_t i : {0, 1}) grads[i] = grads[i] ? build::add(grads[i], more[i]) : more[i];
        ds = ds ? build::add(ds, rest) : rest;
    }
    const auto give = [&](int operand, const TensorRef& of_scores) {
        const auto at = static_cast<size_t>(operand);
        if (wants(operand)) grads[at] = build::reduce_to(of_scores, g.inputs[at]->shape());
    };
    for (int i = 0; i < problem.masks; ++i) give(problem.first_mask + i, composed.of_products(ds));
    if (wants(problem.hidden)) give(problem.hidden, composed.of_hidden(ds));
    return grads;
}

Cost cost_attention(const OpCall& call, std::span<const Type> outputs) {
    const AttentionProblem p = attention_problem(call);
    const auto scores = static_cast<double>(p.batch * p.heads * p.queries) *
                        static_cast<double>(p.keys) * (p.is_causal ? 0.5 : 1);
    const double products = outputs.size() == 2 ? 2 : 5;
    return {products * scores * static_cast<double>(p.width + p.value_width),
            bytes_of(call, outputs), true};
}

const std::vector<AttrSpec> kAttrs = {{"scale", AttrKind::real},
                                      {"causal", AttrKind::integer, Attr{int64_t{0}}},
                                      {"masked", AttrKind::integer, Attr{int64_t{0}}},
                                      {"drop_prob", AttrKind::real, Attr{0.0}},
                                      {"hides", AttrKind::integer, Attr{int64_t{0}}},
                                      {"zeros", AttrKind::integer, Attr{int64_t{0}}}};

}  // namespace

std::vector<OpDef> attention_ops() {
    return {
        {.name = "attention",
         .doc =
             "(dropout of softmax(scale * q k' + masks)) v over [n, heads, length, width], and the logarithm of the sums "
             "that softmax divides by. causal = 1: a query sees the keys up to its own place. zeros = 1: one that sees no "
             "key gets zeros, not NaN. k and v may have fewer heads, each for as many neighbouring ones of q. Behind v: "
             "`masked` masks, added one after the other; where hides = 1, which scores stay, and what the others are; a "
             "random key, where drop_prob > 0.",
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
