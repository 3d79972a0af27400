"""The orders in which torch's tensors lie in memory, and which of these are ours."""

from __future__ import annotations

from typing import Any

import torch


def has_fixed_sizes(value: torch.Tensor) -> bool:
    return all(isinstance(extent, int) for extent in value.shape)


def is_channels_last(value: torch.Tensor) -> bool:
    """Whether it is channels-last, and not row-major as well. False if sizes are not known."""
    if not 3 <= value.dim() <= 5 or not has_fixed_sizes(value):
        return False
    return not value.is_contiguous() and bool(value.movedim(1, -1).is_contiguous())


def lies_as_ours(value: torch.Tensor) -> bool:
    """Whether it is in an order that our tensors have, so that its memory can be shared."""
    return value.is_contiguous() or is_channels_last(value)


def order_of(value: Any) -> tuple[int, ...] | None:
    """Returns the order of axes in which a tensor is row-major; None if its order is one of ours,
    or it has no such order.
    """
    if not isinstance(value, torch.Tensor) or not has_fixed_sizes(value) or lies_as_ours(value):
        return None
    order = tuple(sorted(range(value.dim()), key=lambda axis: -value.stride(axis)))
    return order if value.permute(order).is_contiguous() else None


def channels_last(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape and dtype whose memory has the channels last; its elements are not written."""
    made = value.new_empty([value.shape[axis] for axis in (0, *range(2, value.dim()), 1)])
    return made.movedim(-1, 1)
