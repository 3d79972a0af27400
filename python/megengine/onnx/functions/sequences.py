"""Sequences, which are lists here, and optional values: None is an absent one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...tensor import Tensor
from ._table import axis_of, counterpart, ints, number


def _place(op: str, xs: Sequence[Tensor], position: Tensor | int, most: int) -> int:
    """A position counted from the front, of at most ``most``."""
    place = int(number(position))
    if not -len(xs) <= place <= most:
        raise ValueError(f"{op}: position {place} of a sequence of {len(xs)}")
    return place + len(xs) if place < 0 else place


@counterpart("SequenceConstruct")
def sequence_construct(*xs: Tensor) -> list[Tensor]:
    return list(xs)


@counterpart("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Tensor]:
    return []


@counterpart("SequenceInsert", plain=(2,))
def sequence_insert(xs: Sequence[Tensor], x: Tensor, position: Tensor | int | None = None) -> list[Tensor]:
    place = len(xs) if position is None else _place("SequenceInsert", xs, position, len(xs))
    return [*xs[:place], x, *xs[place:]]


@counterpart("SequenceErase", plain=(1,))
def sequence_erase(xs: Sequence[Tensor], position: Tensor | int = -1) -> list[Tensor]:
    place = _place("SequenceErase", xs, position, len(xs) - 1)
    return [*xs[:place], *xs[place + 1 :]]


@counterpart("SequenceAt", plain=(1,))
def sequence_at(xs: Sequence[Tensor], position: Tensor | int) -> Tensor:
    return xs[_place("SequenceAt", xs, position, len(xs) - 1)]


@counterpart("SequenceLength")
def sequence_length(xs: Sequence[Tensor]) -> Tensor:
    return Tensor(len(xs), dtype="int64")


@counterpart("SplitToSequence", plain=(1,))
def split_to_sequence(x: Tensor, split: Tensor | int | Sequence[int] | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    """Splits a tensor. split: the extents of all parts, or one number for all but the last; without
    it parts have one element, and lose the axis unless keepdims.
    """
    axis = axis_of(axis, x.ndim)
    extent: Any = x.shape[axis]
    extent = int(extent)
    before = (slice(None),) * axis
    if split is None:
        parts = [x[(*before, slice(at, at + 1))] for at in range(extent)]
        return parts if keepdims else [F.squeeze(part, axis) for part in parts]
    is_one = not np.ndim(split) if not isinstance(split, Tensor) else not split.ndim
    size = int(number(split)) if is_one else 0
    if is_one and size < 1:
        raise ValueError(f"SplitToSequence: parts of {size} elements")
    sizes = [min(size, extent - begin) for begin in range(0, extent, size)] if is_one else list(ints(split))
    if sum(sizes) != extent:
        raise ValueError(f"SplitToSequence: parts of {sizes} for an axis of {extent} elements")
    ends = np.cumsum(sizes).tolist()
    return [x[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


@counterpart("ConcatFromSequence")
def concat_from_sequence(xs: Sequence[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    if not xs:
        raise ValueError("ConcatFromSequence: the sequence is empty")
    if new_axis:
        return F.stack(list(xs), axis=axis_of(axis, xs[0].ndim + 1))
    return F.concat(list(xs), axis=axis_of(axis, xs[0].ndim))


@counterpart("Optional")
def optional(x: object = None) -> object:
    return x


@counterpart("OptionalHasElement")
def optional_has_element(x: object = None) -> Tensor:
    return Tensor(x is not None)


@counterpart("OptionalGetElement")
def optional_get_element(x: object) -> object:
    if x is None:
        raise ValueError("OptionalGetElement: there is no element")
    return x
