"""Shapes and dtypes of values, by running the new nodes on placeholders while a model is loaded.

An extent that a model leaves open has one size in the first run and another in the second: what is equal in both is known.
Values of placeholders are never computed, so that no size costs memory.
"""

from __future__ import annotations

import math
from typing import Any

from .. import functional as F
from .. import fx
from ..fx.node import map_arg
from ..tensor import Tensor
from ._builder import Builder, Operand

_SIZES = (64, 96)  # multiples of 32: networks halve their images up to five times
_MOST_ELEMENTS = 2**28  # functions that lay out places of a larger tensor would take long
_MOST_STEPS = 512
_LOOPS = frozenset({"rnn", "gru", "lstm", "cumprod", "determinant", "split"})  # of Python, as long as an axis



class Probes:
    """What the nodes of a builder give for the placeholders; nodes that cannot be run have nothing."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._values: dict[fx.Node, list[Any]] = {}
        self._last: fx.Node | None = None

    @staticmethod
    def made(dtype: str, dims: Any) -> list[Any] | None:
        """Values for an input with the extents of a TensorShapeProto; None for one that is too large."""
        extents = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
        shapes = [tuple(size if extent is None else extent for extent in extents) for size in _SIZES]
        if min(shapes[0], default=0) < 0 or max(map(math.prod, shapes)) > _MOST_ELEMENTS:
            return None
        return [F.zeros(shape, dtype=dtype) for shape in shapes]

    # Values of a node, or of what is made of it, for a graph that takes them; None where they are not known.

    def give(self, node: fx.Node, values: list[Any] | None) -> None:
        """An input with such values."""
        if values is not None:
            self._values[node] = values

    def of(self, node: fx.Node) -> list[Any] | None:
        """Its values."""
        self.run_new_nodes()
        return self._values.get(node)

    def element_of(self, node: fx.Node, axis: int) -> list[Any] | None:
        """Its slices along an axis."""
        values = self.of(node)
        if values is None or any(not -value.ndim <= axis < value.ndim for value in values):
            return None
        shapes = [list(value._tuple_shape) for value in values]
        for shape in shapes:
            del shape[axis]
        return [F.zeros(shape, dtype=value.dtype) for shape, value in zip(shapes, values, strict=True)]

    def scalar(self, dtype: str) -> list[Any]:
        """A number that is not known."""
        return [F.zeros((), dtype=dtype)] * len(_SIZES)

    def run_new_nodes(self) -> None:
        """Runs the nodes that were made since the last call."""
        graph = self._builder.graph
        node = graph.following(self._last) if self._last is not None else graph.first
        while node is not None:
            if node not in self._values and node.op != "placeholder":
                self._run(node)
            self._last, node = node, graph.following(node)

    def _run(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            self._values[node] = [self._builder.attributes[str(node.target)]] * len(_SIZES)
        elif all(read in self._values for read in node.all_input_nodes) and not self._takes_long(node):
            try:
                self._values[node] = [self._called(node, run) for run in range(len(_SIZES))]
            except Exception:  # it reads values, or does not fit: running the model tells
                return

    def _takes_long(self, node: fx.Node) -> bool:
        shapes = [value._tuple_shape for read in node.all_input_nodes for value in self._values[read] if isinstance(value, Tensor)]
        loops = getattr(node.target, "__name__", "") in _LOOPS
        return any(math.prod(shape) > _MOST_ELEMENTS or (loops and max(shape, default=0) > _MOST_STEPS) for shape in shapes)

    def _called(self, node: fx.Node, run: int) -> Any:
        args, kwargs = map_arg((node.args, node.kwargs), lambda read: self._values[read][run])
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        function: Any = node.target
        return function(*args, **kwargs)

    def describe(self, operand: Operand) -> None:
        """Notes shape and dtype with an operand, where they are known."""
        if operand.array is not None or operand.node not in self._values:
            return
        first, second = self._values[operand.node]
        if isinstance(first, Tensor) and isinstance(second, Tensor) and first.ndim == second.ndim:
            pairs = zip(first._tuple_shape, second._tuple_shape, strict=True)
            operand.shape, operand.dtype = tuple(a if a == b else None for a, b in pairs), first.dtype.name
