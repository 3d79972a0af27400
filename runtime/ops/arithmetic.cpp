// Arithmetic, maximum and minimum, rounding. Integers wrap. Where both operands of maximum or
// minimum are equal, the first one gets the whole gradient.
#include "runtime/ops/elementwise.h"

namespace megjit::runtime {
namespace {

OpDef unary(std::string name, std::string doc, ExprRule expr, GradRule grad = nullptr,
            OpRef inverse = nullptr) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x"},
            .promotion = Promotion::arithmetic,
            .expr = expr,
            .grad_expr = grad,
            .inverse = inverse};
}

OpDef binary(std::string name, std::string doc, ExprRule expr, bool commutative = false,
             std::vector<AtNumber> at_number = {}) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x", "y"},
            .promotion = Promotion::arithmetic,
            .expr = expr,
            .commutative = commutative,
            .at_number = std::move(at_number)};
}

// Integers need no rounding.
OpDef rounding(std::string name, std::string doc, ExprRule expr) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x"},
            .promotion = Promotion::none,
            .expr = expr};
}

Expr round_half_away(const ExprArgs& a) {
    if (!is_real(a[0].type())) return a[0];
    const Expr whole = trunc(a[0]);
    const Expr away = select(a[0] < 0.0, whole - 1.0, whole + 1.0);
    return select(abs(a[0] - whole) < 0.5, whole, select(eq(a[0], whole), whole, away));
}

Expr sign_of(const ExprArgs& a) {
    const Expr x = number(a[0]);
    const Expr zero_or_nan = is_real(x.type()) ? select(eq(x, 0.0), 0.0, x) : x;
    return select(x > 0.0, x.constant(1), select(x < 0.0, x.constant(-1), zero_or_nan));
}

template <Expr (*f)(Expr)>
Expr unless_integer(const ExprArgs& a) {
    return is_real(a[0].type()) ? f(a[0]) : a[0];
}

}  // namespace

std::vector<OpDef> arithmetic_ops() {
    return {
        {.name = "add",
         .doc = "x + y.",
         .inputs = {"x", "y"},
         .promotion = Promotion::arithmetic,
         .expr = [](const ExprArgs& a) { return number(a[0]) + number(a[1]); },
         .commutative = true,
         .as_epilogue = EpilogueKind::add},
        binary("sub", "x - y.", [](const ExprArgs& a) { return number(a[0]) - number(a[1]); },
               false, {{0, ops::identity}}),
        binary("mul", "x * y.", [](const ExprArgs& a) { return number(a[0]) * number(a[1]); }, true,
               {{1, ops::identity}}),
        binary("floor_div", "x / y rounded towards minus infinity; an integer divided by 0 is 0.",
               [](const ExprArgs& a) {
        const Expr quotient = number(a[0]) / number(a[1]);
        return is_real(quotient.type()) ? floor(quotient) : quotient;
    }),
        binary("mod", "Rest of the division: with the sign of y for integers, of x for floats.",
               [](const ExprArgs& a) { return mod(number(a[0]), number(a[1])); }),
        dumped_as("MAX",
                  binary("maximum", "The larger one, or NaN.",
                         [](const ExprArgs& a) { return max(number(a[0]), number(a[1])); }, true)),
        dumped_as("MIN",
                  binary("minimum", "The smaller one, or NaN.",
                         [](const ExprArgs& a) { return min(number(a[0]), number(a[1])); }, true)),
        dumped_as("NEGATE", unary("neg", "-x.", [](const ExprArgs& a) { return -number(a[0]); },
                                  nullptr, ops::neg)),
        unary("abs", "|x|. The gradient at 0 is minus the incoming one.",
              [](const ExprArgs& a) { return abs(number(a[0])); }),
        unary("sign", "-1, 0 or 1, or NaN.", sign_of,
              [](const ExprArgs&, int, Expr, Expr) { return Expr(); }),
        unary("square", "x * x.", [](const ExprArgs& a) { return number(a[0]) * number(a[0]); }),
        {.name = "fma3",
         .dumped_as = "FUSE_MUL_ADD3",
         .doc = "a * b + c, rounded twice.",
         .inputs = {"a", "b", "c"},
         .promotion = Promotion::arithmetic,
         .expr = [](const ExprArgs& a) { return number(a[0]) * number(a[1]) + number(a[2]); }},
        rounding("ceil", "Rounds up.", unless_integer<ceil>),
        rounding("floor", "Rounds down.", unless_integer<floor>),
        rounding("trunc", "Rounds towards 0.", unless_integer<trunc>),
        rounding("round", "Rounds to the nearest, halves away from 0.", round_half_away),
    };
}

}  // namespace megjit::runtime
