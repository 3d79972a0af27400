"""Element-wise operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from ... import functional as F
from ...core import ops
from ...fx.torchlike import elementwise as torchlike
from ...tensor import Tensor
from ._table import COUNTERPARTS, Counterpart, counterpart, dtype_of, is_float
from .narrow import name_of, rounded

_UNARY = {
    "Abs": F.abs, "Acos": F.acos, "Acosh": F.acosh, "Asin": F.asin, "Asinh": F.asinh, "Atan": F.atan, "Atanh": F.atanh,
    "Ceil": F.ceil, "Cos": F.cos, "Cosh": F.cosh, "Erf": F.erf, "Exp": F.exp, "Floor": F.floor, "HardSwish": F.nn.hswish,
    "IsNaN": F.isnan, "Log": F.log, "Neg": F.neg, "Not": F.logical_not, "Relu": F.relu, "Sigmoid": F.sigmoid, "Sign": F.sign,
    "Sin": F.sin, "Sinh": F.sinh, "Softplus": F.nn.softplus, "Sqrt": F.sqrt, "Tan": F.tan, "Tanh": F.tanh,
}  # fmt: skip
_BINARY = {
    "Add": F.add, "And": F.logical_and, "Equal": F.equal, "Greater": F.greater, "GreaterOrEqual": F.greater_equal,
    "Less": F.less, "LessOrEqual": F.less_equal, "Mul": F.mul, "Or": F.logical_or, "Sub": F.sub, "Xor": F.logical_xor,
}  # fmt: skip
COUNTERPARTS.update({op: Counterpart(function) for op, function in _UNARY.items()})
COUNTERPARTS.update({op: Counterpart(function, takes_numbers=True) for op, function in _BINARY.items()})
_OTHERS: dict[str, Callable[..., Any]] = {
    "Where": F.where, "Softsign": torchlike.softsign, "Gelu": torchlike.gelu,
}  # fmt: skip
COUNTERPARTS.update({op: Counterpart(function) for op, function in _OTHERS.items()})


@counterpart("BitwiseAnd")
def bitwise_and(x: Tensor, y: Tensor) -> Tensor:
    return ops.bit_and(x, y)


@counterpart("BitwiseOr")
def bitwise_or(x: Tensor, y: Tensor) -> Tensor:
    return ops.bit_or(x, y)


@counterpart("BitwiseXor")
def bitwise_xor(x: Tensor, y: Tensor) -> Tensor:
    return ops.bit_xor(x, y)


@counterpart("BitwiseNot")
def bitwise_not(x: Tensor) -> Tensor:
    return ops.bit_not(x)


@counterpart("Identity")
def identity(x: Tensor) -> Tensor:
    return x


@counterpart("Div", takes_numbers=True)
def divide(x: Tensor | float, y: Tensor | float) -> Tensor:
    """Divides; quotients of integers are rounded towards 0."""
    quotient = F.floor_div(x, y)
    if is_float(quotient):
        return F.div(x, y)
    rest = F.sub(x, F.mul(quotient, y))
    is_rounded_up = F.logical_and(F.less(quotient, 0), F.not_equal(rest, 0))
    return F.add(quotient, is_rounded_up.astype(quotient.dtype))


@counterpart("Mod", takes_numbers=True)
def modulo(x: Any, y: Any, *, fmod: int = 0) -> Tensor:
    """Computes the remainder with the sign of y, or with fmod that of x."""
    rest = F.mod(x, y)
    # our remainder has the sign of x for real numbers, of y for integers
    if is_float(rest) == bool(fmod):
        return rest
    wrong = F.less(F.mul(F.sign(rest), F.sign(x if fmod else y)), 0)
    return F.where(wrong, F.sub(rest, y) if fmod else F.add(rest, y), rest)


@counterpart("Pow", takes_numbers=True)
def power(x: Tensor | float, y: Tensor | float) -> Tensor:
    """Computes a power in the dtype of the base."""
    if isinstance(x, Tensor) and not is_float(x) and not (is_float(y) if isinstance(y, Tensor) else y != int(y)):
        return _power_of_integers(x, y)
    result = F.pow(x, y)
    if not isinstance(x, Tensor) or x.dtype == result.dtype:
        return result
    return (result if is_float(x) else F.round(result)).astype(x.dtype)


def _power_of_integers(x: Tensor, y: Tensor | float) -> Tensor:
    """Multiplies squares, in the dtype of ``x``. Above the 63rd power only -1, 0 and 1 fit, and
    there it matters whether y is odd.
    """
    y = y if isinstance(y, Tensor) else Tensor(int(y), dtype="int64")
    rest = F.where(y > 63, y % 2 + 62, y)
    result, square = F.ones_like(x), x
    for bit in range(6):
        result = F.mul(result, F.where(F.equal(F.right_shift(rest, bit) % 2, 1), square, F.ones_like(square)))
        square = F.mul(square, square)
    is_unit = F.logical_or(F.equal(x, 1), F.equal(x, -1))
    return F.where(F.less(y, 0), F.where(is_unit, F.where(F.equal(y % 2, 1), x, x * x), F.zeros_like(x)), result)


@counterpart("Max")
def largest(*xs: Tensor) -> Tensor:
    return reduce(F.maximum, xs)


@counterpart("Min")
def smallest(*xs: Tensor) -> Tensor:
    return reduce(F.minimum, xs)


@counterpart("Sum")
def total(*xs: Tensor) -> Tensor:
    return reduce(F.add, xs)


@counterpart("Mean")
def average(*xs: Tensor) -> Tensor:
    return reduce(F.add, xs) / len(xs)


@counterpart("Round")
def round_half_even(x: Tensor) -> Tensor:
    away = F.round(x)
    is_tie = F.equal(F.abs(x - ops.trunc(x)), 0.5)
    return F.where(is_tie, F.round(x * 0.5) * 2, away)


@counterpart("Reciprocal")
def reciprocal(x: Tensor) -> Tensor:
    return 1 / x


@counterpart("IsInf")
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    result = F.isinf(x)
    if not detect_negative:
        result = F.logical_and(result, x > 0)
    return result if detect_positive else F.logical_and(result, x < 0)


@counterpart("Clip", plain=(1, 2))
def clip(x: Tensor, low: Tensor | float | None = None, high: Tensor | float | None = None) -> Tensor:
    x = x if low is None else F.maximum(x, low)
    return x if high is None else F.minimum(x, high)


@counterpart("Cast")
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """Casts; numbers that become narrow ones are rounded to these, for which alone saturate and
    round_mode are used.
    """
    narrow = name_of(to)
    return rounded(x, narrow, bool(saturate), round_mode) if narrow else x.astype(dtype_of(to))


@counterpart("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.astype(like.dtype)


@counterpart("BitShift")
def bit_shift(x: Tensor, count: Tensor, *, direction: str) -> Tensor:
    """Counts from the width on, and negative ones, shift everything out."""
    shifted = (F.left_shift if direction == "LEFT" else F.right_shift)(x, count)
    width = 8 * x.dtype.itemsize
    last = F.zeros_like(x) if direction == "LEFT" else F.where(x < 0, F.full_like(x, -1), F.zeros_like(x))
    is_out = F.logical_or(count >= width, count < 0)
    return F.where(F.broadcast_to(is_out, shifted._tuple_shape), last.astype(x.dtype), shifted)


# -- activations ----------------------------------------------------------------------------------


@counterpart("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@counterpart("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@counterpart("Selu")
def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return F.elu(x, alpha) * gamma


@counterpart("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.nn.leaky_relu(x, alpha)


@counterpart("Mish")
def mish(x: Tensor) -> Tensor:
    return F.mish(x)


@counterpart("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.where(x > alpha, x, F.zeros_like(x))


@counterpart("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """Computes PRelu; a slope that does not broadcast has one element for each channel, as models
    before opset 7 have it.
    """
    if slope.ndim == 1 and x.ndim > 2 and slope.shape[0] not in (1, x.shape[-1]):
        slope = F.reshape(slope, (-1,) + (1,) * (x.ndim - 2))
    return F.where(x > 0, x, F.mul(x, slope))


@counterpart("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return F.clip(x * alpha + beta, 0, 1)


@counterpart("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * F.sigmoid(x * alpha)


@counterpart("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    outside = F.where(x < -lambd, x + bias, F.where(x > lambd, x - bias, F.zeros_like(x)))
    return outside.astype(x.dtype)


@counterpart("Dropout", plain=(1, 2), counts_results=True)
def dropout(x: Tensor, ratio: Tensor | float = 0.5, training_mode: Tensor | bool = False, *, seed: int = 0, results: int = 1) -> Any:
    if training_mode:
        mask = F.nn.dropout(F.ones_like(x), float(0.5 if ratio is None else ratio))
        return (x * mask, mask > 0) if results > 1 else x * mask
    return (x, F.ones_like(x).astype("bool")) if results > 1 else x
