"""Which values of a joint graph cross from forward to backward in the order in which convolutions work, (N, spatial..., C)."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import fx

from ._partition import name_of, tensors_in

_MAKE = {"convolution"}
# Beside what works element by element: results lie as their first operand does.
_FOLLOW = {
    "_native_batch_norm_legit_functional", "max_pool2d_with_indices", "avg_pool2d", "cat", "constant_pad_nd", "native_dropout",
}  # fmt: skip


def has_fixed_sizes(value: torch.Tensor) -> bool:
    return all(isinstance(extent, int) for extent in value.shape)


def is_channels_last(value: torch.Tensor) -> bool:
    """Does it lie so, and not in row-major order as well? False where sizes are not known."""
    if not 3 <= value.dim() <= 5 or not has_fixed_sizes(value):
        return False
    return not value.is_contiguous() and bool(value.movedim(1, -1).is_contiguous())


def lies_as_ours(value: torch.Tensor) -> bool:
    """Is it in an order that tensors of ours have, so that its memory can be shared?"""
    return value.is_contiguous() or is_channels_last(value)


def order_of(value: Any) -> tuple[int, ...] | None:
    """The order of its axes in which it is row-major; None if it lies as tensors of ours do, or in no such order."""
    if not isinstance(value, torch.Tensor) or not has_fixed_sizes(value) or lies_as_ours(value):
        return None
    order = tuple(sorted(range(value.dim()), key=lambda axis: -value.stride(axis)))
    return order if value.permute(order).is_contiguous() else None


def channels_last(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape and dtype whose memory has the channels last; its elements are not written."""
    made = value.new_empty([value.shape[axis] for axis in (0, *range(2, value.dim()), 1)])
    return made.movedim(-1, 1)


def lay_out(forward: Iterable[fx.Node], seen: Collection[Any]) -> None:
    """Plans values that forward gives, and backward takes (`node.meta["val"]`), as they are made: in this order or row-major. In place.

    forward: nodes of a joint graph, in their order. seen: those that the user's program sees as torch has planned them.
    """
    chosen: set[fx.Node] = set()
    for node in forward:
        if _lies_so(node, chosen):
            chosen.add(node)
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and node not in seen and has_fixed_sizes(value):
            node.meta["val"] = channels_last(value) if node in chosen else value.new_empty(value.shape)


def _lies_so(node: fx.Node, chosen: set[fx.Node]) -> bool:
    results = list(tensors_in(node.meta.get("val")))
    if not results or not 3 <= results[0].dim() <= 5 or not results[0].is_floating_point() or not has_fixed_sizes(results[0]):
        return False
    name = name_of(node).partition(".")[0]
    sources = [each for each in node.all_input_nodes if each in chosen]
    if node.target is operator.getitem:
        return bool(sources) and node.args[1] == 0
    is_pointwise = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags
    return name in _MAKE or (bool(sources) and (is_pointwise or name in _FOLLOW))
