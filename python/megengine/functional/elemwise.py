"""Element-wise functions. Operands broadcast and are promoted; numbers take the tensors' dtype.

Transcendental functions of integers compute in float32; under `amp` they compute in the high
precision.
"""

from .._core import Tensor as _Tensor
from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.elemwise_modes import elwise as _elwise  # noqa: F401 (name that older programs import)
from ..tensor import Tensor
from ._of_ops import Operand
from ._of_ops import binary as _binary
from ._of_ops import unary as _unary

__all__ = [
    "abs", "add", "acos", "asin", "atan", "atan2", "asinh", "acosh", "atanh", "ceil", "clip", "cos",
    "cosh", "div", "equal", "erf", "exp", "expm1", "floor", "floor_div", "greater", "greater_equal",
    "left_shift", "less", "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logaddexp", "maximum", "minimum", "mod", "mul", "neg", "not_equal", "pow",
    "right_shift", "round", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh",
]  # fmt: skip

add = _binary(ops.add)
sub = _binary(ops.sub)
mul = _binary(ops.mul)
div = _binary(ops.true_div, "True division; integers divide in float32.", name="div")
floor_div = _binary(ops.floor_div)
mod = _binary(ops.mod, "Remainder: for integers with the sign of ``y``, for floats with that of ``x`` (C fmod).")
pow = _binary(ops.pow, "``x ** y``; integers compute in float32.", high=True)
logaddexp = _binary(ops.logaddexp, "``log(exp(x) + exp(y))`` without overflow.", high=True)
maximum = _binary(ops.maximum)
minimum = _binary(ops.minimum)
left_shift = _binary(ops.left_shift, "``x << y``; integers only (TypeError), the count is taken modulo 32.")
right_shift = _binary(ops.right_shift, "``x >> y``; integers only (TypeError), the count is taken modulo 32.")
logical_and = _binary(ops.logical_and, "``x & y``; bool only (TypeError).")
logical_or = _binary(ops.logical_or, "``x | y``; bool only (TypeError).")
logical_xor = _binary(ops.logical_xor, "``x ^ y``; bool only (TypeError).")
equal = _binary(ops.equal)
not_equal = _binary(ops.not_equal)
less = _binary(ops.less)
less_equal = _binary(ops.less_equal)
greater = _binary(ops.greater)
greater_equal = _binary(ops.greater_equal)

neg = _unary(ops.neg)
abs = _unary(ops.abs)
square = _unary(ops.square)
sqrt = _unary(ops.sqrt, "Square root; nan below 0.")
round = _unary(ops.round, "Nearest integer, halves away from zero; integers unchanged.")
ceil = _unary(ops.ceil, "Smallest integer not below ``x``.")
floor = _unary(ops.floor, "Largest integer not above ``x``.")
logical_not = _unary(ops.logical_not, "``~x``; bool only (TypeError).")
tanh = _unary(ops.tanh)
exp = _unary(ops.exp, high=True)
expm1 = _unary(ops.expm1, high=True)
log = _unary(ops.log, high=True)
log1p = _unary(ops.log1p, high=True)
cos = _unary(ops.cos, "Cosine (radians).", high=True)
sin = _unary(ops.sin, "Sine (radians).", high=True)
tan = _unary(ops.tan, "Tangent (radians).", high=True)
acos = _unary(ops.acos, "Inverse cosine (radians).", high=True)
asin = _unary(ops.asin, "Inverse sine (radians).", high=True)
atan = _unary(ops.atan, "Inverse tangent (radians).", high=True)
cosh = _unary(ops.cosh, high=True)
sinh = _unary(ops.sinh, high=True)
acosh = _unary(ops.acosh, high=True)
asinh = _unary(ops.asinh, high=True)
atanh = _unary(ops.atanh, high=True)
erf = _unary(ops.erf, "Error function, ``2 / sqrt(pi) * integral of exp(-t**2)`` from 0 to ``x``.", high=True)


def atan2(y: Operand, x: Operand) -> Tensor:
    """Angle of the point (x, y), in (-pi, pi]."""
    return ops.atan2(_to_high(y), _to_high(x))


def clip(x: Tensor, lower: Operand | None = None, upper: Operand | None = None) -> Tensor:
    """``x`` limited to [lower, upper]; None leaves a side open.

    AssertionError when both are None, or when they are numbers with lower > upper.
    >>> from megengine import Tensor
    >>> clip(Tensor([-2.0, 0.5, 3.0]), 0, 1).numpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    assert lower is not None or upper is not None, "clip: give lower, upper or both"
    if lower is None:
        return ops.minimum(x, upper)
    if upper is None:
        return ops.maximum(x, lower)
    if not isinstance(lower, _Tensor) and not isinstance(upper, _Tensor):
        assert lower <= upper, f"clip: lower {lower} is above upper {upper}"
    return ops.minimum(ops.maximum(x, lower), upper)
