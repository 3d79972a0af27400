"""A training graph whose sizes change, under a limit: for each combination of sizes, forward and
backward are cut and planned before forward runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from ._compiled import Compiled
from ._partition import SYMBOLIC, tensors_in
from ._private import FakeTensorMode, free_symbols

Pair = tuple[fx.GraphModule, fx.GraphModule]
Place = tuple[int, int | None, Any]  # an argument, its axis, the symbol that has its number


class Planned:
    """Forward and backward that were cut and planned together."""

    def __init__(self, pair: tuple[Compiled, Compiled], count: int) -> None:
        """count: the number of forward's results that backward is not given."""
        self.forward, self.backward = forward, _ = pair
        self.count = count
        results = forward.graph.graph.output_node().args[0]
        places = {node: place for place, node in enumerate(forward.graph.graph.find_nodes(op="placeholder"))}
        self.crossing = len(results) - count
        self.saved = [places[node] for node in results[count:] if node in places]  # arguments that backward is given
        own = dict.fromkeys(node for node in results[count:] if isinstance(node, fx.Node) and node not in places)
        self.keeps = sum(forward.bytes_of(node) for node in own)
        self.number = 0  # among those of other sizes
        self.numbers: list[Any] = []  # those that torch keeps for backward


class Alone:
    """Programs of a graph without a backward, by the sizes of a call."""

    def __init__(self, graph: fx.GraphModule, compiled: Callable[[fx.GraphModule], Compiled]) -> None:
        self._graph, self._compiled, self._places = graph, compiled, _places_of(graph)
        self._of_size: dict[tuple[int, ...], Compiled] = {}

    def __call__(self, arguments: list[Any], beside: int) -> list[Any]:
        sizes = _sizes_of(arguments, self._places)
        if sizes not in self._of_size:
            self._of_size[sizes] = self._compiled(_with_numbers(self._graph, _known(self._places, sizes)))
        return self._of_size[sizes](arguments, beside)


class Sizes:
    """The programs of a graph, by the sizes of a call.

    The number of values that cross differs from size to size, but torch takes a graph with a fixed
    number of results. So torch sees a graph with a slot for each value, of which a call leaves some
    empty; one more slot has the number of the pair, for backward.

    joint: all its symbols are known by arguments of forward (`are_known_by_call`). count: the
    number of forward's results that are no slots. cut: of a
    joint graph whose sizes are numbers; may raise MemoryError.
    """

    def __init__(self, joint: fx.GraphModule, count: int, cut: Callable[[fx.GraphModule], Planned]) -> None:
        self._joint, self._count, self._cut = joint, count, cut
        self._places = _places_of(joint)
        self._slots = sum(1 for node in joint.graph.nodes for _ in tensors_in(node.meta.get("val")))
        self._kept_numbers: list[Any] = []  # symbols of the kept numbers
        self._empty = torch.empty(0)
        self._pairs: dict[tuple[int, ...], Planned] = {}
        self._of_size: list[Planned] = []

    def shown(self, pair: Pair) -> Pair:
        """Changes a pair that torch has cut into graphs that torch takes, in place."""
        forward, backward = pair
        output = forward.graph.output_node()
        seen, kept = output.args[0][: self._count], output.args[0][self._count :]
        # numbers come last, and first in backward
        numbers = [each for each in kept if isinstance(each.meta["val"], SYMBOLIC)]
        self._kept_numbers = [each.meta["val"] for each in numbers]
        value = next(iter(tensors_in([node.meta.get("val") for node in self._joint.graph.nodes]))).new_empty((), dtype=torch.int64)
        with forward.graph.inserting_before(output):
            slot = forward.graph.call_function(torch.ops.aten.full.default, ([], 0), {"dtype": torch.int64})
        slot.meta["val"] = value
        output.args = ([*seen, *[slot] * (1 + self._slots), *numbers],)
        with backward.graph.inserting_before(backward.graph.find_nodes(op="placeholder")[len(numbers)]):
            for number in range(1 + self._slots - (len(kept) - len(numbers))):
                backward.graph.placeholder(f"megjit_slot_{number}").meta["val"] = value
        forward.recompile()
        backward.recompile()
        return pair

    def planned(self, arguments: list[Any]) -> Planned:
        """The plan for a call's sizes. MemoryError, before anything runs, if forward or backward cannot keep the limit with them."""
        sizes = _sizes_of(arguments, self._places)
        if sizes not in self._pairs:
            known = _known(self._places, sizes)
            made = self._cut(_with_numbers(self._joint, known))
            made.number, made.numbers = len(self._of_size), [_number(each, known) for each in self._kept_numbers]
            self._of_size.append(made)
            self._pairs[sizes] = made
        return self._pairs[sizes]

    def filled(self, own: Planned, results: list[Any]) -> list[Any]:
        """Returns the results of a call in the form that torch was shown."""
        empty = [self._empty] * (self._slots - own.crossing)
        return [*results[: self._count], torch.tensor(own.number), *results[self._count :], *empty, *own.numbers]

    def backward(self, arguments: list[Any], beside: int) -> list[Any]:
        first = len(self._kept_numbers)
        own = self._of_size[int(arguments[first])]
        given = [*arguments[first + 1 : first + 1 + own.crossing], *arguments[first + 1 + self._slots :]]
        arguments.clear()
        return own.backward(given, beside)


