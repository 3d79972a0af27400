"""Element-wise functions, with the arguments of torch's."""

from __future__ import annotations

import math
from typing import Any

from ... import functional as F
from ...core import ops
from ...tensor import Tensor
from .._intercept import wrap

# -- arithmetic --------------------------------------------------------------------------------------


def add(input, other, *, alpha=1):
    return input + (other if alpha == 1 else other * alpha)


def sub(input, other, *, alpha=1):
    return input - (other if alpha == 1 else other * alpha)


def rsub(input, other, alpha=1):
    return other - (input if alpha == 1 else input * alpha)


def mul(input, other):
    return input * other


def floor_divide(input, other):
    return input // other


def remainder(input, other):
    return input % other


def power(input, exponent):
    return input**exponent


def div(input, other, *, rounding_mode=None):
    if rounding_mode is None:
        return input / other
    return input // other if rounding_mode == "floor" else trunc(input / other)


def fmod(input, other):
    return F.sign(input) * (F.abs(input) % abs(other))


def addcmul(input, tensor1, tensor2, *, value=1):
    return input + tensor1 * tensor2 * value


def addcdiv(input, tensor1, tensor2, *, value=1):
    return input + tensor1 / tensor2 * value


def lerp(input, end, weight):
    return input + (end - input) * weight


def reciprocal(input):
    return 1 / input


def rsqrt(input):
    return 1 / F.sqrt(input)


def trunc(input):
    return F.sign(input) * F.floor(F.abs(input))


def clamp(input, min=None, max=None):
    return F.clip(input, min, max)


def clamp_min(input, min):
    return F.maximum(input, min)


def clamp_max(input, max):
    return F.minimum(input, max)


def exp2(input):
    return 2.0**input


def log2(input):
    return F.log(input) / math.log(2)


def log10(input):
    return F.log(input) / math.log(10)


@wrap
def erfc(input: Tensor) -> Tensor:
    """``1 - erf(input)`` without the cancellation of that formula."""
    return ops.erfc(input)


def isfinite(input):
    return input - input == 0  # neither of infinity nor of NaN


# -- logic and choices -------------------------------------------------------------------------------


def bitwise_and(input, other):
    return input & other


def bitwise_or(input, other):
    return input | other


def bitwise_xor(input, other):
    return input ^ other


def bitwise_not(input):
    return ~input


def logical_and(input, other):
    return (input != 0) & (other != 0)


def logical_or(input, other):
    return (input != 0) | (other != 0)


def logical_xor(input, other):
    return (input != 0) ^ (other != 0)


def logical_not(input):
    return input == 0


def where(condition, input, other):
    return F.where(condition, input, other)


def masked_fill(input, mask, value):
    return _masked_fill(input, mask, value)


@wrap
def _masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """``input`` with ``value`` where the mask is true, in the dtype of ``input``."""
    value = F.full((), value, dtype=input.dtype.name) if not isinstance(value, Tensor) else value
    return F.where(mask.astype("bool"), value.astype(input.dtype), input)


# -- activations -------------------------------------------------------------------------------------


def relu(input, inplace=False):
    return F.relu(input)


def relu6(input, inplace=False):
    return F.relu6(input)


def silu(input, inplace=False):
    return F.silu(input)


def mish(input, inplace=False):
    return input * F.tanh(F.softplus(input))


def gelu(input, approximate="none"):
    if approximate == "none":
        return F.gelu(input)
    # Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2.
    inner = math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)
    return 0.5 * input * (1 + F.tanh(inner))


def elu(input, alpha=1.0, inplace=False):
    return F.where(input > 0, input, alpha * F.expm1(F.minimum(input, 0)))


def celu(input, alpha=1.0, inplace=False):
    return F.maximum(input, 0) + F.minimum(alpha * F.expm1(input / alpha), 0)


def selu(input, inplace=False):
    # Klambauer et al. 2017, "Self-Normalizing Neural Networks", equation 14.
    return 1.0507009873554805 * elu(input, 1.6732632423543772)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    return F.leaky_relu(input, negative_slope)


@wrap
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """weight: one slope, or one a channel, shape (C,)."""
    if weight.size > 1 and input.ndim > 1:
        weight = weight.reshape(-1, *(1,) * (input.ndim - 2))
    return F.prelu(input, weight)


def softplus(input, beta=1, threshold=20):
    if beta == 1:
        return F.softplus(input)
    return F.softplus(input * beta) / beta


def softsign(input):
    return input / (1 + F.abs(input))


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    return F.relu6(input) if (min_val, max_val) == (0, 6) else F.clip(input, min_val, max_val)


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
