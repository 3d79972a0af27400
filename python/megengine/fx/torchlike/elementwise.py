"""Element-wise functions, with the arguments of torch's. Functions that layers use have names; the
others are in the table.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from ... import functional as F
from ...core import ops
from ...tensor import Tensor
from .._intercept import wrap


@wrap
def erfc(input: Tensor) -> Tensor:
    """``1 - erf(input)`` without the cancellation of that formula."""
    return ops.erfc(input)


# Functions that have another gradient at 0, or where operands are equal, than those of `functional`.


@wrap
def absolute(input: Tensor | float) -> Tensor | float:
    """Computes |input|, whose gradient at 0 is 0."""
    return ops.even_abs(input) if isinstance(input, Tensor) else abs(input)


@wrap
def maximum(input: Tensor, other: Tensor) -> Tensor:
    """Takes the larger elements; equal operands share the gradient."""
    return ops.even_maximum(input, other)


@wrap
def minimum(input: Tensor, other: Tensor) -> Tensor:
    """Takes the smaller elements; equal operands share the gradient."""
    return ops.even_minimum(input, other)


def clamp(input, min=None, max=None):
    """Clips to the bounds. At a bound the gradient goes to the bound: of equal operands the first
    has it.
    """
    above = input if min is None else F.maximum(min, input)
    return above if max is None else F.minimum(max, above)


@wrap
def floor_divide(input: Tensor | float, other: Tensor | float) -> Tensor | float:
    """Divides and rounds down. Floats give what Python's ``//`` gives, NaN for an infinite ``input`` and -1.0 for -1 // inf; no gradient."""
    if _are_integers(input, other) or not (isinstance(input, Tensor) or isinstance(other, Tensor)):
        return input // other
    a, b = (each.detach() if isinstance(each, Tensor) else each for each in (input, other))
    rest = ops.mod(a, b)
    quotient = (a - rest) / b
    quotient = F.where((rest != 0) & F.not_equal(rest < 0, b < 0), quotient - 1, quotient)
    whole = F.floor(quotient)
    whole = F.where(quotient - whole > 0.5, whole + 1, whole)
    if isinstance(b, Tensor):
        return F.where(b == 0, a / b, whole)
    return a / b if b == 0 else whole


@wrap
def trunc_divide(input: Any, other: Any) -> Any:
    """Rounds the quotient towards 0; that of integers is an integer."""
    if not _are_integers(input, other):
        return trunc(input / other)
    below = input // other  # floats do not hold quotients of integers
    return below + ((below * other != input) & ((input < 0) != (other < 0))).astype(below.dtype)


def _are_integers(*operands: Any) -> bool:
    return all(each.dtype.kind in "iub" if isinstance(each, Tensor) else isinstance(each, int) for each in operands)


@wrap
def _masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """``input`` with ``value`` where the mask is true, in the dtype of ``input``."""
    value = F.full((), value, dtype=input.dtype.name) if not isinstance(value, Tensor) else value
    return F.where(mask.astype("bool"), value.astype(input.dtype), input)


def _div(input, other, *, rounding_mode=None):
    if rounding_mode is None:
        return input / other
    if rounding_mode == "floor":
        return floor_divide(input, other)
    return trunc_divide(input, other)


@wrap
def remainder(input: Tensor | float, other: Tensor | float) -> Tensor | float:
    """Computes the remainder with the sign of ``other``, as Python does."""
    rest = input % other
    if not isinstance(rest, Tensor):
        return rest
    return F.where((rest != 0) & F.not_equal(rest < 0, other < 0), rest + other, rest)


@wrap
def fmod(input: Tensor, other: Tensor | float) -> Tensor:
    """Computes the remainder with the sign of ``input``, as C does."""
    if not _are_integers(input, other):
        return input % other
    return F.sign(input) * (F.abs(input) % abs(other))


@wrap
def _round(input: Tensor, decimals: int = 0) -> Tensor:
    """Rounds, with halves to even numbers."""
    if decimals:
        raise ValueError("round to decimals")
    if input.dtype.kind in "iub":
        return input
    down = F.floor(input)
    part, is_even = input - down, F.floor(down / 2) * 2 == down
    return F.where((part < 0.5) | ((part == 0.5) & is_even), down, down + 1)


@wrap
def trunc(input: Tensor) -> Tensor:
    return ops.trunc(input)


# -- activations -------------------------------------------------------------------------------------


def relu(input, inplace=False):
    return F.relu(input)


def relu6(input, inplace=False):
    return F.relu6(input)


def silu(input, inplace=False):
    return F.silu(input)


def mish(input, inplace=False):
    return F.mish(input)


def gelu(input, approximate="none"):
    if approximate == "none":
        return F.gelu(input)
    # Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2.
    inner = math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)
    return 0.5 * input * (1 + F.tanh(inner))


def elu(input, alpha=1.0, inplace=False):
    return F.elu(input, alpha)


def celu(input, alpha=1.0, inplace=False):
    return F.celu(input, alpha)


def selu(input, inplace=False):
    return F.selu(input)


