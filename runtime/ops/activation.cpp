// Activations of neural networks. Each is written so that neither it nor its gradient overflows; a
// branch that is not taken must stay finite, for its gradient is multiplied by 0.
#include "runtime/ops/elementwise.h"

namespace megjit::runtime {
namespace {

// Klambauer et al. 2017, "Self-Normalizing Neural Networks", equation 14.
constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;

AttrSpec real_attr(std::string_view name, double fallback) {
    return {.name = name, .kind = AttrKind::real, .fallback = Attr(fallback)};
}

Expr clip6(Expr x) { return min(max(x, 0.0), 6.0); }

Expr elu_of(Expr x, double alpha) { return select(x > 0.0, x, expm1(min(x, 0.0)) * alpha); }

// Its derivative at 0 is 1/2: that of the maximum is 0 there, that of the rest 1/2.
Expr soft_plus(Expr x) { return max(x.constant(0), x) + log1p(exp(-abs(x))); }

Expr relu_grad(const ExprArgs&, int, Expr y, Expr dy) { return select(y > 0.0, dy, 0.0); }
Expr relu6_grad(const ExprArgs&, int, Expr y, Expr dy) {
    return select((y > 0.0) & (y < 6.0), dy, 0.0);
}

bool are_halves(const ExprArgs& a) {
    const DType dtype = a.call.inputs[0].dtype;
    return dtype == DType::f16 || dtype == DType::bf16;
}

// Twice the normal distribution, erfc(-x / sqrt(2)): no cancellation for negative x.
Expr twice_normal(const ExprArgs& a) {
    const Expr x = a[0] * -0.70710678118654752;
    return are_halves(a) ? erfc_of_halves(x) : erfc(x);
}
Expr gelu_of(const ExprArgs& a) { return a[0] * 0.5 * twice_normal(a); }
Expr gelu_grad(const ExprArgs& a, int, Expr, Expr dy) {
    const Expr x = a[0];
    if (are_halves(a)) return dy * gelu_slope_of_halves(x);
    const Expr density = exp(x * x * -0.5) * 0.39894228040143268;
    return dy * (twice_normal(a) * 0.5 + x * density);
}

Expr silu_grad(const ExprArgs& a, int, Expr, Expr dy) {
    const Expr s = logistic(a[0]);
    return dy * (s * (a[0] * (1.0 - s) + 1.0));
}

Expr mish_grad(const ExprArgs& a, int, Expr, Expr dy) {
    const Expr t = tanh(soft_plus(a[0]));
    return dy * (t + a[0] * (1.0 - t * t) * logistic(a[0]));
}

}  // namespace

std::vector<OpDef> activation_ops() {
    return {
        {.name = "relu",
         .doc = "max(x, 0), or NaN.",
         .inputs = {"x"},
         .promotion = Promotion::arithmetic,
         .expr = [](const ExprArgs& a) { return max(number(a[0]), 0.0); },
         .grad_expr = relu_grad,
         .as_epilogue = EpilogueKind::relu,
         .gradient_as_epilogue = EpilogueKind::mask},
        {.name = "relu6",
         .doc = "min(max(x, 0), 6).",
         .inputs = {"x"},
         .promotion = Promotion::arithmetic,
         .expr = [](const ExprArgs& a) { return clip6(number(a[0])); },
         .grad_expr = relu6_grad},
        real_function("sigmoid", "1 / (1 + exp(-x)).",
                      [](const ExprArgs& a) { return logistic(a[0]); }, OpDef{}.samples,
                      [](const ExprArgs&, int, Expr y, Expr dy) { return dy * y * (1.0 - y); }),
        real_function("hsigmoid", "relu6(x + 3) / 6.",
                      [](const ExprArgs& a) { return clip6(a[0] + 3.0) / 6.0; }, OpDef{}.samples,
                      [](const ExprArgs&, int, Expr y, Expr dy) {
        return select((y > 0.0) & (y < 1.0), dy / 6.0, 0.0);
    }),
        dumped_as("H_SWISH",
                  real_function("hswish", "x * relu6(x + 3) / 6.",
                                [](const ExprArgs& a) { return a[0] * clip6(a[0] + 3.0) / 6.0; })),
        real_function("silu", "x * sigmoid(x).",
                      [](const ExprArgs& a) { return a[0] * logistic(a[0]); }, OpDef{}.samples,
                      silu_grad),
        real_function("gelu", "x * Phi(x), with the exact normal distribution.", gelu_of,
                      OpDef{}.samples, gelu_grad),
        real_function("mish", "x * tanh(softplus(x)).",
                      [](const ExprArgs& a) { return a[0] * tanh(soft_plus(a[0])); },
                      OpDef{}.samples, mish_grad),
        real_function("logsigmoid", "log(sigmoid(x)).",
                      [](const ExprArgs& a) {
        return min(a[0], 0.0) - log1p(exp(-abs(a[0])));
    }, OpDef{}.samples, [](const ExprArgs& a, int, Expr, Expr dy) { return dy * logistic(-a[0]); }),
        {.name = "leaky_relu",
         .doc = "x, or negative_slope * x where x is negative.",
         .inputs = {"x"},
         .attrs = {real_attr("negative_slope", 0.01)},
         .promotion = Promotion::floating,
         .expr =
             [](const ExprArgs& a) {
        return select(a[0] >= 0.0, a[0], a[0] * a.call.real("negative_slope"));
    }},
        {.name = "prelu",
         .doc = "x, or slope * x where x is negative.",
         .inputs = {"x", "slope"},
         .promotion = Promotion::floating,
         .expr = [](const ExprArgs& a) { return select(a[0] >= 0.0, a[0], a[0] * a[1]); }},
        {.name = "elu",
         .doc = "x, or alpha * (exp(x) - 1) where x is negative.",
         .inputs = {"x"},
         .attrs = {real_attr("alpha", 1.0)},
         .promotion = Promotion::floating,
         .expr = [](const ExprArgs& a) { return elu_of(a[0], a.call.real("alpha")); }},
        {.name = "celu",
         .doc = "x, or alpha * (exp(x / alpha) - 1) where x is negative.",
         .inputs = {"x"},
         .attrs = {real_attr("alpha", 1.0)},
         .promotion = Promotion::floating,
         .expr =
             [](const ExprArgs& a) {
        const double alpha = a.call.real("alpha");
        return select(a[0] > 0.0, a[0], expm1(min(a[0] / alpha, 0.0)) * alpha);
    }},
        real_function("selu", "Scaled elu.",
                      [](const ExprArgs& a) { return elu_of(a[0], kSeluAlpha) * kSeluScale; }),
    };
}

}  // namespace megjit::runtime
