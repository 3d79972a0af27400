"""Random numbers that torch's own generator draws, before our program runs: its numbers in its order, and no part of a graph waits for them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from ._partition import is_random, name_of
from ._strides import has_fixed_sizes

# These read of their first operand only the shape, the dtype and the order of memory.
_SHAPED = {"rand_like", "randn_like", "randint_like", "normal_functional", "uniform", "exponential", "log_normal", "cauchy", "geometric", "random", "bernoulli.p"}
_WITH_OURS = {"rand", "bernoulli.p"}  # ours are for plans of a whole step, and for results whose size a program computes
_WHY = "torch's generator draws them"


def draw_apart(graph: fx.Graph) -> None:
    """Gives such operations an empty tensor in place of their operand, so that nothing runs before them. In place."""
    for node in [*graph.nodes]:
        if _SHAPED.isdisjoint(_names_of(node)):
            continue
        value = node.args[0].meta["val"]
        if has_fixed_sizes(value) and value.is_contiguous():
            with graph.inserting_before(node):
                empty = graph.call_function(torch.ops.aten.empty.memory_format, (list(value.shape),), {"dtype": value.dtype, "device": value.device})
            empty.meta["val"] = value
            node.replace_input_with(node.args[0], empty)


def drawn_first(nodes: Iterable[fx.Node], left: dict[fx.Node, str]) -> set[fx.Node]:
    """Returns the draws that read nothing that is computed, with their empty tensors. It adds to ``left`` those that are not there."""
    first: set[fx.Node] = set()
    for node in nodes:
        is_draw = _is_draw(node, left) or (name_of(node) == "empty.memory_format" and bool(node.users) and all(_is_draw(user, left) for user in node.users))
        if is_draw and all(each in first or each.op == "placeholder" for each in node.all_input_nodes):
            first.add(node)
            left.setdefault(node, _WHY)
    return first


def _is_draw(node: fx.Node, left: dict[fx.Node, str]) -> bool:
    return not _WITH_OURS.isdisjoint(_names_of(node)) or (node in left and is_random(node))


def _names_of(node: fx.Node) -> tuple[str, str]:
    """Returns an operation's name with its overload, and without it."""
    name = name_of(node)
    return name, name.partition(".")[0]
