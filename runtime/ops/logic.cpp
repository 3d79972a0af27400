// Comparisons, logic and bits, and the choice between values.
#include <cmath>

#include "runtime/ops/elementwise.h"

namespace megjit::runtime {
namespace {

OpDef comparison(std::string name, std::string doc, ExprRule expr, bool commutative = false) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x", "y"},
            .promotion = Promotion::arithmetic,
            .result = Result::boolean,
            .expr = expr,
            .commutative = commutative};
}

OpDef test(std::string name, std::string doc, ExprRule expr) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x"},
            .result = Result::boolean,
            .expr = expr};
}

OpDef bits(std::string name, std::string doc, Promotion promotion, ExprRule expr,
           bool commutative = true) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x", "y"},
            .promotion = promotion,
            .expr = expr,
            .commutative = commutative};
}

Expr infinity(Expr x) { return x.constant(real(x).type(), HUGE_VAL); }

}  // namespace

std::vector<OpDef> logic_ops() {
    return {
        dumped_as("EQ", comparison("equal", "x == y.",
                                   [](const ExprArgs& a) { return eq(a[0], a[1]); }, true)),
        dumped_as("NEQ", comparison("not_equal", "x != y; true for NaN.",
                                    [](const ExprArgs& a) { return ne(a[0], a[1]); }, true)),
        dumped_as("LT",
                  comparison("less", "x < y.", [](const ExprArgs& a) { return a[0] < a[1]; })),
        dumped_as("LEQ", comparison("less_equal", "x <= y.",
                                    [](const ExprArgs& a) { return a[0] <= a[1]; })),
        dumped_as("GT",
                  comparison("greater", "x > y.", [](const ExprArgs& a) { return a[0] > a[1]; })),
        dumped_as("GEQ", comparison("greater_equal", "x >= y.",
                                    [](const ExprArgs& a) { return a[0] >= a[1]; })),
        test("isnan", "Is x not a number?", [](const ExprArgs& a) { return ne(a[0], a[0]); }),
        test("isinf", "Is x infinite?",
             [](const ExprArgs& a) { return eq(abs(real(a[0])), infinity(a[0])); }),
        test("isfinite", "Is x neither infinite nor NaN?",
             [](const ExprArgs& a) { return abs(real(a[0])) < infinity(a[0]); }),
        dumped_as("AND", bits("logical_and", "x and y.", Promotion::boolean,
                              [](const ExprArgs& a) { return a[0] & a[1]; })),
        dumped_as("OR", bits("logical_or", "x or y.", Promotion::boolean,
                             [](const ExprArgs& a) { return a[0] | a[1]; })),
        dumped_as("XOR", bits("logical_xor", "Either x or y.", Promotion::boolean,
                              [](const ExprArgs& a) { return a[0] ^ a[1]; })),
        {.name = "logical_not",
         .dumped_as = "NOT",
         .doc = "not x.",
         .inputs = {"x"},
         .promotion = Promotion::boolean,
         .expr = [](const ExprArgs& a) { return !a[0]; },
         .inverse = ops::logical_not},
        bits("bit_and", "x & y.", Promotion::integer,
             [](const ExprArgs& a) { return a[0] & a[1]; }),
        bits("bit_or", "x | y.", Promotion::integer, [](const ExprArgs& a) { return a[0] | a[1]; }),
        bits("bit_xor", "x ^ y.", Promotion::integer,
             [](const ExprArgs& a) { return a[0] ^ a[1]; }),
        {.name = "bit_not",
         .doc = "~x.",
         .inputs = {"x"},
         .promotion = Promotion::integer,
         .expr = [](const ExprArgs& a) { return !a[0]; }},
        dumped_as("SHL",
                  bits("left_shift", "x << y; the count is taken modulo 32.", Promotion::integer,
                       [](const ExprArgs& a) { return shl(a[0], a[1]); }, false)),
        dumped_as("SHR", bits("right_shift", "x >> y, arithmetic; the count is taken modulo 32.",
                              Promotion::integer, [](const ExprArgs& a) { return shr(a[0], a[1]); },
                              false)),
        {.name = "where",
         .dumped_as = "WHERE",
         .doc = "x where the mask is true, else y.",
         .inputs = {{"mask", OperandKind::mask}, "x", "y"},
         .expr = [](const ExprArgs& a) { return select(as_bool(a[0]), a[1], a[2]); }},
        // Conversion to the output's type ends every op; these two do nothing else.
        {.name = "cast",
         .dumped_as = "TypeCvt",
         .doc = "x as another dtype: floats to integers towards 0, anything to bool by != 0.",
         .inputs = {"x"},
         .attrs = {{.name = "dtype", .kind = AttrKind::text}},
         .result = Result::attribute,
         .expr = [](const ExprArgs& a) { return a[0]; },
         .access = Access::same},
        {.name = "identity",
         .dumped_as = "Identity",
         .doc = "x.",
         .inputs = {"x"},
         .expr = [](const ExprArgs& a) { return a[0]; },
         .access = Access::same},
        {.name = "stop_gradient",
         .doc = "x, through which no gradient flows.",
         .inputs = {"x"},
         .expr = [](const ExprArgs& a) { return a[0]; },
         .grad_expr = [](const ExprArgs&, int, Expr, Expr) { return Expr(); },
         .access = Access::same},
    };
}

}  // namespace megjit::runtime
