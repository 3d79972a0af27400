"""Random numbers that torch's own generator draws, before our program runs: its numbers in its order, and no part of a graph waits for them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from ._partition import is_random, name_of
from ._strides import has_fixed_sizes

# These read of their first operand only the shape, the dtype and the order of memory.
_SHAPED = {"rand_like", "randn_like", "randint_like", "normal_functional", "uniform", "exponential", "log_normal", "cauchy", "geometric", "random"}
_WHY = "torch's generator draws them"


def draw_apart(graph: fx.Graph) -> None:
    """Gives such operations an empty tensor in place of their operand, so that nothing runs before them. In place."""
    for node in [*graph.nodes]:
        if name_of(node).partition(".")[0] not in _SHAPED:
            continue
        value = node.args[0].meta["val"]
        if has_fixed_sizes(value) and value.is_contiguous():
            with graph.inserting_before(node):
                empty = graph.call_function(torch.ops.aten.empty.memory_format, (list(value.shape),), {"dtype": value.dtype, "device": value.device})
            empty.meta["val"] = value
            node.replace_input_with(node.args[0], empty)


def drawn_first(nodes: Iterable[fx.Node], left: dict[fx.Node, str]) -> set[fx.Node]:
    """Returns the draws left to torch that read nothing that is computed, with their empty tensors, which it adds to ``left``."""
    first: set[fx.Node] = set()
    for node in nodes:
        if _is_for_draws(node, left):
            left[node] = _WHY
        elif node not in left or not is_random(node):
            continue
        if all(each in first or each.op == "placeholder" for each in node.all_input_nodes):
            first.add(node)
    return first


def _is_for_draws(node: fx.Node, left: dict[fx.Node, str]) -> bool:
    return name_of(node) == "empty.memory_format" and bool(node.users) and all(user in left and is_random(user) for user in node.users)
