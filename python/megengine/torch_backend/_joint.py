"""Rewrites of the joint graph of forward and backward before it is cut."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from ._partition import is_random, parts_of_result

aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def prepare(joint: fx.GraphModule) -> None:
    """Rewrites a joint graph in place so that less crosses: max pooling's gradient finds the maxima
    again, dropout keeps only its mask, batch norm no running statistics.
    """
    graph = joint.graph
    for node in graph.find_nodes(op="call_function", target=aten._native_batch_norm_legit_functional.default):
        _keep_statistics_wide(node)
    for node in graph.find_nodes(op="call_function", target=aten.native_batch_norm_backward.default):
        if node.args[7]:  # training: they are not read, and their owner changes them
            node.args = (*node.args[:3], None, None, *node.args[5:])
    for rank, target in ((2, aten.max_pool2d_with_indices_backward.default), (3, aten.max_pool3d_with_indices_backward.default)):
        for node in graph.find_nodes(op="call_function", target=target):
            if _pools_plainly(node, rank):
                _forget_places(graph, node)
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        if node.args[1] < 1 and node.args[2] is not False:
            _multiply_by_what_is_kept(graph, node)
    for node in graph.nodes:
        if is_random(node):
            _keep_what_is_drawn(node)
    graph.eliminate_dead_code()
    joint.recompile()


def _keep_what_is_drawn(node: fx.Node) -> None:
    """Keeps random draws that `torch.utils.checkpoint` marks to be computed again, as torch would
    draw them again with its own generator.
    """
    for each in (node, *parts_of_result(node)):
        if "recompute" in each.meta:
            each.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def separate_statistics(joint: fx.GraphModule) -> None:
    """Lets backward normalize a batch again without the running statistics, which forward's caller has changed by then. In place.

    One operation gives the result and its statistics, another the new running statistics; in one
    program they become one again.
    """
    graph = joint.graph
    for node in graph.find_nodes(op="call_function", target=aten._native_batch_norm_legit_functional.default):
        normalized = [result for result in node.users if result.args[1] < 3]
        if node.args[5] and normalized:
            with graph.inserting_before(node):
                none = [_filled(graph, each) for each in node.args[3:5]]
                alone = graph.call_function(node.target, (*node.args[:3], *none, *node.args[5:]))
            alone.meta.update(node.meta)
            for result in normalized:
                result.replace_input_with(node, alone)
    joint.recompile()


def _filled(graph: fx.Graph, like: Any) -> fx.Node:
    value = like.meta["val"]
    node = graph.call_function(aten.full.default, (list(value.shape), 1), {"dtype": value.dtype})
    node.meta["val"] = value.new_ones(value.shape)
    return node


def _keep_statistics_wide(node: fx.Node) -> None:
    """Lets mean and deviation of halves cross in float32, as in eager mode, if only its gradient reads them."""
    results = list(node.meta["val"])
    if results[0].dtype is torch.float64:
        return
    for user in node.users:
        if user.args[1] in (1, 2) and all(each.target is aten.native_batch_norm_backward.default for each in user.users):
            results[user.args[1]] = user.meta["val"] = user.meta["val"].float()
    node.meta["val"] = tuple(results)


def _pools_plainly(node: fx.Node, rank: int) -> bool:
    x, dilation = node.args[1], node.args[5]
    value = x.meta["val"]
    return set(dilation) == {1} and value.dim() == rank + 2 and value.dtype in _FLOATS and value.device.type in ("cpu", "cuda") and value.numel() > 0


def _forget_places(graph: fx.Graph, node: fx.Node) -> None:
    """Drops places that backward finds again."""
    places: Any = node.args[-1]
    with graph.inserting_before(node):
        none = graph.call_function(aten.full.default, ([0], 0), {"dtype": torch.int64})
    none.meta["val"] = places.meta["val"].new_zeros([0])
    node.replace_input_with(places, none)


def _multiply_by_what_is_kept(graph: fx.Graph, node: fx.Node) -> None:
    x, p = node.args[:2]
    kept = next((user for user in node.users if user.args[1] == 1), None)
    for result in [user for user in node.users if user.args[1] == 0]:
        with graph.inserting_before(result):
            if kept is None:
                kept = graph.call_function(result.target, (node, 1))
                kept.meta.update(result.meta, val=node.meta["val"][1])
        with graph.inserting_after(kept):
            product = graph.call_function(aten.mul.Tensor, (x, kept))
        with graph.inserting_after(product):
            scaled = graph.call_function(aten.mul.Scalar, (product, 1 / (1 - p)))
        for each in (product, scaled):
            each.meta.update(result.meta)
        result.replace_all_uses_with(scaled)
