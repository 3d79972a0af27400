// softplus -- smooth ReLU, y = log(1 + exp(x)), element-wise.
// Computed as max(x, 0) + log1p(exp(-|x|)), so that exp never overflows.
// Source: Dugas et al. 2000, "Incorporating Second-Order Functional Knowledge for Better Option
// Pricing".
//
// This file is the skeleton for a new element-wise op. Copy it, change what is below, and name the
// function in all_ops.cpp: eager kernel, generated kernels, gradient, interpreter and tests follow.
#include "runtime/ops/elementwise.h"

namespace megjit::runtime {

OpDef softplus() {
    return {
        .name = "softplus",
        .doc = "Smooth ReLU, log(1 + exp(x)).",
        .inputs = {"x"},  // names, as many as the op takes
        .promotion = Promotion::floating,  // integers are computed in float32
        // What happens to one element. Functions and operators are those of runtime/core/scalar.h.
        .expr = [](const ExprArgs& a) { return max(a[0], 0.0) + log1p(exp(-abs(a[0]))); },
        // d loss / d input k. Leave it out when the derivative of `expr` is good: here that would
        // be the sum of two parts that cancel, and undefined at 0.
        .grad_expr = [](const ExprArgs& a, int, Expr, Expr dy) { return dy * logistic(a[0]); },
        .samples = {-100, -1, -0.0, 0, 1, 100},  // inputs of the op's tests
    };
}

}  // namespace megjit::runtime
