"""Operators that read and write at places, and operators whose result's shape depends on values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...tensor import Tensor
from ._table import axis_of, counterpart, ints, number


def _places(indices: Tensor) -> Tensor:
    return indices if indices.dtype in (np.int32, np.int64) else indices.astype("int64")


@counterpart("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return ops.index_get(x, _places(indices), axes=(axis_of(axis, x.ndim),))


@counterpart("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return F.gather(x, axis_of(axis, x.ndim), _places(indices))


def _columns(indices: Tensor, batch_dims: int) -> list[Tensor]:
    """Returns index tensors, one for each axis that the last axis of ``indices`` and the batch axes
    name.
    """
    shape = indices._tuple_shape[:-1]
    lines = [np.arange(extent).reshape([-1 if a == b else 1 for a in range(len(shape))]) for b, extent in enumerate(shape[:batch_dims])]
    batch = [Tensor(np.broadcast_to(line, shape).astype(np.int32)) for line in lines]
    return batch + [_places(indices[..., column]) for column in range(indices.shape[-1])]


@counterpart("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    columns = _columns(indices, batch_dims)
    return ops.index_get(x, *columns, axes=tuple(range(len(columns))))


@counterpart("ScatterElements", "Scatter")
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    axis = axis_of(axis, x.ndim)
    if reduction == "none":
        return ops.scatter(x, _places(indices), updates, axis=axis)
    if reduction == "add":
        return ops.scatter_add(x, _places(indices), updates, axis=axis)
    return ops.scatter_reduce(x, _places(indices), updates, axis=axis, mode=reduction.replace("mul", "prod"))


@counterpart("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    if reduction in ("none", "add"):
        columns = _columns(indices, 0)
        write = ops.index_set if reduction == "none" else ops.index_add
        return write(x, updates, *columns, axes=tuple(range(len(columns))))
    held = indices.numpy()
    depth = held.shape[-1]
    behind: Any = x.shape[depth:]
    inner = math.prod(behind)
    outer = np.ravel_multi_index(tuple(np.moveaxis(held % np.asarray(x.shape[:depth]), -1, 0)), x._tuple_shape[:depth])
    places = Tensor((outer[..., None] * inner + np.arange(inner)).reshape(-1).astype(np.int32))
    flat = ops.scatter_reduce(F.flatten(x), places, F.flatten(updates), axis=0, mode=reduction.replace("mul", "prod"))
    return F.reshape(flat, x._tuple_shape)


@counterpart("OneHot", plain=(1,))
def one_hot(indices: Tensor, depth: object, values: Tensor, *, axis: int = -1) -> Tensor:
    """Makes one-hot rows. values: the number elsewhere, and the number at the index. Places outside
    of the depth mark nothing.
    """
    depth, rank = int(number(depth)), indices.ndim + 1
    axis = axis_of(axis, rank)
    wanted = F.expand_dims(_places(indices), axis)
    wanted = F.where(wanted < 0, wanted + depth, wanted)
    line = Tensor(np.arange(depth).reshape([-1 if a == axis else 1 for a in range(rank)]), dtype=wanted.dtype)
    hot = F.equal(wanted, line)
    off, on = (F.broadcast_to(F.reshape(values[i], (1,) * rank), hot._tuple_shape) for i in (0, 1))
    return F.where(hot, on, off)


@counterpart("ArgMax")
def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _arg(F.argmax, x, axis, keepdims, select_last_index)


@counterpart("ArgMin")
def arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _arg(F.argmin, x, axis, keepdims, select_last_index)


def _arg(find: Any, x: Tensor, axis: int, keepdims: int, last: int) -> Tensor:
    axis = axis_of(axis, x.ndim)
    if not last:
        return find(x, axis=axis, keepdims=bool(keepdims)).astype("int64")
    backwards = x[(slice(None),) * axis + (slice(None, None, -1),)]
    return x.shape[axis] - 1 - find(backwards, axis=axis, keepdims=bool(keepdims)).astype("int64")


@counterpart("TopK", plain=(1,))
def top_k(x: Tensor, k: object, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    values, places = ops.topk(x, k=ints(k)[0], axis=axis_of(axis, x.ndim), descending=largest)
    return values, places.astype("int64")


@counterpart("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    length: Any = x.shape[time_axis]
    times = np.arange(length)
    counts = np.asarray(ints(lengths))[:, None]
    places = np.where(times < counts, counts - 1 - times, times)  # [batch, time]
    places = places if batch_axis == 0 else places.T
    index = np.broadcast_to(places.reshape(places.shape + (1,) * (x.ndim - 2)), x._tuple_shape)
    return F.gather(x, time_axis, Tensor(np.ascontiguousarray(index, np.int32)))


# -- results whose shape depends on values --------------------------------------------------------


@counterpart("NonZero")
def non_zero(x: Tensor) -> Tensor:
    return F.transpose(F.non_zero(x.astype("bool")), (1, 0)).astype("int64")


@counterpart("Compress")
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    x, axis = (F.reshape(x, (-1,)), 0) if axis is None else (x, axis_of(axis, x.ndim))
    places = np.flatnonzero(condition.numpy()).astype(np.int32)
    return ops.index_get(x, Tensor(places), axes=(axis,))


@counterpart("Unique")
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    values, first, inverse, counts = np.unique(x.numpy(), True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return Tensor(values, dtype=x.dtype), *(Tensor(part, dtype="int64") for part in (first, inverse, counts))
