// Roots, powers, exponentials, logarithms, trigonometry and their relatives. Gradients follow from
// the rules of runtime/core/scalar_derivative.cpp, which use the result where that saves keeping x.
#include "runtime/ops/elementwise.h"

namespace megjit::runtime {
namespace {

const std::vector<double> kPositive = {1e-3, 0.3, 1, 2, 100};
const std::vector<double> kUnit = {-0.99, -0.5, -0.0, 0, 0.3, 0.7, 0.999};

OpDef real_function_of_two(std::string name, std::string doc, ExprRule expr,
                           bool commutative = false, GradRule grad = nullptr) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x", "y"},
            .promotion = Promotion::floating,
            .expr = expr,
            .grad_expr = grad,
            .commutative = commutative,
            .samples = kPositive};
}

OpDef division() {
    OpDef op =
        real_function_of_two("true_div", "x / y.", [](const ExprArgs& a) { return a[0] / a[1]; });
    op.at_number = {{1, ops::identity}};
    op.of_equals = 1;
    return op;
}

OpDef power() {
    OpDef op = real_function_of_two(
        "pow",
        "x to the power y, as C's pow. Where y is 0 the gradient for x is 0; where x is 0, that for y.",
        [](const ExprArgs& a) { return pow(a[0], a[1]); });
    op.at_number = {{1, ops::identity}, {2, ops::square}};
    return op;
}

OpDef undone_by(OpRef inverse, OpDef op) {
    op.real_inverse = inverse;
    return op;
}

// Choosing 1 keeps the branch that is not taken finite, in gradients of any order.
Expr norm_root_grad(const ExprArgs&, int, Expr y, Expr dy) {
    const Expr is_zero = eq(y, 0.0);
    return select(is_zero, 0.0, dy * 0.5 / select(is_zero, 1.0, y));
}

Expr log_add_exp(const ExprArgs& a) {
    // The difference of two equal infinities would be NaN.
    const Expr distance = select(eq(a[0], a[1]), 0.0, abs(a[0] - a[1]));
    return max(a[0], a[1]) + log1p(exp(-distance));
}

Expr log_add_exp_grad(const ExprArgs& a, int k, Expr, Expr dy) {
    return dy * logistic(k == 0 ? a[0] - a[1] : a[1] - a[0]);
}

// Where x is small: Newton's method on log(erfc(y)) = log(x), from the asymptotic expansion of
// erfc. Elsewhere: erfinv(1 - x), and one step that repairs the rounding of 1 - x.
Expr erfc_inverse(const ExprArgs& a) {
    constexpr double kHalfRootPi = 0.8862269254527580;
    const Expr x = a[0];
    const Expr central = erfinv(1.0 - x);
    const Expr l = -log(x);
    const Expr start = sqrt(max(l - log(sqrt(max(l, 1.0)) * 1.7724538509055160), 1.0));
    Expr y = select(x < 0.01, start, central);
    for (int i = 0; i < 3; ++i) {
        // erfc(y) / x - 1 keeps its digits; the slope of log(erfc) is -exp(-y^2) / (erfc(y)
        // sqrt(pi)/2).
        const Expr value = erfc(y);
        const Expr slope = exp(-(y * y)) / (value * kHalfRootPi);
        y = select(x < 0.5, y + log(value / x) / slope, y);
    }
    Expr tail = start;  // where erfc underflows: its asymptotic series, solved for y
    for (int i = 0; i < 2; ++i) {
        const Expr r = 1.0 / (tail * tail);
        tail = sqrt(l - log(tail * 1.7724538509055160) + log(1.0 - r * (0.5 - r * 0.75)));
    }
    const Expr inside = (x > 0.0) & (x < 2.0);
    const Expr outside = select(x < 0.0, l, central);  // the log is NaN, and 1 - x may be 1
    return select(inside, select(x < 1e-36, tail, y), outside);
}

Expr erfc_inverse_grad(const ExprArgs&, int, Expr y, Expr dy) {
    return -(dy * (exp(y * y) * 0.8862269254527580));
}

}  // namespace