def _sizes_of(arguments: Sequence[Any], places: Sequence[Place]) -> tuple[int, ...]:
    return tuple(arguments[place] if axis is None else arguments[place].shape[axis] for place, axis, _ in places)


def _known(places: Sequence[Place], sizes: Sequence[int]) -> dict[Any, int]:
    return {symbol: number for (_, _, symbol), number in zip(places, sizes, strict=True)}


def are_known_by_call(joint: fx.GraphModule) -> bool:
    """Whether all symbols of a graph are numbers or extents among the arguments of its forward."""
    known = {symbol for _, _, symbol in _places_of(joint)}
    values = (each for node in joint.graph.nodes for each in _pytree.tree_leaves(node.meta.get("val")) if isinstance(each, (torch.Tensor, *SYMBOLIC)))
    return all(known.issuperset(free_symbols(each)) for each in values)


def _places_of(joint: fx.GraphModule) -> list[Place]:
    """Returns for each symbol the argument of forward, and its axis, that holds its number."""
    found: dict[Any, Place] = {}
    inputs = [node for node in joint.graph.find_nodes(op="placeholder") if "tangents" not in node.name]
    for place, node in enumerate(inputs):
        value = node.meta.get("val")
        extents = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
        for axis, extent in extents:
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_symbol:
                found.setdefault(extent.node.expr, (place, axis, extent.node.expr))
    return list(found.values())


def _number(value: Any, known: dict[Any, int]) -> Any:
    if not isinstance(value, SYMBOLIC):
        return value
    kind = int if isinstance(value, torch.SymInt) else float if isinstance(value, torch.SymFloat) else bool
    return kind(value.node.expr.xreplace(known))


def _with_numbers(joint: fx.GraphModule, known: dict[Any, int]) -> fx.GraphModule:
    """Returns a copy of a graph in which symbols are plain numbers."""

    def settled(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            extents, steps = ([_number(each, known) for each in sizes] for sizes in (value.shape, value.stride()))
            return torch.empty_strided(extents, steps, dtype=value.dtype, device=value.device)
        return _number(value, known)

    graph, copies = fx.Graph(), dict[fx.Node, Any]()
    with FakeTensorMode():
        for node in joint.graph.nodes:
            value = node.meta.get("val")
            number = settled(value) if isinstance(value, SYMBOLIC) else None
            if number is not None and node.op != "placeholder":
                copies[node] = number
                continue
            copy = graph.node_copy(node, copies.__getitem__)
            copies[node] = copy if number is None else number
            if "val" in node.meta and node.op != "get_attr":
                copy.meta["val"] = _pytree.tree_map(settled, value)
    return fx.GraphModule(joint, graph)
