"""ATen operators on bags of rows of a table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import functional as F
from ..core import ops
from ..functional._bags import bag_of_each
from ..tensor import Tensor
from ._forms import Unsupported, refuse_halves

_BAGS = ("sum", "mean", "max")


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = 0, sparse: bool = False,
    factors: Tensor | None = None, with_end: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns (result, the bag of each index, the sizes of bags, these again or the rows of the
    maxima); sums have only the result, as in torch.
    """
    refuse_halves(weight)
    if sparse:
        raise Unsupported("with a sparse gradient")
    starts = offsets[:-1] if with_end else offsets
    if mode == 2:
        return _maxima(weight, indices, starts, padding_idx)
    y = F.embedding_bag(indices, weight, starts, _BAGS[mode], factors, padding_idx if padding_idx >= 0 else None)
    has_bags = mode == 1 or padding_idx >= 0
    bags = bag_of_each(indices._tuple_shape[0], starts) if has_bags else F.zeros((0,), dtype="int32")
    sizes = F.zeros(starts._tuple_shape, dtype="int32")
    if mode == 1:
        sizes = ops.index_add(sizes, (indices != padding_idx).astype("int32"), bags, axes=(0,))
    return y, bags, sizes, sizes


def embedding_bag_alone(weight: Tensor, indices: Tensor, offsets: Tensor, *given: Any) -> tuple[Tensor, ...]:
    """Returns what embedding_bag does, with sizes of the shape that torch gives them here: nobody reads them."""
    y, bags, _, maxima = embedding_bag(weight, indices, offsets, *given)
    return y, bags, F.zeros(offsets._tuple_shape, dtype="int32"), maxima


def _maxima(weight: Tensor, indices: Tensor, starts: Tensor, padding_idx: int) -> tuple[Tensor, ...]:
    """Returns what embedding_bag does; of equal rows the first is taken, of empty bags 0 and row 0.
    """
    count, dim, groups = indices._tuple_shape[0], weight._tuple_shape[1], starts._tuple_shape[0]
    bags, is_counted = bag_of_each(count, starts), indices != padding_idx
    sizes = ops.index_add(F.zeros((groups,), dtype="int32"), is_counted.astype("int32"), bags, axes=(0,))
    rows = ops.index_get(weight, indices, axes=(0,))
    low = F.full((groups, dim), -math.inf, dtype=rows.dtype.name)
    is_row = F.broadcast_to(is_counted.reshape(-1, 1), (count, dim))
    where = F.broadcast_to(bags.reshape(-1, 1), (count, dim))
    found = ops.scatter_reduce(low, where, F.where(is_row, rows, F.full_like(rows, -math.inf)), axis=0, mode="max")
    is_largest = is_row & (rows == ops.gather(found, where, axis=0))
    line = F.broadcast_to(F.arange(count, dtype="int32").reshape(-1, 1), (count, dim))
    last = F.full((groups, dim), count - 1, dtype="int32")
    first = ops.scatter_reduce(last, where, F.where(is_largest, line, F.full_like(line, count - 1)), axis=0, mode="min")
    maxima, is_empty = ops.index_get(indices, first, axes=(0,)), (sizes == 0).reshape(-1, 1)
    return F.where(is_empty, F.zeros_like(found), found), bags, sizes, F.where(is_empty, F.zeros_like(maxima), maxima)


def embedding_bag_backward(
    dy: Tensor, indices: Tensor, offsets: Tensor, bags: Tensor, sizes: Tensor, maxima: Tensor, count: int, by_frequency: bool, mode: int, sparse: bool,
    factors: Tensor | None, padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    refuse_halves(dy)
    if sparse:
        raise Unsupported("with a sparse gradient")
    if mode == 2:
        dy = F.where((sizes == 0).reshape(-1, 1), F.zeros_like(dy), dy)
        return F.scatter_add(F.zeros((count, dy._tuple_shape[1]), dtype=dy.dtype.name), 0, maxima, dy)
    if mode == 1:
        dy = dy / F.maximum(sizes, F.ones_like(sizes)).astype(dy.dtype).reshape(-1, 1)
    rows = ops.index_get(dy, bag_of_each(indices._tuple_shape[0], offsets), axes=(0,))
    rows = rows if factors is None else rows * factors.reshape(-1, 1)
    if by_frequency:
        counts = ops.index_add(F.zeros((count,), dtype=dy.dtype.name), F.ones(indices._tuple_shape, dtype=dy.dtype.name), indices, axes=(0,))
        rows = rows / ops.index_get(counts, indices, axes=(0,)).reshape(-1, 1)
    if padding_idx >= 0:
        rows = F.where((indices == padding_idx).reshape(-1, 1), F.zeros_like(rows), rows)
    return ops.index_add(F.zeros((count, dy._tuple_shape[1]), dtype=dy.dtype.name), rows, indices, axes=(0,))


def embedding_bag_factors_backward(
    dy: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, bags: Tensor, mode: int, padding_idx: int = -1
) -> Tensor:
    """The gradients of per_sample_weights."""
    refuse_halves(dy)
    rows, found = ops.index_get(dy, bag_of_each(indices._tuple_shape[0], offsets), axes=(0,)), ops.index_get(weight, indices, axes=(0,))
    y = F.sum(rows * found, axis=1)
    return F.where(indices == padding_idx, F.zeros_like(y), y) if padding_idx >= 0 else y


ROWS: dict[str, Callable[..., Any]] = {
    "_embedding_bag": embedding_bag, "_embedding_bag_forward_only": embedding_bag_alone,
    "_embedding_bag_backward": embedding_bag_backward, "_embedding_bag_per_sample_weights_backward": embedding_bag_factors_backward,
}  # fmt: skip
