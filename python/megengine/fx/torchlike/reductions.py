"""Reductions and sorting, with the arguments of torch's."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from ... import functional as F
from ...core import ops
from ...core.tensor.shapes import reduce
from ...functional._length import length
from ...tensor import Tensor
from .._intercept import wrap
from ..proxy import Proxy
from .elementwise import cast, maximum, minimum

Pair = collections.namedtuple("Pair", ["values", "indices"])


def _axis(dim):
    return None if dim is None or dim == [] or dim == () else dim


def var(input, dim=None, unbiased=True, keepdim=False, *, correction=None):
    if isinstance(dim, bool):  # var(input, unbiased)
        dim, unbiased = None, dim
    return variance(input, _axis(dim), unbiased if correction is None else correction, keepdim)


@wrap
def norm_root(input: Tensor) -> Tensor:
    """The square root; its gradient at 0 is 0."""
    return ops.norm_root(input)


@wrap
def variance(input: Tensor, axis: int | Sequence[int] | None, correction: float, keepdims: bool) -> Tensor:
    """Computes the variance; its divisor is the number of elements less ``correction``."""
    biased = F.var(input, axis=axis, keepdims=keepdims)
    count = input.size // biased.size
    return biased * (count / (count - correction)) if correction else biased


@wrap
def norm(
    input: Tensor, p: Any = 2, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: DTypeLike | None = None
) -> Tensor:
    """Computes (sum of |x| ** p) ** (1 / p) over axes; all of them by default."""
    x = cast(input, dtype)
    axes = tuple(range(x.ndim)) if _axis(dim) is None else dim
    y = length(
        x, 2 if p == "fro" else p, lambda op, values: reduce(values, op, axes, keepdim, "norm"),
        ops.even_abs, (ops.even_max, ops.even_min),
    )  # fmt: skip
    return y.astype(x.dtype)


@wrap
def extreme(input: Tensor, op: str, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The largest or smallest elements along axes, all of them by default; equal ones share the gradient."""
    axes = tuple(range(input.ndim)) if axis is None else axis
    return reduce(input, ops.even_max if op == "max" else ops.even_min, axes, keepdims, op)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    return input / F.maximum(norm(input, p, dim, True), eps)


# -- order -------------------------------------------------------------------------------------------


@wrap
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """Returns (values, indices) of the k largest or smallest elements along an axis, in order."""
    rows = F.swapaxes(input, dim, -1)
    return Pair(*(F.swapaxes(found, dim, -1) for found in F.topk(rows, k, descending=largest)))