#define MEGJIT_FUNCTION(fn, doc, ...) \
    real_function(#fn, doc, [](const ExprArgs& a) { return fn(a[0]); } __VA_OPT__(, ) __VA_ARGS__)

std::vector<OpDef> math_ops() {
    return {
        division(), power(),
            real_function_of_two(
                "atan2",
                "Angle of the point (y, x): its first input is the ordinate. Gradients at the origin are 0.",
                [](const ExprArgs& a) { return atan2(a[0], a[1]); }),
            dumped_as("LOG_SUM_EXP", real_function_of_two("logaddexp", "log(exp(x) + exp(y)).",
                                                          log_add_exp, true, log_add_exp_grad)),
            MEGJIT_FUNCTION(sqrt, "Square root.", kPositive)
        ,
            real_function("norm_root",
                          "Square root whose gradient at 0 is 0: norms and deviations of nothing.",
                          [](const ExprArgs& a) { return sqrt(a[0]); }, kPositive, norm_root_grad),
            real_function("rsqrt", "1 / sqrt(x).",
                          [](const ExprArgs& a) {
            return 1.0 / sqrt(a[0]);
        }, kPositive, [](const ExprArgs& a, int, Expr y, Expr dy) { return dy * y * -0.5 / a[0]; }),
            real_function("reciprocal", "1 / x.", [](const ExprArgs& a) { return 1.0 / a[0]; },
                          kPositive,
                          [](const ExprArgs&, int, Expr y, Expr dy) { return -(dy * y * y); }),
            undone_by(ops::log, MEGJIT_FUNCTION(exp, "e to the power x.")),
            MEGJIT_FUNCTION(expm1, "exp(x) - 1, exact near 0.")
        , undone_by(ops::exp, MEGJIT_FUNCTION(log, "Natural logarithm.", kPositive)),
            MEGJIT_FUNCTION(log1p, "log(1 + x), exact near 0.", kPositive)
        , MEGJIT_FUNCTION(sin, "Sine; exact to 2 ulp for every finite x.")
        , MEGJIT_FUNCTION(cos, "Cosine; exact to 2 ulp for every finite x.")
        , MEGJIT_FUNCTION(tan, "Tangent; exact to 2 ulp for every finite x.")
        , MEGJIT_FUNCTION(asin, "Arc sine.", kUnit)
        , MEGJIT_FUNCTION(acos, "Arc cosine.", kUnit)
        , MEGJIT_FUNCTION(atan, "Arc tangent.")
        , MEGJIT_FUNCTION(sinh, "Hyperbolic sine.", {-10, -1, -0.0, 0, 0.3, 1, 10})
        , MEGJIT_FUNCTION(cosh, "Hyperbolic cosine.", {-10, -1, -0.0, 0, 0.3, 1, 10})
        , MEGJIT_FUNCTION(tanh, "Hyperbolic tangent.")
        , MEGJIT_FUNCTION(asinh, "Inverse of sinh.")
        , MEGJIT_FUNCTION(acosh, "Inverse of cosh; NaN below 1.", {1.001, 1.5, 2, 100})
        , MEGJIT_FUNCTION(atanh, "Inverse of tanh.", kUnit)
        , MEGJIT_FUNCTION(erf, "Error function.")
        , MEGJIT_FUNCTION(erfc, "1 - erf(x), exact for large x.", {-3, -1, -0.0, 0, 0.3, 1, 3})
        , MEGJIT_FUNCTION(erfinv, "Inverse of erf.", kUnit)
        ,
            real_function("erfcinv", "Inverse of erfc.", erfc_inverse, {1e-3, 0.3, 1, 1.7, 1.999},
                          erfc_inverse_grad),
            MEGJIT_FUNCTION(lgamma, "Logarithm of the absolute value of the gamma function.",
                            kPositive)
        , MEGJIT_FUNCTION(digamma, "Derivative of lgamma.", kPositive)
        ,
    };
}
#undef MEGJIT_FUNCTION

}  // namespace megjit::runtime
