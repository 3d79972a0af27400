// fake_quant -- rounds x to the grid of a quantized dtype and back, (q - zero_point) * scale with
// q = clip(round(x / scale) + zero_point, qmin, qmax). Halves are rounded away from 0.
//
// Gradients pass straight through the rounding:
//   of x:     dy where q was not clipped, else 0 (Bengio et al. 2013, "Estimating or Propagating
//             Gradients Through Stochastic Neurons");
//   of scale: dy * (round(x / scale) - x / scale), or dy * (q - zero_point) where q was clipped
//             (Esser et al. 2020, "Learned Step Size Quantization", equation 3), times grad_scale.
//             With scale = 2^t it is the gradient of Jain et al. 2020, "Trained Quantization
//             Thresholds".
#include "runtime/ops/elementwise.h"

namespace megjit::runtime {
namespace {

struct Grid {
    Expr real;  // x / scale
    Expr rounded;  // `real`, rounded to an integer
    Expr shifted;  // `rounded` plus the zero point, before clipping
    Expr level;  // q - zero_point
    Expr unclipped;
};

Grid grid_of(const ExprArgs& a) {
    const double qmin = static_cast<double>(a.call.integer("qmin"));
    const double qmax = static_cast<double>(a.call.integer("qmax"));
    Grid grid;
    grid.real = a[0] / a[1];
    const Expr whole = trunc(grid.real);
    // trunc(real + 0.5) would be wrong: for the number just below 0.5 the sum rounds up to 1.
    const Expr away = select(grid.real < 0.0, whole - 1.0, whole + 1.0);
    grid.rounded = select(abs(grid.real - whole) < 0.5, whole, away);
    grid.shifted = grid.rounded + a[2];
    grid.level = min(max(grid.shifted, qmin), qmax) - a[2];
    grid.unclipped = (grid.shifted >= qmin) & (grid.shifted <= qmax);
    return grid;
}

Expr quantized(const ExprArgs& a) { return grid_of(a).level * a[1]; }

Expr quantized_grad(const ExprArgs& a, int k, Expr, Expr dy) {
    if (k > 1) return {};
    const Grid grid = grid_of(a);
    if (k == 0) return select(grid.unclipped, dy, 0.0);
    return dy * select(grid.unclipped, grid.rounded - grid.real, grid.level) * a[3];
}

}  // namespace

OpDef fake_quant() {
    return {
        .name = "fake_quant",
        .doc =
            "x rounded to scale * (q - zero_point) with q in [qmin, qmax]; grad_scale weights the gradient of scale.",
        .inputs = {"x", "scale", "zero_point", "grad_scale"},
        .attrs = {{.name = "qmin", .kind = AttrKind::integer, .fallback = Attr(int64_t{-128})},
                  {.name = "qmax", .kind = AttrKind::integer, .fallback = Attr(int64_t{127})}},
        .promotion = Promotion::floating,
        .expr = quantized,
        .grad_expr = quantized_grad,
    };
}

}  // namespace megjit::runtime
