"""Reductions and sorting, with the arguments of torch's."""

from __future__ import annotations

import collections
import math
from typing import Any

from ... import functional as F
from ...tensor import Tensor
from .._intercept import wrap
from ..proxy import Proxy
from .elementwise import cast

Pair = collections.namedtuple("Pair", ["values", "indices"])


def _axis(dim):
    return None if dim is None or dim == [] or dim == () else dim


def sum(input, dim=None, keepdim=False, *, dtype=None):
    return F.sum(cast(input, dtype), axis=_axis(dim), keepdims=keepdim)


def mean(input, dim=None, keepdim=False, *, dtype=None):
    return F.mean(cast(input, dtype), axis=_axis(dim), keepdims=keepdim)


def prod(input, dim=None, keepdim=False, *, dtype=None):
    return F.prod(cast(input, dtype), axis=dim, keepdims=keepdim)


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
        return F.maximum(input, dim)  # type: ignore[arg-type]  # proxies stand for tensors
    return F.max(input) if dim is None else max_along(input, dim, keepdim)


def min(input, dim=None, keepdim=False):
    """Of all elements, along an axis (a pair), or of two tensors."""
    if isinstance(dim, (Proxy, Tensor)):
        return F.minimum(input, dim)  # type: ignore[arg-type]  # proxies stand for tensors
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
    return F.cumsum(cast(input, dtype), axis=dim)


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
