"""Element-wise functions, comparisons and reductions, with the arguments of torch's."""

from __future__ import annotations

import collections
import math
from typing import Any

from ... import functional as F
from ...tensor import Tensor
from .._intercept import wrap
from ..proxy import Proxy

Pair = collections.namedtuple("Pair", ["values", "indices"])


# -- arithmetic --------------------------------------------------------------------------------------


def add(input, other, *, alpha=1):
    return input + (other if alpha == 1 else other * alpha)


def sub(input, other, *, alpha=1):
    return input - (other if alpha == 1 else other * alpha)


def rsub(input, other, alpha=1):
    return other - (input if alpha == 1 else input * alpha)


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


def exp2(input):
    return 2.0**input


def log2(input):
    return F.log(input) / math.log(2)


def log10(input):
    return F.log(input) / math.log(10)


def erfc(input):
    return 1 - F.erf(input)


def isfinite(input):
    return input - input == 0  # neither of infinity nor of NaN


# -- choices -----------------------------------------------------------------------------------------


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
    return F.where(input > threshold, input, input * 0 + value)


def _of(input, dtype):
    return input if dtype is None else input.astype(dtype)


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return F.softmax(_of(input, dtype), axis=dim)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return F.logsoftmax(_of(input, dtype), axis=dim)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return F.softmax(-_of(input, dtype), axis=dim)


# -- reductions --------------------------------------------------------------------------------------


def _axis(dim):
    return None if dim is None or dim == [] or dim == () else dim


def sum(input, dim=None, keepdim=False, *, dtype=None):
    return F.sum(_of(input, dtype), axis=_axis(dim), keepdims=keepdim)


def mean(input, dim=None, keepdim=False, *, dtype=None):
    return F.mean(_of(input, dtype), axis=_axis(dim), keepdims=keepdim)


def prod(input, dim=None, keepdim=False, *, dtype=None):
    return F.prod(_of(input, dtype), axis=dim, keepdims=keepdim)


def amax(input, dim=(), keepdim=False):
    return F.max(input, axis=_axis(dim), keepdims=keepdim)


def amin(input, dim=(), keepdim=False):
    return F.min(input, axis=_axis(dim), keepdims=keepdim)


def argmax(input, dim=None, keepdim=False):
    return F.argmax(input, axis=dim, keepdims=keepdim)


def argmin(input, dim=None, keepdim=False):
    return F.argmin(input, axis=dim, keepdims=keepdim)


def any(input, dim=None, keepdim=False):
    return F.max((input != 0).astype("int32"), axis=_axis(dim), keepdims=keepdim) > 0


def all(input, dim=None, keepdim=False):
    return F.min((input != 0).astype("int32"), axis=_axis(dim), keepdims=keepdim) > 0


def max(input, dim=None, keepdim=False):
    """Of all elements, along an axis (a pair), or of two tensors."""
    if isinstance(dim, (Proxy, Tensor)):
        return F.maximum(input, dim)
    return F.max(input) if dim is None else max_along(input, dim, keepdim)


def min(input, dim=None, keepdim=False):
    """Of all elements, along an axis (a pair), or of two tensors."""
    if isinstance(dim, (Proxy, Tensor)):
        return F.minimum(input, dim)
    return F.min(input) if dim is None else min_along(input, dim, keepdim)


@wrap
def max_along(input: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """(values, indices) of the largest elements along an axis."""
    return Pair(F.max(input, axis=dim, keepdims=keepdim), argmax(input, dim, keepdim))


@wrap
def min_along(input: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """(values, indices) of the smallest elements along an axis."""
    return Pair(F.min(input, axis=dim, keepdims=keepdim), argmin(input, dim, keepdim))


def var(input, dim=None, unbiased=True, keepdim=False, *, correction=None):
    if isinstance(dim, bool):  # var(input, unbiased)
        dim, unbiased = None, dim
    return variance(input, _axis(dim), unbiased if correction is None else correction, keepdim)


def std(input, dim=None, unbiased=True, keepdim=False, *, correction=None):
    return F.sqrt(var(input, dim, unbiased, keepdim, correction=correction))


def var_mean(input, dim=None, unbiased=True, keepdim=False, *, correction=None):
    return var(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


@wrap
def variance(input: Tensor, axis: Any, correction: float, keepdims: bool) -> Tensor:
    """Variance with ``correction`` taken from the number of elements that it is divided by."""
    biased = F.var(input, axis=axis, keepdims=keepdims)
    count = input.size // biased.size
    return biased * (count / (count - correction)) if correction else biased


@wrap
def norm(
    input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """(sum of |x| ** p) ** (1 / p) over axes; all of them by default."""
    p = 2 if p in (None, "fro") else p
    size, axis = F.abs(input), _axis(dim)
    if abs(p) == math.inf:
        return (F.max if p > 0 else F.min)(size, axis=axis, keepdims=keepdim)
    if p == 2:
        return F.sqrt(F.sum(F.square(size), axis=axis, keepdims=keepdim))
    return F.sum(size**p, axis=axis, keepdims=keepdim) ** (1 / p)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    return input / F.maximum(norm(input, p, dim, True), eps)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    lengths = [F.maximum(norm(x, 2, dim), eps) for x in (x1, x2)]
    return F.sum(x1 * x2, axis=dim) / (lengths[0] * lengths[1])


def logsumexp(input, dim, keepdim=False):
    return F.logsumexp(input, dim, keepdim)


def cumsum(input, dim, *, dtype=None):
    return F.cumsum(_of(input, dtype), axis=dim)


# -- order -------------------------------------------------------------------------------------------


@wrap
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """(values, indices) of the k largest or smallest elements along an axis, in order."""
    rows = F.swapaxes(input, dim, -1)
    return Pair(*(F.swapaxes(found, dim, -1) for found in F.topk(rows, k, descending=largest)))


@wrap
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Pair:
    """(values, indices) in order along an axis."""
    return Pair(*F.sort(input, descending=descending, dim=dim))


def argsort(input, dim=-1, descending=False, stable=False):
    return sort(input, dim, descending).indices
