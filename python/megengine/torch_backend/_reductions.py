"""ATen operators along axes: sums, sorting, running sums, distances of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..core import ops
from ..core.tensor.shapes import cut
from ..fx.torchlike import FUNCTIONS, OPERATORS
from ..tensor import Tensor
from ._double import is_double, softmax
from ._forms import Unsupported, along_axis


def axes_of(dims: Any, ndim: int) -> list[int]:
    chosen = range(ndim) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return [d % ndim for d in chosen] if ndim else []


def _over_axes(name: str) -> Callable[..., Tensor]:
    def reduce(x: Tensor, dims: Any = None, keepdim: bool = False, *, dtype: str | None = None) -> Tensor:
        x = x if dtype is None else x.astype(dtype)
        return FUNCTIONS[name](x, axes_of(dims, x.ndim), keepdim) if x.ndim else x

    return reduce


def var_mean(x: Tensor, dims: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    axes = axes_of(dims, x.ndim)
    count = math.prod(x._tuple_shape[axis] for axis in axes)
    mean = F.mean(x, axis=axes, keepdims=True)
    var = F.mean(F.square(x - mean), axis=axes, keepdims=keepdim) * (count / (count - correction))
    return var, mean if keepdim else F.mean(x, axis=axes)


# -- order


@along_axis
def sort(x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Tensor, Tensor]:
    """Returns (values, places), equal ones in their order."""
    if x.dtype.itemsize < 4:
        raise Unsupported(f"of {x.dtype}, where equal ones would change places")
    return tuple(FUNCTIONS["sort"](x, dim, descending))


# torch does not promise which of equal elements these find, so torch runs a graph that reads it (`_partition`).
WITHOUT_PLACES = {"median.dim", "nanmedian.dim", "kthvalue.default"}


def _with_no_places(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, F.zeros(y._tuple_shape, dtype="int32")


@along_axis
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dim = dim % x.ndim
    return _with_no_places(_settled(cut(_in_order(x, dim), dim, k - 1, k), dim, keepdim))


@along_axis
def median(x: Tensor, dim: int = 0, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the median, the lower of two in the middle; NaN if there is one."""
    dim = dim % x.ndim
    ordered, count = _in_order(x, dim), x._tuple_shape[dim]
    middle, last = cut(ordered, dim, (count - 1) // 2, (count + 1) // 2), cut(ordered, dim, count - 1, count)
    y = F.where(F.isnan(last), last, middle) if x.dtype.kind not in "iu" else middle
    return _with_no_places(_settled(y, dim, keepdim))


@along_axis
def nanmedian(x: Tensor, dim: int = 0, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Computes the median of all numbers but NaN; NaN if there are no others."""
    if x.dtype.kind in "iu":
        return median(x, dim, keepdim)
    dim = dim % x.ndim
    count = F.sum(F.logical_not(F.isnan(x)).astype("int32"), axis=dim, keepdims=True)
    places = F.maximum((count - 1) // 2, F.zeros_like(count))
    return _with_no_places(_settled(ops.gather(_in_order(x, dim), places, axis=dim), dim, keepdim))


def _in_order(x: Tensor, dim: int) -> Tensor:
    if not x.size:
        raise Unsupported("of nothing")
    return ops.sort(x, axis=dim, descending=False)[0]


def _settled(y: Tensor, dim: int, keepdim: bool) -> Tensor:
    return y if keepdim else F.squeeze(y, dim)


# -- running sums


@along_axis
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Adds sums of 1, 2, 4, ... elements, so that small numbers keep their digits beside large
    ones.

    Hillis & Steele 1986, "Data Parallel Algorithms".
    """
    dim, y = dim % x.ndim, x.astype("float32") if x.dtype.itemsize < 4 else x
    extent, step = x._tuple_shape[dim], 1
    while step < extent:
        sums = F.logaddexp(cut(y, dim, 0, extent - step), cut(y, dim, step, extent))
        y, step = F.concat([cut(y, dim, 0, step), sums], axis=dim), 2 * step
    return y.astype(x.dtype)


def _running(wins: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Makes (values, places) of the largest, or the smallest, so far, by joining runs of 1, 2, 4,
    ... elements. wins(later, earlier): whether the later element is taken: also if both are equal,
    or it is NaN.
    """

    @along_axis
    def running(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if x.dtype == np.bool_ or not x.size:
            raise Unsupported("of truth values, or of nothing")
        dim, extent, step = dim % x.ndim, x._tuple_shape[dim % x.ndim], 1
        line = Tensor(np.arange(extent, dtype=np.int32)).reshape(extent, *(1,) * (x.ndim - dim - 1))
        y, places = x, F.broadcast_to(line, x._tuple_shape)
        while step < extent:
            (y0, y1), (p0, p1) = ((cut(each, dim, 0, extent - step), cut(each, dim, step, extent)) for each in (y, places))
            is_later = wins(y1, y0) if x.dtype.kind in "iu" else wins(y1, y0) | F.isnan(y1)
            pairs = ((y, F.where(is_later, y1, y0)), (places, F.where(is_later, p1, p0)))
            y, places = (F.concat([cut(old, dim, 0, step), new], axis=dim) for old, new in pairs)
            step *= 2
        return y, places

    return running


def _softmax(is_log: bool) -> Callable[..., Tensor]:
    of_floats = OPERATORS["_log_softmax" if is_log else "_softmax"]

    def apply(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        return softmax(x, dim, is_log) if is_double(x) else of_floats(x, dim, half_to_float)

    return along_axis(apply)


# -- distances of rows


def cdist(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    """The distance of each row of ``x`` to each of ``y``."""
    _check_order(p)
    between = F.expand_dims(x, -2) - F.expand_dims(y, -3)
    return FUNCTIONS["norm"](between, p, -1) if between.size else F.zeros(between._tuple_shape[:-1])


def cdist_backward(dy: Tensor, x: Tensor, y: Tensor, p: float, distances: Tensor) -> Tensor:
    """Returns the gradient of ``x`` with all leading axes; 0 where rows are equal."""
    _check_order(p)
    between = F.expand_dims(x, -2) - F.expand_dims(y, -3)
    if p == 0 or not between.size:
        return F.zeros((*between._tuple_shape[:-2], between._tuple_shape[-1]))
    dy, distances, zeros = F.expand_dims(dy, -1), F.expand_dims(distances, -1), F.zeros_like(between)
    if p == 1:
        grad = F.sign(between) * dy
    elif p == math.inf:
        grad = F.where(F.abs(between) == distances, F.sign(between) * dy, zeros)
    else:
        grad = F.where(distances == 0, zeros, between / distances * dy)
    return F.sum(grad, axis=-2)


def _check_order(p: float) -> None:
    if p not in (0, 1, 2, math.inf):
        raise Unsupported("of an order whose powers megjit would hold for all pairs")


def squeeze(x: Tensor, dims: Sequence[int]) -> Tensor:
    return FUNCTIONS["squeeze"](x, dims) if dims and x.ndim else x


def _first(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(F.flatten(x), 0)[0]


def triangle(places: Callable[..., Any]) -> Callable[..., Tensor]:
    return lambda rows, columns, offset=0, **_: Tensor(np.stack(places(rows, offset, columns)).astype(np.int32))


ROWS: dict[str, Callable[..., Any]] = {
    "sum": _over_axes("sum"), "mean": _over_axes("mean"), "squeeze.dims": squeeze,
    "var": lambda *given, **options: var_mean(*given, **options)[0], "var_mean": var_mean,
    **{name: along_axis(FUNCTIONS[name.partition(".")[0]]) for name in ("max.dim", "min.dim", "argmax", "argmin", "topk", "cumsum", "cumprod")},
    "_softmax": _softmax(False), "_log_softmax": _softmax(True),
    "_softmax_backward_data": along_axis(lambda dy, y, dim, dtype: y * (dy - F.sum(dy * y, axis=dim, keepdims=True))),
    "_log_softmax_backward_data": along_axis(lambda dy, y, dim, dtype: dy - F.exp(y) * F.sum(dy, axis=dim, keepdims=True)),
    "sort": sort, "argsort": lambda *given, **options: sort(*given, **options)[1], "kthvalue": kthvalue,
    "median.default": _first(median), "median.dim": median, "nanmedian.default": _first(nanmedian), "nanmedian.dim": nanmedian,
    "logcumsumexp": logcumsumexp, "cummax": _running(lambda later, earlier: later >= earlier), "cummin": _running(lambda later, earlier: later <= earlier),
    "_cdist_forward": cdist, "_cdist_backward": cdist_backward, "dist": lambda x, y, p=2: FUNCTIONS["norm"](x - y, p),
    "tril_indices": triangle(np.tril_indices), "triu_indices": triangle(np.triu_indices),
}  # fmt: skip