@wrap
def max_along(input: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """Returns (values, indices) of the largest elements along an axis; the first of equal ones has
    the gradient.
    """
    return _chosen(input, F.argmax(input, axis=dim, keepdims=True), dim, keepdim)


@wrap
def min_along(input: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """Returns (values, indices) of the smallest elements along an axis; the first of equal ones has
    the gradient.
    """
    return _chosen(input, F.argmin(input, axis=dim, keepdims=True), dim, keepdim)


def _chosen(input: Tensor, places: Tensor, dim: int, keepdim: bool) -> Pair:
    if not input.ndim:
        return Pair(input, places)
    values = F.gather(input, dim, places)
    return Pair(*(each if keepdim else F.squeeze(each, dim) for each in (values, places)))


def _extreme(of_two, op, along):
    """Makes torch's max or min: over all elements, along an axis (which gives a pair), or of two tensors."""

    def choose(input, dim=None, keepdim=False):
        if isinstance(dim, (Proxy, Tensor)):
            return of_two(input, dim)
        return extreme(input, op) if dim is None else along(input, dim, keepdim)

    return choose


def _total(function):
    return lambda input, dim=None, keepdim=False, *, dtype=None: function(cast(input, dtype), axis=_axis(dim), keepdims=keepdim)


def _truths(function):
    """Computes any or all as the largest or smallest of 0 and 1."""
    return lambda input, dim=None, keepdim=False: function((input != 0).astype("int32"), axis=_axis(dim), keepdims=keepdim) > 0


@wrap
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Pair:
    """Returns (values, indices) in order along an axis."""
    return Pair(*F.sort(input, descending=descending, dim=dim))


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    return F.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    return F.pairwise_distance(x1, x2, p, eps, keepdim)


def searchsorted(sorted_sequence, input, *, right=False, side=None, sorter=None, **options):
    if sorter is not None:
        raise ValueError("searchsorted: sorter is not supported; sort the sequence first")
    return F.searchsorted(sorted_sequence, input, side or ("right" if right else "left"))


@wrap
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts the elements in each of ``bins`` equal parts of [min, max], in their dtype; min = max:
    the range of the elements.
    """
    flat = F.flatten(input)
    low, high = (F.full((), float(bound)) for bound in (min, max))
    if min == max:
        low, high = F.min(flat), F.max(flat)
        same = (low == high).astype("float32")
        low, high = low - same, high + same
    places = F.floor((flat - low) / (high - low) * bins)
    inside = F.logical_and(flat >= low, flat <= high)
    places = F.clip(F.where(inside, places, F.zeros_like(places)), 0, bins - 1).astype("int32")
    return ops.index_add(F.zeros((bins,)), inside.astype("float32"), places, axes=(0,)).astype(input.dtype)


@wrap
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Subtracts from each element the one before it, ``n`` times; for bools tells whether they
    differ.
    """
    y = F.concat([each for each in (prepend, input, append) if each is not None], axis=dim)
    for _ in range(n):
        before: list[Any] = [slice(None)] * y.ndim
        after = list(before)
        before[dim], after[dim] = slice(0, -1), slice(1, None)
        y = (y[tuple(after)] != y[tuple(before)]) if y.dtype == bool else y[tuple(after)] - y[tuple(before)]
    return y


@wrap
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Returns (v with norms g over all axes but ``dim``, the norms that it had)."""
    norms = norm(v, 2, [axis for axis in range(v.ndim) if axis != dim % v.ndim], True)
    return v * (g / norms), norms


FUNCTIONS = {
    "histc": histc, "diff": diff, "_weight_norm_interface": weight_norm,
    "_weight_norm": lambda v, g, dim=0: weight_norm(v, g, dim)[0],
    "sum": _total(F.sum), "mean": _total(F.mean), "prod": _total(F.prod),
    "amax": lambda input, dim=(), keepdim=False: extreme(input, "max", _axis(dim), keepdim),
    "amin": lambda input, dim=(), keepdim=False: extreme(input, "min", _axis(dim), keepdim),
    "argmax": lambda input, dim=None, keepdim=False: F.argmax(input, axis=dim, keepdims=keepdim),
    "argmin": lambda input, dim=None, keepdim=False: F.argmin(input, axis=dim, keepdims=keepdim),
    "any": _truths(F.max), "all": _truths(F.min),
    "max": _extreme(maximum, "max", max_along), "min": _extreme(minimum, "min", min_along),
    "var": var,
    "std": lambda input, dim=None, unbiased=True, keepdim=False, *, correction=None: norm_root(
        var(input, dim, unbiased, keepdim, correction=correction)),
    "var_mean": lambda input, dim=None, unbiased=True, keepdim=False, *, correction=None: (
        var(input, dim, unbiased, keepdim, correction=correction), F.mean(input, axis=_axis(dim), keepdims=keepdim)),
    "norm": norm, "linalg_vector_norm": norm, "normalize": normalize, "cosine_similarity": cosine_similarity, "pairwise_distance": pairwise_distance,
    "logsumexp": lambda input, dim, keepdim=False: F.logsumexp(input, dim, keepdim),
    "cumsum": lambda input, dim, *, dtype=None: F.cumsum(cast(input, dtype), axis=dim),
    "cumprod": lambda input, dim, *, dtype=None: F.cumprod(cast(input, dtype), axis=dim),
    "topk": topk, "searchsorted": searchsorted,
    "sort": sort,
    "argsort": lambda input, dim=-1, descending=False, stable=False: sort(input, dim, descending).indices,
}  # fmt: skip
