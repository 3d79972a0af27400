"""Random numbers that torch's own generator draws, before our program runs: its numbers in its order, and no part of a graph waits for them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from ._partition import SYMBOLIC, is_random, name_of
from ._private import free_unbacked_symbols
from ._strides import has_fixed_sizes

# These read of their first operand only the shape, the dtype and the order of memory.
_SHAPED = {"rand_like", "randn_like", "randint_like", "normal_functional", "uniform", "exponential", "log_normal", "cauchy", "geometric", "random", "bernoulli.p"}
_WITH_OURS = {"rand", "bernoulli.p"}  # ours are for plans of a whole step, and for results whose size a program computes
_EMPTY = torch.ops.aten.empty_permuted.default
_WHY = "torch's generator draws them"


def draw_apart(graph: fx.Graph) -> None:
    """Gives such operations an empty tensor in place of their operand, so that nothing runs before them. In place."""
    numbers: dict[Any, fx.Node] = {}
    for node in [*graph.nodes]:
        if isinstance(node.meta.get("val"), torch.SymInt):
            numbers.setdefault(node.meta["val"].node.expr, node)
        if _SHAPED.isdisjoint(_names_of(node)) or free_unbacked_symbols(node.args[0].meta["val"]):
            continue
        value = torch.empty_like(node.args[0].meta["val"])
        if (order := _order_of(value)) is None:
            continue
        with graph.inserting_before(node):
            shape = [_written(graph, extent if isinstance(extent, int) else extent.node.expr, numbers) for extent in value.shape]
            if None in shape:
                continue
            empty = graph.call_function(_EMPTY, (shape, order), {"dtype": value.dtype, "device": value.device})
        empty.meta["val"] = value
        node.replace_input_with(node.args[0], empty)


def _order_of(value: torch.Tensor) -> list[int] | None:
    """Returns the order of axes in which memory is row-major; None if there is none, or if it is not that of the axes and only calls know it."""
    order = [*range(value.dim())]
    if not value.is_contiguous() and has_fixed_sizes(value):
        order.sort(key=lambda axis: -value.stride(axis))
    return order if value.permute(order).is_contiguous() else None


def _written(graph: fx.Graph, number: Any, numbers: dict[Any, fx.Node]) -> fx.Node | int | None:
    """Returns a node for a number of the graph, and for sums and products of such; None for others."""
    if isinstance(number, int) or number.is_Integer:
        return int(number)
    if number not in numbers and (number.is_Add or number.is_Mul):
        function, parts = operator.add if number.is_Add else operator.mul, [_written(graph, part, numbers) for part in number.args]
        if None in parts:
            return None
        numbers[number] = functools.reduce(lambda one, other: _call(graph, function, one, other), parts)
    return numbers.get(number)


def _call(graph: fx.Graph, function: Callable[..., Any], *arguments: Any) -> fx.Node:
    node = graph.call_function(function, arguments)
    node.meta["val"] = function(*(each.meta["val"] if isinstance(each, fx.Node) else each for each in arguments))
    return node


def drawn_first(nodes: Iterable[fx.Node], left: dict[fx.Node, str]) -> set[fx.Node]:
    """Returns the draws that read nothing that is computed but sizes, with these and their empty tensors. It adds to ``left`` those that are not there."""
    first: set[fx.Node] = set()
    sizes: dict[fx.Node, None] = {}
    for node in nodes:
        if all(each in first or each in sizes or each.op == "placeholder" for each in node.all_input_nodes):
            if node.op == "call_function" and isinstance(node.meta.get("val"), SYMBOLIC):
                sizes[node] = None
            elif _is_draw(node, left) or (node.target is _EMPTY and bool(node.users) and all(_is_draw(user, left) for user in node.users)):
                first.add(node)
    for node in reversed(sizes):
        if not first.isdisjoint(node.users):
            first.add(node)
    for node in first:
        left.setdefault(node, _WHY)
    return first


def _is_draw(node: fx.Node, left: dict[fx.Node, str]) -> bool:
    return not _WITH_OURS.isdisjoint(_names_of(node)) or (node in left and is_random(node))


def _names_of(node: fx.Node) -> tuple[str, str]:
    """Returns an operation's name with its overload, and without it."""
    name = name_of(node)
    return name, name.partition(".")[0]
