// runtime/ops/random.cpp -- random numbers as pure functions of a key: int32[4], the seed and
// the counter of the draw, low half first. Source of the bits: runtime/ops/philox.h.
// Rules:
//   key K1 the key is int32[4]
//   gamma, beta, poisson D1 float32 parameters of one shape
//   dropout_mask P1 0 <= drop_prob < 1
//   permutation N1 0 <= n < 2^31
//   multinomial W1 float32 weights [n] or [rows, n], and between 1 and n samples without
//      replacement
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

void check_key(const OpCall& call) {
    if (!(call.inputs[0] == Type{DType::i32, {4}}))
        refuse(call, cat("the key is i32[4], not ", to_string(call.inputs[0])),
               "take keys from a RandomState");
}

std::vector<Type> infer_shaped(const OpCall& call) {
    check_key(call);
    return {{DType::f32, Shape{std::span<const int64_t>(call.integers("shape"))}}};
}

std::vector<Type> infer_dropout(const OpCall& call) {
    const double p = call.real("drop_prob");
    if (!(p >= 0 && p < 1)) refuse(call, cat("drop_prob is ", p, ", not in [0, 1)"));
    return infer_shaped(call);
}

std::vector<Type> infer_distribution(const OpCall& call) {
    check_key(call);
    for (size_t k = 1; k < call.inputs.size(); ++k)
        if (call.inputs[k].dtype != DType::f32 || !(call.inputs[k].shape == call.inputs[1].shape))
            refuse(call,
                   cat("parameter ", k, " is ", to_string(call.inputs[k]), ", not ",
                       to_string(Type{DType::f32, call.inputs[1].shape})),
                   "broadcast and cast the parameters");
    return {{DType::f32, call.inputs[1].shape}};
}

std::vector<Type> infer_permutation(const OpCall& call) {
    check_key(call);
    const int64_t n = call.integer("n");
    if (n < 0 || n > INT32_MAX) refuse(call, cat("n is ", n, ", not in [0, 2^31)"));
    return {{DType::i32, Shape{n}}};
}

std::vector<Type> infer_multinomial(const OpCall& call) {
    check_key(call);
    const Type& weights = call.inputs[1];
    if (weights.dtype != DType::f32 || weights.rank() < 1 || weights.rank() > 2)
        refuse(call, cat("weights are float32 with one or two axes, not ", to_string(weights)));
    const int64_t samples = call.integer("num_samples"), n = weights.shape[weights.rank() - 1];
    if (samples < 1 || n < 1 || (!call.flag("replacement") && samples > n))
        refuse(call, cat(samples, " samples from ", n, " weights"),
               "draw fewer, or with replacement");
    Shape shape = weights.shape;
    shape[shape.rank() - 1] = samples;
    return {{DType::i32, shape}};
}

// A draw is not a smooth function of the parameters, and no gradient is better than a wrong one.
Grads refuse_gradient(const GradCall& g) {
    for (const bool needed : g.needs)
        if (needed)
            user_error(
                {.what =
                     cat(g.call.op.name,
                         ": there is no gradient with respect to the parameters of a distribution"),
                 .fix =
                     "detach the parameters, or sample uniform or normal numbers and transform them"},
                ErrorKind::runtime);
    return Grads(g.inputs.size());
}

Cost cost_draw(const OpCall& call, std::span<const Type> outputs) {
    return {40.0 * static_cast<double>(outputs[0].numel()), bytes_of(call, outputs)};
}

OpDef draw(std::string name, std::string doc, std::vector<OperandSpec> inputs,
           std::vector<AttrSpec> attrs, std::vector<Type> (*infer)(const OpCall&)) {
    const bool parametrised = inputs.size() > 1;
    const bool checks = name == "random_multinomial";
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = std::move(inputs),
            .attrs = std::move(attrs),
            .infer = infer,
            .grad = parametrised ? refuse_gradient : nullptr,
            .keeps = Keeps::nothing,
            .checks_values = checks,
            .cost = cost_draw};
}

}  // namespace

std::vector<OpDef> random_ops() {
    const AttrSpec shape{"shape", AttrKind::integers};
    return {
        draw("random_uniform", "float32 multiples of 2^-24 in [0, 1).", {"key"}, {shape},
             infer_shaped),
        draw("random_normal", "Standard normal numbers (Box and Muller 1958).", {"key"}, {shape},
             infer_shaped),
        draw("random_gamma",
             "Gamma numbers, one for each pair of parameters (Marsaglia and Tsang 2000).",
             {"key", "shape", "scale"}, {}, infer_distribution),
        draw("random_beta", "Beta numbers, from two gamma numbers each.", {"key", "a", "b"}, {},
             infer_distribution),
        draw(
            "random_poisson",
            "Poisson numbers as float32: inversion below rate 10, else transformed rejection (Hoermann 1993).",
            {"key", "lam"}, {}, infer_distribution),
        draw("random_permutation", "0...n-1 in random order (Fisher and Yates), int32.", {"key"},
             {{"n", AttrKind::integer}}, infer_permutation),
        draw("random_multinomial",
             "int32 indices drawn with probabilities proportional to the weights of a row.",
             {"key", "weights"},
             {{"num_samples", AttrKind::integer},
              {"replacement", AttrKind::integer, Attr{int64_t{0}}}},
             infer_multinomial),
        draw("dropout_mask", "0 with probability drop_prob, else 1 / (1 - drop_prob).", {"key"},
             {shape, {"drop_prob", AttrKind::real}}, infer_dropout),
    };
}

}  // namespace megjit::runtime
