"""Element-wise functions. Operands broadcast and are promoted; numbers take the tensors' dtype.

Transcendental functions of integers compute in float32; under `amp` they compute in the high
precision.
"""

from .._core import Tensor as _Tensor
from ..core import ops
from ..core.tensor.amp import state as _amp
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.elemwise_modes import elwise as _elwise  # noqa: F401 (name that older programs import)
from ..tensor import Tensor

__all__ = [
    "abs", "add", "acos", "asin", "atan", "atan2", "asinh", "acosh", "atanh", "ceil", "clip", "cos",
    "cosh", "div", "equal", "erf", "exp", "expm1", "floor", "floor_div", "greater", "greater_equal",
    "left_shift", "less", "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logaddexp", "maximum", "minimum", "mod", "mul", "neg", "not_equal", "pow",
    "right_shift", "round", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh",
]  # fmt: skip

Operand = Tensor | int | float | bool

# Bound once: these run at every call of a training step.
_abs = ops.abs
_acos = ops.acos
_acosh = ops.acosh
_add = ops.add
_asin = ops.asin
_asinh = ops.asinh
_atan = ops.atan
_atan2 = ops.atan2
_atanh = ops.atanh
_ceil = ops.ceil
_cos = ops.cos
_cosh = ops.cosh
_equal = ops.equal
_erf = ops.erf
_exp = ops.exp
_expm1 = ops.expm1
_floor = ops.floor
_floor_div = ops.floor_div
_greater = ops.greater
_greater_equal = ops.greater_equal
_left_shift = ops.left_shift
_less = ops.less
_less_equal = ops.less_equal
_log = ops.log
_log1p = ops.log1p
_logaddexp = ops.logaddexp
_logical_and = ops.logical_and
_logical_not = ops.logical_not
_logical_or = ops.logical_or
_logical_xor = ops.logical_xor
_maximum = ops.maximum
_minimum = ops.minimum
_mod = ops.mod
_mul = ops.mul
_neg = ops.neg
_not_equal = ops.not_equal
_pow = ops.pow
_right_shift = ops.right_shift
_round = ops.round
_sin = ops.sin
_sinh = ops.sinh
_sqrt = ops.sqrt
_square = ops.square
_sub = ops.sub
_tan = ops.tan
_tanh = ops.tanh
_true_div = ops.true_div


def add(x: Operand, y: Operand) -> Tensor:
    """``x + y``."""
    return _add(x, y)


def sub(x: Operand, y: Operand) -> Tensor:
    """``x - y``."""
    return _sub(x, y)


def mul(x: Operand, y: Operand) -> Tensor:
    """``x * y``."""
    return _mul(x, y)


def div(x: Operand, y: Operand) -> Tensor:
    """True division; integers divide in float32."""
    return _true_div(x, y)


def floor_div(x: Operand, y: Operand) -> Tensor:
    """``x / y`` rounded to minus infinity."""
    return _floor_div(x, y)


def neg(x: Tensor) -> Tensor:
    """``-x``."""
    return _neg(x)


def pow(x: Operand, y: Operand) -> Tensor:
    """``x ** y``; integers compute in float32."""
    if _amp.enabled:
        x, y = _to_high(x), _to_high(y)
    return _pow(x, y)


def mod(x: Operand, y: Operand) -> Tensor:
    """Remainder: for integers with the sign of ``y``, for floats with that of ``x`` (C fmod)."""
    return _mod(x, y)


def abs(x: Tensor) -> Tensor:
    """Absolute value."""
    return _abs(x)


def exp(x: Tensor) -> Tensor:
    """e to the power ``x``."""
    if _amp.enabled:
        x = _to_high(x)
    return _exp(x)


def expm1(x: Tensor) -> Tensor:
    """``exp(x) - 1``, exact for small ``x``."""
    if _amp.enabled:
        x = _to_high(x)
    return _expm1(x)


def log(x: Tensor) -> Tensor:
    """Natural logarithm."""
    if _amp.enabled:
        x = _to_high(x)
    return _log(x)


def log1p(x: Tensor) -> Tensor:
    """``log(1 + x)``, exact for small ``x``."""
    if _amp.enabled:
        x = _to_high(x)
    return _log1p(x)


def sqrt(x: Tensor) -> Tensor:
    """Square root; nan below 0."""
    return _sqrt(x)


def square(x: Tensor) -> Tensor:
    """``x * x``."""
    return _square(x)


def round(x: Tensor) -> Tensor:
    """Nearest integer, halves away from zero; integers unchanged."""
    return _round(x)


def ceil(x: Tensor) -> Tensor:
    """Smallest integer not below ``x``."""
    return _ceil(x)


def floor(x: Tensor) -> Tensor:
    """Largest integer not above ``x``."""
    return _floor(x)


def maximum(x: Operand, y: Operand) -> Tensor:
    """The larger of ``x`` and ``y``."""
    return _maximum(x, y)


def minimum(x: Operand, y: Operand) -> Tensor:
    """The smaller of ``x`` and ``y``."""
    return _minimum(x, y)


