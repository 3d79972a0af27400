// runtime/ops/elementwise.h -- what the families of element-wise ops share.
#pragma once

#include "runtime/core/op.h"
#include "runtime/ops/known.h"

namespace megjit::runtime {

using ExprRule = Expr (*)(const ExprArgs&);
using GradRule = Expr (*)(const ExprArgs&, int k, Expr y, Expr dy);

// An op of one input x with floating promotion: most functions of mathematics are such.
inline OpDef real_function(std::string name, std::string doc, ExprRule expr,
                           std::vector<double> samples = OpDef{}.samples, GradRule grad = nullptr) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x"},
            .promotion = Promotion::floating,
            .expr = expr,
            .grad_expr = grad,
            .samples = std::move(samples)};
}

inline OpDef dumped_as(std::string_view type, OpDef op) {
    op.dumped_as = type;
    return op;
}

// Booleans count as 0 and 1 in arithmetic; the result is converted back to bool, where every other
// number than 0 is true.
inline Expr number(Expr x) { return x.type() == ScalarType::b1 ? to_type(x, ScalarType::i32) : x; }

// The type in which functions of mathematics compute: float64 stays.
inline Expr real(Expr x) { return is_real(x.type()) ? x : to_type(x, ScalarType::f32); }

inline Expr as_bool(Expr x) { return to_type(x, ScalarType::b1); }

// 1 / (1 + exp(-x)) without overflow, also where the result is denormal.
inline Expr logistic(Expr x) {
    const Expr e = exp(-abs(x));
    return select(x < 0.0, e, e.constant(1)) / (e + 1.0);
}

}  // namespace megjit::runtime
