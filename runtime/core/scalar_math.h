// runtime/core/scalar_math.h -- the transcendental scalar instructions, written once in terms of
// the basic ones. V is runtime::Expr (a code generator expands a program) or the lanes of the CPU's
// eager kernels; both do the same operations in the same order, so eager and generated kernels
// agree bit for bit as long as nobody contracts or reorders.
//
// The error is at most 2 ulp of float32 over the whole range (erfc_of_halves: 2**-14 of the
// result, gelu_slope_of_halves: 2**-14 of the parts of its sum, 2**-10 beyond 6;
// lgamma and digamma: for positive arguments; near their zeros on the negative axis the error is
// absolute), denormals kept, special values as C99. Polynomials are our own minimax fits:
// iteratively reweighted least squares on Chebyshev nodes with 40 digits, coefficients rounded to
// float32 one after the other.
//
// What V must offer, found by argument-dependent lookup: + - * /, unary -, < <= > >= eq ne & | !,
// fma abs sqrt floor round_even select, shl shr on integers, and the few words declared for Expr at
// the top of scalar_math/base.h.
#pragma once

#include "runtime/core/scalar_math/base.h"
#include "runtime/core/scalar_math/exponential.h"
#include "runtime/core/scalar_math/special.h"
#include "runtime/core/scalar_math/trigonometric.h"

namespace megjit::runtime {

// Is `op` one of those that scalar_math.h expands?
constexpr bool is_transcendental(ScalarOp op) {
    return op >= ScalarOp::exp && op <= ScalarOp::digamma;
}

// Expands one instruction: a is its first operand, b its second (binary ones only).
template <class V>
V expand(ScalarOp op, V a, V b) {
    switch (op) {
#define MEGJIT_UNARY(name) \
    case ScalarOp::name: return math::name<V>(a);
        MEGJIT_UNARY(exp)
        MEGJIT_UNARY(expm1)
        MEGJIT_UNARY(log)
        MEGJIT_UNARY(log1p)
        MEGJIT_UNARY(sin)
        MEGJIT_UNARY(cos)
        MEGJIT_UNARY(tan)
        MEGJIT_UNARY(asin)
        MEGJIT_UNARY(acos)
        MEGJIT_UNARY(atan)
        MEGJIT_UNARY(sinh)
        MEGJIT_UNARY(cosh)
        MEGJIT_UNARY(tanh)
        MEGJIT_UNARY(asinh)
        MEGJIT_UNARY(acosh)
        MEGJIT_UNARY(atanh)
        MEGJIT_UNARY(erf)
        MEGJIT_UNARY(erfc)
        MEGJIT_UNARY(erfc_of_halves)
        MEGJIT_UNARY(gelu_slope_of_halves)
        MEGJIT_UNARY(erfinv)
        MEGJIT_UNARY(lgamma)
        MEGJIT_UNARY(digamma)
#undef MEGJIT_UNARY
        case ScalarOp::atan2: return math::atan2<V>(a, b);
        case ScalarOp::pow: return math::pow<V>(a, b);
        default: return a;
    }
}

}  // namespace megjit::runtime
