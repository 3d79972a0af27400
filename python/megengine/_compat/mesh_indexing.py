"""Reading and writing the grid of places that one list of indices for each axis spans, as ``np.ix_`` does.

x: any shape; indices: int tensors [n0], [n1], ... for the leading axes. Batched: x is [b, ...], indices are [b, n1],
[b, n2], ... for the axes behind the first, a grid for each of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._core import apply_const
from ..core import ops

if TYPE_CHECKING:
    from ..tensor import Tensor


def _grid(x: Tensor, indices: tuple[Tensor, ...], batched: bool) -> list[Tensor]:
    """One index tensor for each leading axis, which broadcast to the grid."""
    rank, batch = len(indices), x._tuple_shape[:1] if batched else ()
    grid = [
        ops.reshape(index, shape=batch + (1,) * axis + index._tuple_shape[-1:] + (1,) * (rank - axis - 1))
        for axis, index in enumerate(indices)
    ]
    if batched:
        grid.insert(0, apply_const(np.arange(*batch, dtype=np.int32).reshape(batch + (1,) * rank)))
    return grid


def read(x: Tensor, *indices: Tensor, batched: bool = False) -> Tensor:
    """The elements of the grid."""
    grid = _grid(x, indices, batched)
    return ops.index_get(x, *grid, axes=tuple(range(len(grid))))


def write(x: Tensor, value: Tensor, *indices: Tensor, batched: bool = False) -> Tensor:
    """``x`` with ``value`` in the places of the grid."""
    grid = _grid(x, indices, batched)
    return ops.index_set(x, value, *grid, axes=tuple(range(len(grid))))


def add(x: Tensor, value: Tensor, *indices: Tensor, batched: bool = False) -> Tensor:
    """``x`` with ``value`` added in the places of the grid, as often as they are named."""
    grid = _grid(x, indices, batched)
    return ops.index_add(x, value, *grid, axes=tuple(range(len(grid))))


def add_to_slice(x: Tensor, value: Tensor, *, begin: list[int], end: list[int], step: list[int]) -> Tensor:
    """``x`` with ``value`` added to ``x[begin:end:step]``."""
    part = ops.slice(x, begin=begin, end=end, step=step)
    return ops.slice_set(x, ops.add(part, value), begin=begin, end=end, step=step)
