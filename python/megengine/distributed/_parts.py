"""A process's part of a tensor that a group holds once. The tensor is laid flat, filled up with
zeros and cut into equal parts, one for each process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import ops
from ..tensor import Parameter, Tensor
from .functional import all_gather, all_reduce_min
from .group import Group


@dataclass(frozen=True)
class Part:
    """A part that a checkpoint writes. values: flat; the last part may be filled up with zeros
    behind the end. shape: that of the whole. begin: its offset
    in the whole, laid flat."""

    values: Tensor
    shape: tuple[int, ...]
    begin: int


class ShardedParameter(Parameter):
    """This process's part of a parameter, flat; `fsdp.fully_shard` makes it of one."""

    _shape_of_whole: tuple[int, ...]
    _group: Group

    def _least_of_all(self, value: Tensor) -> Tensor:
        """Tells amp whether a condition holds in all processes."""
        return all_reduce_min(value.astype("float32"), self._group)

    def _as_part(self, part: Tensor | None = None, shape: tuple[int, ...] | None = None) -> Part:
        """shape: the shape of the whole that ``part`` belongs to; that of the parameter unless
        given.
        """
        part = self if part is None else part
        return Part(part, self._shape_of_whole if shape is None else shape, self._group.rank * part._tuple_shape[0])

    def __deepcopy__(self, memo: dict[int, Any]) -> ShardedParameter:
        copied: Any = Parameter(self.detach())
        copied.__class__ = ShardedParameter
        copied._shape_of_whole, copied._group = self._shape_of_whole, self._group
        memo[id(self)] = copied
        return copied

    def __getstate__(self) -> Any:
        raise TypeError(
            f"this is a process's part of a parameter of shape {self._shape_of_whole}, and cannot be pickled\n"
            "  fix: save net.state_dict(), in which parameters are whole, or use distributed.checkpoint"
        )


def whole_shape(tensor: Tensor) -> tuple[int, ...]:
    """Returns the shape of a tensor; for a part, that of its whole."""
    return tensor._shape_of_whole if isinstance(tensor, ShardedParameter) else tensor._tuple_shape


def whole_array(tensor: Tensor, value: Tensor, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Returns ``value``, which belongs to ``tensor``; if that is a part, joined from all processes,
    which call this together.

    shape: that of the whole, by default that of ``tensor``."""
    if isinstance(tensor, ShardedParameter):
        value = whole_of(all_gather(value, tensor._group), tensor._shape_of_whole if shape is None else shape)
    return value.numpy()


def own_array(tensor: Tensor, whole: np.ndarray) -> np.ndarray:
    """The inverse: returns the part of a whole array that belongs to ``tensor``."""
    if not isinstance(tensor, ShardedParameter):
        return whole.reshape(tensor._tuple_shape)
    size = tensor._group.size
    count = -(-whole.size // size)
    flat = np.pad(whole.reshape(-1), (0, count * size - whole.size))
    return np.ascontiguousarray(flat[tensor._group.rank * count :][:count])


def rows_of(value: Tensor, size: int) -> Tensor:
    """A row for each of ``size`` processes."""
    flat = value.reshape(-1)
    missing = -flat._tuple_shape[0] % size
    if missing:
        zeros = ops.full(shape=(missing,), value=0.0, dtype=value.dtype.name, device=value)
        flat = ops.concat(flat, zeros, axis=0)
    return flat.reshape(size, -1)


def whole_of(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The inverse."""
    flat, count = rows.reshape(-1), math.prod(shape)
    return (flat if flat._tuple_shape[0] == count else flat[:count]).reshape(shape)


def cut(whole: Tensor, counts: Sequence[int]) -> Iterator[Tensor]:
    """Neighbouring pieces along the last axis."""
    begin = 0
    for count in counts:
        yield whole[..., begin : begin + count]
        begin += count
