"""Chooses the values of a joint graph that cross from forward to backward in the order of
convolutions, (N, spatial..., C).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import fx

from ._partition import name_of, tensors_in
from ._strides import channels_last, has_fixed_sizes

_MAKE = {"convolution"}
# Operations, beside element-wise ones, whose results have the order of their first operand.
_FOLLOW = {
    "_native_batch_norm_legit_functional", "max_pool2d_with_indices", "avg_pool2d", "cat", "constant_pad_nd", "native_dropout",
}  # fmt: skip


def lay_out(forward: Iterable[fx.Node], seen: Collection[Any]) -> None:
    """Plans values that cross (`node.meta["val"]`) in the order in which they are made, this one or
    row-major; changes the graph in place.

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
