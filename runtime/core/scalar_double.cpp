#include "runtime/core/scalar_double.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/host/error.h"

namespace megjit::runtime {
namespace {

// psi(x): recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18), and
// reflection (6.3.7) below 0. NaN at -1, -2, ... but -inf and inf at +0 and -0, as SciPy has it.
double digamma_f64(double x) {
    if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
    if (x < 0) {
        if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
        const double part = x - std::floor(x);
        return digamma_f64(1 - x) - M_PI / std::tan(M_PI * part);
    }
    double sum = 0;
    for (; x < 10; x += 1) sum -= 1 / x;
    const double r = 1 / (x * x);
    return sum + std::log(x) - 0.5 / x -
           r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132)))));
}

// The root y of erf(y) = x by Newton's method on erfc, which keeps its digits near |x| = 1.
double erfinv_f64(double x) {
    if (x != x || std::fabs(x) > 1) return std::numeric_limits<double>::quiet_NaN();
    if (std::fabs(x) == 1) return std::copysign(std::numeric_limits<double>::infinity(), x);
    if (std::fabs(x) < 1e-9) return x * (std::sqrt(M_PI) / 2);
    const double tail = 1 - std::fabs(x);
    double y = std::fabs(x) < 0.7 ? std::fabs(x) * 0.9 : std::sqrt(-std::log(tail));
    for (int i = 0; i < 60; ++i) {
        const double error = std::fabs(x) < 0.5 ? std::fabs(x) - std::erf(y) : std::erfc(y) - tail;
        const double step = error * (std::sqrt(M_PI) / 2) * std::exp(y * y);
        y += std::clamp(step, -0.5, 0.5);
        if (std::fabs(step) < 1e-16 * y) break;
    }
    return std::copysign(y, x);
}

double lgamma_f64(double x) {
    int sign = 0;
    return ::lgamma_r(x, &sign);
}

}  // namespace

double transcendental_f64(ScalarOp op, double a, double b) {
    switch (op) {
        case ScalarOp::exp: return std::exp(a);
        case ScalarOp::expm1: return std::expm1(a);
        case ScalarOp::log: return std::log(a);
        case ScalarOp::log1p: return std::log1p(a);
        case ScalarOp::sin: return std::sin(a);
        case ScalarOp::cos: return std::cos(a);
        case ScalarOp::tan: return std::tan(a);
        case ScalarOp::asin: return std::asin(a);
        case ScalarOp::acos: return std::acos(a);
        case ScalarOp::atan: return std::atan(a);
        case ScalarOp::atan2: return std::atan2(a, b);
        case ScalarOp::sinh: return std::sinh(a);
        case ScalarOp::cosh: return std::cosh(a);
        case ScalarOp::tanh: return std::tanh(a);
        case ScalarOp::asinh: return std::asinh(a);
        case ScalarOp::acosh: return std::acosh(a);
        case ScalarOp::atanh: return std::atanh(a);
        case ScalarOp::erf: return std::erf(a);
        case ScalarOp::erfc:
        case ScalarOp::erfc_of_halves: return std::erfc(a);
        case ScalarOp::gelu_slope_of_halves:
            return std::erfc(a * -std::numbers::sqrt2 / 2) / 2 +
                   a * std::exp(-a * a / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
        case ScalarOp::erfinv: return erfinv_f64(a);
        case ScalarOp::pow: return std::pow(a, b);
        case ScalarOp::lgamma: return lgamma_f64(a);
        case ScalarOp::digamma: return digamma_f64(a);
        default: throw InternalError(cat(name_of(op), " is no function of reals"));
    }
}

}  // namespace megjit::runtime