@wrap
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Computes leaky relu; its slope at 0 is that of negative numbers."""
    return ops.left_leaky_relu(input, negative_slope=float(negative_slope))


@wrap
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Computes prelu. weight: one slope, or one for each channel, shape (C,)."""
    if weight.size > 1 and input.ndim > 1:
        weight = weight.reshape(-1, *(1,) * (input.ndim - 2))
    return ops.left_prelu(input, weight)


def softplus(input, beta=1, threshold=20):
    if beta == 1:
        return F.softplus(input)
    return F.softplus(input * beta) / beta


def softsign(input):
    return input / (1 + F.abs(input))


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    return F.relu6(input) if (min_val, max_val) == (0, 6) else clamp(input, min_val, max_val)


def hardsigmoid(input, inplace=False):
    return F.hsigmoid(input)


def hardswish(input, inplace=False):
    return F.hswish(input)


def hardshrink(input, lambd=0.5):
    return F.where(F.abs(input) > lambd, input, input * 0)


def softshrink(input, lambd=0.5):
    return input - F.clip(input, -lambd, lambd)


def tanhshrink(input):
    return input - F.tanh(input)


def threshold(input, threshold, value, inplace=False):
    return _masked_fill(input, input <= threshold, value)


def cast(input, dtype):
    """``input`` in a dtype, if one is given."""
    return input if dtype is None else input.astype(dtype)


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return F.softmax(cast(input, dtype), axis=dim)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return F.logsoftmax(cast(input, dtype), axis=dim)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return F.softmax(-cast(input, dtype), axis=dim)


def _logical(combine):
    """Makes an op on truth values, where everything but 0 is true."""
    return lambda input, other: combine(input != 0, other != 0)


FUNCTIONS = {
    **{name: getattr(F, name) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1",
        "floor", "isinf", "isnan", "log", "log1p", "logaddexp", "neg", "sigmoid", "sign",
        "sin", "sinh", "sqrt", "square", "tan", "tanh", "logsigmoid",
    )},
    "abs": absolute, "maximum": maximum, "minimum": minimum,
    # arithmetic
    "add": lambda input, other, *, alpha=1: input + (other if alpha == 1 else other * alpha),
    "sub": lambda input, other, *, alpha=1: input - (other if alpha == 1 else other * alpha),
    "rsub": lambda input, other, alpha=1: other - (input if alpha == 1 else input * alpha),
    "mul": lambda input, other: input * other,
    "div": _div,
    "floor_divide": floor_divide,
    "remainder": remainder,
    "round": lambda input, *, decimals=0: _round(input, decimals),
    "fmod": fmod,
    "pow": lambda input, exponent: input**exponent,
    "addcmul": lambda input, tensor1, tensor2, *, value=1: input + tensor1 * tensor2 * value,
    "addcdiv": lambda input, tensor1, tensor2, *, value=1: input + tensor1 / tensor2 * value,
    "lerp": lambda input, end, weight: F.lerp(input, end, weight),
    "reciprocal": lambda input: 1 / input,
    "rsqrt": lambda input: 1 / F.sqrt(input),
    "trunc": trunc,
    "clamp": clamp,
    "clamp_min": lambda input, min: clamp(input, min),
    "clamp_max": lambda input, max: clamp(input, None, max),
    "exp2": lambda input: 2.0**input,
    "log2": lambda input: F.log(input) / math.log(2),
    "log10": lambda input: F.log(input) / math.log(10),
    "erfc": erfc,
    "isfinite": lambda input: input - input == 0,  # infinity and NaN have no sign to keep
    # logic and choices
    "eq": F.equal, "ne": F.not_equal, "lt": F.less, "le": F.less_equal, "gt": F.greater, "ge": F.greater_equal,
    **dict.fromkeys(("bitwise_and", "__and__"), lambda input, other: input & other),
    **dict.fromkeys(("bitwise_or", "__or__"), lambda input, other: input | other),
    **dict.fromkeys(("bitwise_xor", "__xor__"), lambda input, other: input ^ other),
    "bitwise_not": lambda input: ~input,
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), lambda input, other: input << other),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__"), lambda input, other: input >> other),
    "logical_and": _logical(operator.and_), "logical_or": _logical(operator.or_), "logical_xor": _logical(operator.xor),
    "logical_not": lambda input: input == 0,
    "where": lambda condition, input, other: F.where(condition, input, other),
    "masked_fill": lambda input, mask, value: _masked_fill(input, mask, value),
    # activations
    "relu": relu, "relu6": relu6, "silu": silu, "mish": mish, "gelu": gelu, "elu": elu, "celu": celu, "selu": selu,
    "leaky_relu": leaky_relu, "prelu": prelu, "softplus": softplus, "softsign": softsign, "hardtanh": hardtanh,
    "hardsigmoid": hardsigmoid, "hardswish": hardswish, "hardshrink": hardshrink, "softshrink": softshrink,
    "tanhshrink": tanhshrink, "threshold": threshold, "softmax": softmax, "log_softmax": log_softmax, "softmin": softmin,
}  # fmt: skip
