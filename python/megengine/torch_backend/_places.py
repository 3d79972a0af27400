"""ATen operators that read and write at places: slices, windows, diagonals, memory by strides, masks, and reductions to places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..core import ops
from ..core.tensor.shapes import cut
from ..fx.torchlike import FUNCTIONS
from ..tensor import Tensor
from ._forms import Unsupported, along_axis


def slice_scatter(x: Tensor, part: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    shape, dim = x._tuple_shape, dim % x.ndim
    first, last, step = slice(start, end, step).indices(shape[dim])

    def at(value: int, others: Sequence[int]) -> list[int]:
        return [value if axis == dim else other for axis, other in enumerate(others)]

    ones = [1] * x.ndim
    return ops.slice_set(x, part, begin=at(first, [0] * x.ndim), end=at(last, shape), step=at(step, ones))


def select_scatter(x: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    return slice_scatter(x, F.expand_dims(part, dim), dim, index, index + 1 or None)


def slice_backward(dy: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Tensor:
    return slice_scatter(F.zeros(tuple(sizes), dtype=dy.dtype.name), dy, dim, start, end, step)


def select_backward(dy: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    return select_scatter(F.zeros(tuple(sizes), dtype=dy.dtype.name), dy, dim, index)


def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if any(i is not None and i.dtype == np.bool_ for i in indices):
        return _put_at_mask(x, indices, values, accumulate)
    return FUNCTIONS["index_put"](x, indices, values, accumulate)


def _put_at_mask(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    """Writes, or adds, the same at each place of a mask."""
    (first, mask), *others = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    behind = x.ndim - first - mask.ndim
    shape = (*[1] * (first + 1 + behind - values.ndim), *values._tuple_shape)
    if others or shape[first] != 1:  # values that differ from place to place are as many as the mask has
        raise Unsupported("several numbers at a mask")
    values = F.reshape(values, (*shape[:first], *[1] * mask.ndim, *shape[first + 1 :]))
    mask = F.reshape(mask, (*mask._tuple_shape, *[1] * behind))
    return F.where(mask, x + values if accumulate else values, x)


def take(x: Tensor, index: Tensor) -> Tensor:
    return ops.index_get(F.flatten(x), index, axes=(0,))


def put(x: Tensor, index: Tensor, values: Tensor, accumulate: bool = False) -> Tensor:
    """Writes to the flattened tensor, or adds."""
    function = ops.index_add if accumulate else ops.index_set
    return function(F.flatten(x), F.flatten(values), F.flatten(index), axes=(0,)).reshape(*x._tuple_shape)


# -- windows, diagonals, strides


_MOST_SLICES = 16  # the most slices that are joined to copy windows; more are gathered by places


def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Returns a copy of windows along an axis; their elements become the last axis. (torch shows
    them by strides, but what reads them here would copy these, too.)
    """
    if not x.ndim:
        return x.reshape(1)[:size]
    dim, shape = dim % x.ndim, x._tuple_shape
    count = (shape[dim] - size) // step + 1
    if not size:
        return F.zeros((*shape[:dim], count, *shape[dim + 1 :], 0), dtype=x.dtype.name)
    width = math.gcd(size, step)  # windows begin and end where blocks of this width do
    if size > _MOST_SLICES * width:
        places = np.arange(count, dtype=np.int32)[:, None] * step + np.arange(size, dtype=np.int32)
        return FUNCTIONS["movedim"](ops.index_get(x, Tensor(places), axes=(dim,)), dim + 1, x.ndim)
    blocks = cut(x, dim, 0, (count - 1) * step + size)
    blocks = blocks.reshape(*shape[:dim], blocks._tuple_shape[dim] // width, width, *shape[dim + 1 :])
    last = (count - 1) * (step // width) + 1
    parts = [blocks[(*(slice(None),) * dim, slice(first, first + last, step // width))] for first in range(size // width)]
    y = F.stack(parts, axis=dim + 1).reshape(*shape[:dim], count, size, *shape[dim + 1 :])
    return FUNCTIONS["movedim"](y, dim + 1, y.ndim - 1)


def _on_diagonal(x: Tensor, offset: int, dim1: int, dim2: int) -> tuple[list[Tensor], tuple[int, ...], int]:
    """Returns the places of a diagonal's elements along two axes, these axes in order, and the axis
    that indexing gives them.
    """
    dim1, dim2 = dim1 % x.ndim, dim2 % x.ndim
    rows, columns = x._tuple_shape[dim1], x._tuple_shape[dim2]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    places = [(dim1, np.arange(count) - min(offset, 0)), (dim2, np.arange(count) + max(offset, 0))]
    places.sort(key=lambda each: each[0])
    axes = tuple(axis for axis, _ in places)
    return [Tensor(line.astype(np.int32)) for _, line in places], axes, axes[0] if axes[1] == axes[0] + 1 else 0


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    places, axes, at = _on_diagonal(x, offset, dim1, dim2)
    y = ops.index_get(x, *places, axes=axes)
    return FUNCTIONS["movedim"](y, at, y.ndim - 1)


def diagonal_scatter(x: Tensor, part: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    places, axes, at = _on_diagonal(x, offset, dim1, dim2)
    return ops.index_set(x, FUNCTIONS["movedim"](part, part.ndim - 1, at), *places, axes=axes)


def _places_by_strides(size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    """Returns the places of elements in one line."""
    places = F.full((1,) * len(size), offset, dtype="int32")
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        line = (np.arange(extent) * step).astype(np.int32)
        places = places + Tensor(line).reshape(extent, *(1,) * (len(size) - axis - 1))
    return places


def _check_inside(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
    if offset + _span(size, stride) >= x.size and 0 not in size:
        raise Unsupported(f"{list(size)} by strides {list(stride)} of a tensor {list(x._tuple_shape)}")


def _span(size: Sequence[int], stride: Sequence[int]) -> int:
    return sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))


def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    """Returns elements of row-major memory. Slices make outer axes that do not overlap, so that
    only the others need places.
    """
    offset = offset or 0
    _check_inside(x, size, stride, offset)
    if 0 in size:
        return F.zeros(tuple(size), dtype=x.dtype.name)
    if any(step == 0 and extent > 1 for extent, step in zip(size, stride, strict=True)):
        once = [extent if step else 1 for extent, step in zip(size, stride, strict=True)]
        return F.broadcast_to(as_strided(x, once, stride, offset), tuple(size))
    y, length, outer = F.flatten(x), x.size, 0
    for extent, step in zip(size, stride, strict=True):
        first, rest = divmod(offset, step) if step else (0, 0)
        if not step or (first + extent) * step > length or rest + _span(size[outer + 1 :], stride[outer + 1 :]) >= step:
            break
        y = y[..., first * step : (first + extent) * step].reshape(*size[: outer + 1], step)
        offset, length, outer = rest, step, outer + 1
    if outer == len(size):
        return y[..., offset]
    if outer == len(size) - 2 and stride[-1] == 1 and stride[-2]:
        return unfold(y[..., offset : offset + _span(size[outer:], stride[outer:]) + 1], outer, size[-1], stride[-2])
    return ops.index_get(y, _places_by_strides(size[outer:], stride[outer:], offset), axes=(outer,))


def as_strided_scatter(x: Tensor, part: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    _check_inside(x, size, stride, offset or 0)
    if 0 in size:
        return x
    return ops.index_set(F.flatten(x), part, _places_by_strides(size, stride, offset or 0), axes=(0,)).reshape(*x._tuple_shape)


# -- masks


def masked_scatter(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    """Elements of ``values`` in their order, where the mask is true."""
    shape = np.broadcast_shapes(x._tuple_shape, mask._tuple_shape)
    x, places = F.broadcast_to(x, shape), _ranks(mask, shape)
    if not x.size or not values.size:
        raise Unsupported("of nothing")
    return F.where(mask, ops.index_get(F.flatten(values), places, axes=(0,)), x)


def masked_scatter_backward(dy: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradients of ``values``: those at the mask, then zeros."""
    zeros = F.zeros((math.prod(sizes),), dtype=dy.dtype.name)
    if not dy.size or not zeros.size:
        return zeros.reshape(*sizes)
    return ops.index_add(zeros, F.where(mask, dy, F.zeros_like(dy)), _ranks(mask, dy._tuple_shape), axes=(0,)).reshape(*sizes)


def _ranks(mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns for each true element of a mask, repeated up to ``shape``, the number of true ones
    before it; 0 for the others.
    """
    given = (1,) * (len(shape) - mask.ndim) + mask._tuple_shape
    outer = max((axis + 1 for axis, extent in enumerate(given) if extent != 1), default=0)  # the axes behind it are true, or false, as a whole
    rest = math.prod(shape[outer:])
    chosen = F.broadcast_to(mask.reshape(*given[:outer]), tuple(shape[:outer])).astype("int32")
    ranks = (F.cumsum(F.flatten(chosen), axis=0) - 1).reshape(*shape[:outer], *(1,) * (len(shape) - outer))
    places = ranks * rest + Tensor(np.arange(rest, dtype=np.int32).reshape(shape[outer:]))
    return F.where(mask, places, F.zeros_like(places))


# -- reductions to places


def _reduced(name: str) -> Callable[..., Any]:
    """A reduction to places, but of truth values."""

    def reduce(x: Tensor, *given: Any, **options: Any) -> Any:
        if x.dtype == np.bool_:
            raise Unsupported("of truth values")
        return FUNCTIONS[name](x, *given, **options)

    return along_axis(reduce)


def searchsorted(
    sequence: Tensor, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Tensor | None = None
) -> Tensor:
    if sorter is not None:
        sequence = F.gather(sequence, -1, sorter)
    if not isinstance(values, Tensor):
        values = F.full((), values, dtype=sequence.dtype.name)
    return FUNCTIONS["searchsorted"](sequence, values, side=side, right=right)


def bucketize(values: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return searchsorted(boundaries, values, right=right)


# -- tables of rows


def embedding_backward(dy: Tensor, indices: Tensor, count: int, padding_idx: int, by_frequency: bool) -> Tensor:
    if by_frequency or padding_idx >= 0:
        raise Unsupported("with padding_idx or scale_grad_by_freq")
    return index_put(F.zeros((count, dy._tuple_shape[-1]), dtype=dy.dtype.name), [indices], dy, True)


def _scattered(function: Callable[..., Tensor]) -> Callable[..., Any]:
    return along_axis(lambda x, dim, where, value: function(x, where, value, axis=dim))


ROWS: dict[str, Callable[..., Any]] = {
    "slice_scatter": slice_scatter, "select_scatter": select_scatter, "slice_backward": slice_backward, "select_backward": select_backward,
    "index": index, "_unsafe_index": index, "index_put": index_put, "_unsafe_index_put": index_put,
    "index_select": along_axis(lambda x, dim, where: FUNCTIONS["index_select"](x, dim, where)), "gather": along_axis(lambda x, dim, where, **_: F.gather(x, dim, where)),
    "take": take, "put": put,
    **{f"{name}_copy": FUNCTIONS[name] for name in ("narrow", "permute", "view", "unbind")},
    "unfold": unfold, "diagonal": diagonal, "diagonal_scatter": diagonal_scatter, **dict.fromkeys(("as_strided", "as_strided_copy"), as_strided), "as_strided_scatter": as_strided_scatter,
    "masked_scatter": masked_scatter, "masked_scatter_backward": masked_scatter_backward,
    "scatter.value": along_axis(lambda x, dim, where, value: ops.scatter(x, where, F.full(where._tuple_shape, value, dtype=x.dtype.name), axis=dim)),
    "scatter.src": _scattered(ops.scatter), "scatter_add": _scattered(ops.scatter_add), **{name: _reduced(name) for name in ("scatter_reduce", "index_reduce")},
    "searchsorted": searchsorted, "bucketize": bucketize,
    "embedding_dense_backward": embedding_backward,
}  # fmt: skip
