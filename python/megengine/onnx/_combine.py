"""Rewrites a recording before it is written: several of our ops may be one of ONNX's, or none.

Each rule looks at one node and those that make its operands, and gives the node that stands for them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from ._recorded import Node, Recording


class Makers:
    """Tells which node makes a value, and whether only one node reads it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._makers = {value: node for node in recording.nodes for value in node.outputs}
        self._uses = Counter(value for node in recording.nodes for value in node.inputs)
        self._uses.update(recording.outputs)

    def only(self, value: int, op: str) -> Node | None:
        """The node that makes ``value`` if it is such an op and nothing else reads it."""
        node = self._makers.get(value)
        return node if node is not None and node.op == op and self._uses[value] == 1 else None

    def shape(self, value: int) -> tuple[int, ...]:
        return self.recording.types[value][1]

    def array(self, value: int) -> np.ndarray | None:
        """Returns the array of a constant; None for a value that is computed."""
        if value in self.recording.constants:
            return self.recording.constants[value].numpy()
        node = self._makers.get(value)
        if node is None or node.op != "full" or not all(isinstance(extent, int) for extent in self.shape(value)):
            return None
        return np.full(self.shape(value), node.attrs["value"], self.recording.types[value][0])

    def number(self, value: int) -> float | None:
        """A constant of one element as a number."""
        array = self.array(value)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def replace(self, old: Node, new: Node) -> None:
        """Gives ``new`` the results of ``old``."""
        self._makers.update(dict.fromkeys(new.outputs, new))
        self._uses.subtract(old.inputs)
        self._uses.update(new.inputs)


Rule = Callable[[Makers, Node], Node | None]
RULES: dict[str, list[Rule]] = {}  # op of the last node -> its rules


def rule(op: str) -> Callable[[Rule], Rule]:
    """Puts a rule into the table."""

    def put(function: Rule) -> Rule:
        RULES.setdefault(op, []).append(function)
        return function

    return put


@rule("add")
def _biased(makers: Makers, add: Node) -> Node | None:
    """Joins a convolution or a product of two matrices with the addition of a bias along its
    channels or columns.
    """
    for product, bias in (add.inputs, add.inputs[::-1]):
        if bias not in makers.recording.constants or makers.shape(product) != makers.shape(add.outputs[0]):
            continue
        shape, found = makers.shape(product), makers.shape(bias)
        conv, matmul = makers.only(product, "conv"), makers.only(product, "matmul")
        maker = conv or matmul
        fits = conv and found == (1, shape[1]) + (1,) * (len(shape) - 2)
        fits = fits or (matmul and found == shape[-1:] and all(len(makers.shape(x)) == 2 for x in matmul.inputs))
        if fits and maker and len(maker.inputs) == 2:
            vector = makers.recording.as_vector(bias)
            return Node(maker.op, maker.attrs, (*maker.inputs, vector), add.outputs, add.line)
    return None


def _give_constants(recording: Recording, node: Node) -> None:
    """Copies constants that the graphs of a node read from outside into these graphs, where rules
    look for constants.
    """
    given = [place for place in range(node.own_inputs, len(node.inputs)) if node.inputs[place] in recording.constants]
    for held in node.graphs:
        before = len(node.inputs) - len(held.inputs)  # cond's graphs do not take its condition
        for place in given:
            outside, inside = node.inputs[place], held.inputs[place - before]
            held.constants[inside], held.names[inside] = recording.constants[outside], recording.names[outside]
            if outside in recording.scales:
                held.scales[inside] = recording.scales[outside]
        held.inputs = [value for place, value in enumerate(held.inputs, before) if place not in given]
    node.inputs = tuple(value for place, value in enumerate(node.inputs) if place not in given)


def _without_idle_nodes(recording: Recording) -> None:
    """Drops casts, reshapes and the like that give what they get."""
    same: dict[int, int] = {}
    kept = []
    for node in recording.nodes:
        node.inputs = tuple(same.get(value, value) for value in node.inputs)
        idle = node.op in ("cast", "reshape", "broadcast_to", "identity")
        if idle and recording.types[node.inputs[0]] == recording.types[node.outputs[0]]:
            same[node.outputs[0]] = node.inputs[0]
        else:
            kept.append(node)
    recording.nodes = kept
    recording.outputs = [same.get(value, value) for value in recording.outputs]


def _without_unused_nodes(recording: Recording) -> None:
    needed, kept = set(recording.outputs), []
    for node in reversed(recording.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    recording.nodes = kept[::-1]


def combine(recording: Recording) -> None:
    """Applies the rules to ``recording`` and the graphs in it, and drops what nothing reads any more."""
    for node in recording.nodes:
        if node.graphs:
            _give_constants(recording, node)
            for held in node.graphs:
                combine(held)
    _without_idle_nodes(recording)
    makers = Makers(recording)
    for place, node in enumerate(recording.nodes):
        made = next((found for test in RULES.get(node.op, ()) if (found := test(makers, node))), None)
        if made is not None:
            makers.replace(node, made)
            recording.nodes[place] = made
    _without_unused_nodes(recording)
