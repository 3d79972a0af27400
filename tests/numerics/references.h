// tests/numerics/references.h -- every transcendental function in double precision, and the error
// of a float against it.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "runtime/core/scalar.h"

namespace megjit::numerics {

using runtime::Expr;

// In units of the last place of the float next to `want`; a wrong special value is kWrong.
constexpr double kWrong = 1e9;
inline double ulp_error(float got, double want) {
    const float nearest = static_cast<float>(want);
    if (std::isnan(want) || std::isnan(got))
        return std::isnan(want) && std::isnan(got) ? 0 : kWrong;
    if (got == nearest) return got == 0 && std::signbit(got) != std::signbit(nearest) ? kWrong : 0;
    if (std::isinf(want)) return kWrong;
    int exponent = 0;
    std::frexp(want, &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
    return std::fabs((std::isinf(got) ? std::copysign(0x1p128, got) : got) - want) / unit;
}

struct Function {
    const char* name;
    Expr (*ours)(Expr);
    double (*reference)(double);
    bool positive_only =
        false;  // the bound holds there; elsewhere zeros lie close together, and poles
};
std::span<const Function> functions();

struct BinaryFunction {
    const char* name;
    Expr (*ours)(Expr, Expr);
    double (*reference)(double, double);
};
std::span<const BinaryFunction> binary_functions();

}  // namespace megjit::numerics
