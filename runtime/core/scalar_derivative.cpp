// derivative(): reverse accumulation through a scalar program, with one rule for each instruction.
// Rules use the instruction's own result y where that is cheaper or more stable than its operands.

#include "runtime/core/scalar.h"
#include "runtime/host/error.h"

namespace megjit::runtime {
namespace {

constexpr double kTwoOverSqrtPi = 1.1283791670955126;

// Contribution of dy to operand k of `y = inst(a, b, c)`; invalid when there is none.
Expr rule(const ScalarInst& inst, int k, Expr y, Expr dy) {
    const auto arg = [&](int i) { return Expr(y.program(), inst.args[i]); };
    const Expr a = arg(0);
    const Expr b = arity_of(inst.op) > 1 ? arg(1) : Expr();
    const Expr c = arity_of(inst.op) > 2 ? arg(2) : Expr();
    switch (inst.op) {
        case ScalarOp::add: return dy;
        case ScalarOp::sub: return k == 0 ? dy : -dy;
        case ScalarOp::mul: return dy * (k == 0 ? b : a);
        case ScalarOp::div: return k == 0 ? dy / b : -(dy * y / b);
        case ScalarOp::mod: return k == 0 ? dy : -(dy * trunc(a / b));
        case ScalarOp::neg: return -dy;
        case ScalarOp::abs:
            return select(a > 0.0, dy, -dy);  // at 0: minus the gradient, as in MegEngine
        // Ties go to the first operand: a clipped value that lies on a bound still learns. The two
        // gradients always sum to dy.
        case ScalarOp::max: return k == 0 ? select(a < b, 0.0, dy) : select(a < b, dy, 0.0);
        case ScalarOp::min: return k == 0 ? select(b < a, 0.0, dy) : select(b < a, dy, 0.0);
        case ScalarOp::fma: return k == 2 ? dy : dy * (k == 0 ? b : a);
        case ScalarOp::sqrt: return dy * 0.5 / y;
        case ScalarOp::exp: return dy * y;
        case ScalarOp::expm1: return dy * (y + 1.0);
        case ScalarOp::log: return dy / a;
        case ScalarOp::log1p: return dy / (a + 1.0);
        case ScalarOp::sin: return dy * cos(a);
        case ScalarOp::cos: return -(dy * sin(a));
        case ScalarOp::tan: return dy * (y * y + 1.0);
        case ScalarOp::asin: return dy / sqrt((1.0 - a) * (a + 1.0));
        case ScalarOp::acos: return -(dy / sqrt((1.0 - a) * (a + 1.0)));
        case ScalarOp::atan: return dy / (a * a + 1.0);
        case ScalarOp::atan2: {
            // At the origin the numerators are 0.
            const Expr sum = a * a + b * b, square = select(eq(sum, 0.0), 1.0, sum);
            return k == 0 ? dy * b / square : -(dy * a / square);
        }
        case ScalarOp::sinh: return dy * cosh(a);
        case ScalarOp::cosh: return dy * sinh(a);
        case ScalarOp::tanh: return dy * (1.0 - y * y);
        case ScalarOp::asinh: return dy / sqrt(a * a + 1.0);
        case ScalarOp::acosh: return dy / sqrt((a - 1.0) * (a + 1.0));
        case ScalarOp::atanh: return dy / ((1.0 - a) * (a + 1.0));
        case ScalarOp::erf: return dy * (exp(-(a * a)) * kTwoOverSqrtPi);
        case ScalarOp::erfc:
        case ScalarOp::erfc_of_halves: return -(dy * (exp(-(a * a)) * kTwoOverSqrtPi));
        case ScalarOp::gelu_slope_of_halves:
            return dy *
                   ((2.0 - a * a) * (exp(a * a * -0.5) * (kTwoOverSqrtPi * 0.35355339059327376)));
        case ScalarOp::erfinv: return dy * (exp(y * y) * (1 / kTwoOverSqrtPi));
        // b == 0 has the slope 0 everywhere, even for 0**0. For the exponent, a base of 0 gives 0
        // (the limit for b > 0) and a negative base has no real derivative: NaN, through log.
        case ScalarOp::pow:
            return k == 0 ? dy * select(eq(b, 0.0), 0.0, b * pow(a, b - 1.0))
                          : dy * select(eq(a, 0.0), 0.0, y * log(a));
        case ScalarOp::lgamma: return dy * digamma(a);
        case ScalarOp::digamma:
            user_error({.what = "digamma: its gradient (trigamma) is not implemented",
                        .fix = "detach its input"});
        case ScalarOp::select:
            return k == 0 ? Expr() : k == 1 ? select(a, dy, 0.0) : select(a, 0.0, dy);
        case ScalarOp::narrow: return dy;
        case ScalarOp::cast: return to_type(dy, a.type());
        case ScalarOp::input:
        case ScalarOp::constant:
        case ScalarOp::floor:
        case ScalarOp::ceil:
        case ScalarOp::trunc:
        case ScalarOp::round_even:
        case ScalarOp::bit_and:
        case ScalarOp::bit_or:
        case ScalarOp::bit_xor:
        case ScalarOp::bit_not:
        case ScalarOp::shl:
        case ScalarOp::shr:
        case ScalarOp::shr_logical:
        case ScalarOp::lt:
        case ScalarOp::le:
        case ScalarOp::eq:
        case ScalarOp::ne:
        case ScalarOp::bits_f32_to_i32:
        case ScalarOp::bits_i32_to_f32: break;
    }
    (void)c;
    return {};
}

}  // namespace

Expr derivative(Expr result, int input_index, Expr seed) {
    ScalarProgram& program = *result.program();
    const int end = result.id() + 1;
    // Only values that depend on the input take part.
    std::vector<bool> depends(end, false);
    for (int id = 0; id < end; ++id) {
        const ScalarInst& inst = program[id];
        if (inst.op == ScalarOp::input) depends[id] = static_cast<int>(inst.bits) == input_index;
        for (int k = 0; k < arity_of(inst.op); ++k)
            depends[id] = depends[id] || depends[inst.args[k]];
        if (!is_real(inst.type)) depends[id] = false;
    }
    if (!depends[end - 1]) return {};
    std::vector<Expr> slopes(end);
    slopes[end - 1] = seed;
    Expr total;
    for (int id = end - 1; id >= 0; --id) {
        if (!depends[id] || !slopes[id].valid()) continue;
        const ScalarInst inst = program[id];  // a copy: rules grow the program
        if (inst.op == ScalarOp::input) total = slopes[id];
        for (int k = 0; k < arity_of(inst.op); ++k) {
            const int operand = inst.args[k];
            if (!depends[operand]) continue;
            const Expr part = rule(inst, k, Expr(&program, id), slopes[id]);
            if (part.valid())
                slopes[operand] = slopes[operand].valid() ? slopes[operand] + part : part;
        }
    }
    return total;
}

}  // namespace megjit::runtime