def cos(x: Tensor) -> Tensor:
    """Cosine (radians)."""
    if _amp.enabled:
        x = _to_high(x)
    return _cos(x)


def sin(x: Tensor) -> Tensor:
    """Sine (radians)."""
    if _amp.enabled:
        x = _to_high(x)
    return _sin(x)


def tan(x: Tensor) -> Tensor:
    """Tangent (radians)."""
    if _amp.enabled:
        x = _to_high(x)
    return _tan(x)


def acos(x: Tensor) -> Tensor:
    """Inverse cosine (radians)."""
    if _amp.enabled:
        x = _to_high(x)
    return _acos(x)


def asin(x: Tensor) -> Tensor:
    """Inverse sine (radians)."""
    if _amp.enabled:
        x = _to_high(x)
    return _asin(x)


def atan(x: Tensor) -> Tensor:
    """Inverse tangent (radians)."""
    if _amp.enabled:
        x = _to_high(x)
    return _atan(x)


def atan2(y: Operand, x: Operand) -> Tensor:
    """Angle of the point (x, y), in (-pi, pi]."""
    if _amp.enabled:
        y, x = _to_high(y), _to_high(x)
    return _atan2(y, x)


def cosh(x: Tensor) -> Tensor:
    """Hyperbolic cosine."""
    if _amp.enabled:
        x = _to_high(x)
    return _cosh(x)


def sinh(x: Tensor) -> Tensor:
    """Hyperbolic sine."""
    if _amp.enabled:
        x = _to_high(x)
    return _sinh(x)


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return _tanh(x)


def acosh(x: Tensor) -> Tensor:
    """Inverse hyperbolic cosine."""
    if _amp.enabled:
        x = _to_high(x)
    return _acosh(x)


def asinh(x: Tensor) -> Tensor:
    """Inverse hyperbolic sine."""
    if _amp.enabled:
        x = _to_high(x)
    return _asinh(x)


def atanh(x: Tensor) -> Tensor:
    """Inverse hyperbolic tangent."""
    if _amp.enabled:
        x = _to_high(x)
    return _atanh(x)


def left_shift(x: Operand, y: Operand) -> Tensor:
    """``x << y``; integers only (TypeError)."""
    return _left_shift(x, y)


def right_shift(x: Operand, y: Operand) -> Tensor:
    """``x >> y``; integers only (TypeError)."""
    return _right_shift(x, y)


def logical_and(x: Operand, y: Operand) -> Tensor:
    """``x & y``; bool only (TypeError)."""
    return _logical_and(x, y)


def logical_or(x: Operand, y: Operand) -> Tensor:
    """``x | y``; bool only (TypeError)."""
    return _logical_or(x, y)


def logical_xor(x: Operand, y: Operand) -> Tensor:
    """``x ^ y``; bool only (TypeError)."""
    return _logical_xor(x, y)


def logical_not(x: Tensor) -> Tensor:
    """``~x``; bool only (TypeError)."""
    return _logical_not(x)


def logaddexp(x: Operand, y: Operand) -> Tensor:
    """``log(exp(x) + exp(y))`` without overflow."""
    if _amp.enabled:
        x, y = _to_high(x), _to_high(y)
    return _logaddexp(x, y)


def equal(x: Operand, y: Operand) -> Tensor:
    """``x == y`` as bool."""
    return _equal(x, y)


def not_equal(x: Operand, y: Operand) -> Tensor:
    """``x != y`` as bool."""
    return _not_equal(x, y)


def less(x: Operand, y: Operand) -> Tensor:
    """``x < y`` as bool."""
    return _less(x, y)


def less_equal(x: Operand, y: Operand) -> Tensor:
    """``x <= y`` as bool."""
    return _less_equal(x, y)


def greater(x: Operand, y: Operand) -> Tensor:
    """``x > y`` as bool."""
    return _greater(x, y)


def greater_equal(x: Operand, y: Operand) -> Tensor:
    """``x >= y`` as bool."""
    return _greater_equal(x, y)


def erf(x: Tensor) -> Tensor:
    """Error function, ``2 / sqrt(pi) * integral of exp(-t**2)`` from 0 to ``x``."""
    if _amp.enabled:
        x = _to_high(x)
    return _erf(x)


def clip(x: Tensor, lower: Operand | None = None, upper: Operand | None = None) -> Tensor:
    """``x`` limited to [lower, upper]; None leaves a side open.

    AssertionError when both are None, or when they are numbers with lower > upper.
    >>> from megengine import Tensor
    >>> clip(Tensor([-2.0, 0.5, 3.0]), 0, 1).numpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    assert lower is not None or upper is not None, "clip: give lower, upper or both"
    if lower is None:
        return _minimum(x, upper)
    if upper is None:
        return _maximum(x, lower)
    if not isinstance(lower, _Tensor) and not isinstance(upper, _Tensor):
        assert lower <= upper, f"clip: lower {lower} is above upper {upper}"
    return _minimum(_maximum(x, lower), upper)
