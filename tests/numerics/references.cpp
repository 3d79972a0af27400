#include "tests/numerics/references.h"

#include <numbers>

namespace megjit::numerics {
namespace {

double inverse_erf(double x) {
    if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? x * HUGE_VAL : NAN;
    if (std::fabs(x) < 1e-9) return x * 0.88622692545275801;
    const double a = std::fabs(x), w = -std::log((1 - a) * (1 + a)), t = 4.33 - w / 2;
    double y = std::sqrt(std::sqrt(t * t + w / 0.147) - t);
    for (int i = 0; i < 5; ++i) {  // Halley's method
        const double error = (y > 0.5 ? (1 - a) - std::erfc(y) : std::erf(y) - a) /
                             (1.1283791670955126 * std::exp(-y * y));
        y -= error / (1 + y * error);
    }
    return std::copysign(y, x);
}

double psi(double x) {
    if (x == 0) return -1 / x;
    if (std::isinf(x)) return x > 0 ? x : NAN;
    if (x < 0) {  // reflection
        const double off = x - std::nearbyint(x);
        return off == 0 ? NAN : psi(1 - x) - std::numbers::pi / std::tan(std::numbers::pi * off);
    }
    double sum = 0;
    for (; x < 14; x += 1) sum -= 1 / x;
    const double z = 1 / (x * x);
    return sum + std::log(x) - 0.5 / x -
           z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z / 132))));
}

#define MEGJIT_ROW(f) {#f, [](Expr x) { return f(x); }, [](double x) { return std::f(x); }}
constexpr Function kFunctions[] = {
    MEGJIT_ROW(exp),
    MEGJIT_ROW(expm1),
    MEGJIT_ROW(log),
    MEGJIT_ROW(log1p),
    MEGJIT_ROW(sin),
    MEGJIT_ROW(cos),
    MEGJIT_ROW(tan),
    MEGJIT_ROW(asin),
    MEGJIT_ROW(acos),
    MEGJIT_ROW(atan),
    MEGJIT_ROW(sinh),
    MEGJIT_ROW(cosh),
    MEGJIT_ROW(tanh),
    MEGJIT_ROW(asinh),
    MEGJIT_ROW(acosh),
    MEGJIT_ROW(atanh),
    MEGJIT_ROW(erf),
    MEGJIT_ROW(erfc),
    MEGJIT_ROW(sqrt),
    {"erfinv", [](Expr x) { return erfinv(x); }, inverse_erf},
    {"lgamma", [](Expr x) { return lgamma(x); }, [](double x) { return std::lgamma(x); }, true},
    {"digamma", [](Expr x) { return digamma(x); }, psi, true},
};
#undef MEGJIT_ROW

constexpr BinaryFunction kBinaryFunctions[] = {
    {"pow", [](Expr a, Expr b) { return pow(a, b); },
     [](double a, double b) { return std::pow(a, b); }},
    {"atan2", [](Expr a, Expr b) { return atan2(a, b); },
     [](double a, double b) { return std::atan2(a, b); }},
};

}  // namespace

std::span<const Function> functions() { return kFunctions; }
std::span<const BinaryFunction> binary_functions() { return kBinaryFunctions; }

}  // namespace megjit::numerics
