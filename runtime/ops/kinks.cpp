// Functions whose gradient at a kink differs from that of the op with the same values: models
// imported from PyTorch train as they do there. The slope of abs at 0 is 0, that of leaky_relu and
// prelu is the one of negative numbers; equal operands share a gradient.
#include "runtime/ops/elementwise.h"

namespace megjit::runtime {
namespace {

OpDef of_two(std::string name, std::string doc, ExprRule expr, GradRule grad) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x", "y"},
            .promotion = Promotion::arithmetic,
            .expr = expr,
            .grad_expr = grad,
            .commutative = true};
}

// Gives all of dy to the operand that was chosen, or half of it to each of two equal ones.
Expr shared(Expr chosen, Expr other, Expr is_chosen, Expr dy) {
    return select(eq(chosen, other), dy * 0.5, select(is_chosen, dy, 0.0));
}

Expr even_maximum_grad(const ExprArgs& a, int k, Expr, Expr dy) {
    return shared(a[k], a[1 - k], a[1 - k] < a[k], dy);
}
Expr even_minimum_grad(const ExprArgs& a, int k, Expr, Expr dy) {
    return shared(a[k], a[1 - k], a[k] < a[1 - k], dy);
}

Expr even_abs_grad(const ExprArgs& a, int, Expr, Expr dy) {
    return select(a[0] > 0.0, dy, select(a[0] < 0.0, -dy, 0.0));
}

}  // namespace

std::vector<OpDef> kink_ops() {
    return {
        {.name = "even_abs",
         .doc = "|x|. The gradient at 0 is 0.",
         .inputs = {"x"},
         .promotion = Promotion::arithmetic,
         .expr = [](const ExprArgs& a) { return abs(number(a[0])); },
         .grad_expr = even_abs_grad},
        of_two("even_maximum", "The larger one, or NaN. Equal operands share the gradient.",
               [](const ExprArgs& a) { return max(number(a[0]), number(a[1])); },
               even_maximum_grad),
        of_two("even_minimum", "The smaller one, or NaN. Equal operands share the gradient.",
               [](const ExprArgs& a) { return min(number(a[0]), number(a[1])); },
               even_minimum_grad),
        {.name = "left_leaky_relu",
         .doc = "x, or negative_slope * x where x is not positive: the slope at 0, too.",
         .inputs = {"x"},
         .attrs = {{"negative_slope", AttrKind::real, Attr(0.01)}},
         .promotion = Promotion::floating,
         .expr =
             [](const ExprArgs& a) {
        return select(a[0] > 0.0, a[0], a[0] * a.call.real("negative_slope"));
    }},
        {.name = "left_prelu",
         .doc = "x, or slope * x where x is not positive: the slope at 0, too.",
         .inputs = {"x", "slope"},
         .promotion = Promotion::floating,
         .expr = [](const ExprArgs& a) { return select(a[0] > 0.0, a[0], a[0] * a[1]); }},
    };
}

}  // namespace megjit::runtime
