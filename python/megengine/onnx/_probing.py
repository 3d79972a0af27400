"""Finds shapes and dtypes of values by running new nodes on placeholders while a model is loaded.

An extent that a model leaves open has several sizes, one a run: a result's extent is known if it is equal in all runs that
succeed. Models compute with sizes (min(n, 512), n % 3, n // m): open extents are also small, odd, and very large one after the other.
Values of placeholders are never computed, so that no size costs memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import functional as F
from .. import fx
from ..fx.node import map_arg
from ..tensor import Tensor
from ._builder import Builder, Operand
from .functions._table import without_values

# two are multiples of 32, because networks halve images up to five times
_SIZES = (64, 96, 1, 2, 7)
_LARGE, _BESIDE, _MOST_LARGE = 2**12, 32, 4  # the first four open extents are large, once each, and the others small
_MOST_ELEMENTS = 2**28  # larger ones would make functions that compute tables of places slow
_MOST_STEPS = 512
# these loop in Python, or make tables, as long as an axis
_LOOPS = frozenset({"rnn", "gru", "lstm", "cumprod", "determinant", "split", "resize"})

_NO_DOUBLES = "does not compute float64"  # part of an error's text
Run = Mapping[str, int]  # the sizes of open extents by their names


def _extents(info: Any) -> list[int | str]:
    """The extents of an input: numbers, and names of open ones."""
    dims = enumerate(info.type.tensor_type.shape.dim)
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{info.name}/{axis}" for axis, dim in dims]


def runs_for(inputs: Iterable[Any]) -> list[Run]:
    """Returns the runs for inputs of a model, ValueInfoProtos."""
    names = list(dict.fromkeys(extent for info in inputs for extent in _extents(info) if isinstance(extent, str)))
    equal = [dict.fromkeys(names, size) for size in _SIZES]
    return [*equal, *({**dict.fromkeys(names, _BESIDE), name: _LARGE} for name in names[:_MOST_LARGE])]


class Probes:
    """Runs the nodes of a builder on the placeholders: a value for each run, None if it fails."""

    def __init__(self, builder: Builder, runs: Sequence[Run]) -> None:
        self._builder, self.runs = builder, runs
        self.unknown = Tensor(0)  # a number that nobody can read, while a recording takes it as an argument
        self.has_no_doubles = False  # whether one of the nodes that ran lacks float64
        self._values: dict[fx.Node, list[Any]] = {}
        self._last: fx.Node | None = None

    def made(self, dtype: str, info: Any) -> list[Any] | None:
        """Values for an input, a ValueInfoProto; None for impossible extents."""
        extents = _extents(info)
        if any(isinstance(extent, int) and extent < 0 for extent in extents):
            return None
        shapes = [tuple(run[extent] if isinstance(extent, str) else extent for extent in extents) for run in self.runs]
        return [self._unread(shape, dtype) if math.prod(shape) <= _MOST_ELEMENTS else None for shape in shapes]

    def _unread(self, shape: Sequence[int], dtype: Any) -> Tensor:
        return F.broadcast_to(self.unknown.astype(dtype), tuple(shape))

    # Values of a node, or of a node made from it, for a graph that takes them; None if no run has one.

    def give(self, node: fx.Node, values: list[Any] | None) -> None:
        """Makes an input with such values."""
        if values is not None:
            self._values[node] = values

    def of(self, node: fx.Node) -> list[Any] | None:
        """Returns the values of an operand."""
        self.run_new_nodes()
        return self._values.get(node)

    def element_of(self, node: fx.Node, axis: int) -> list[Any] | None:
        """Returns the slices of an operand along an axis."""
        values = self.of(node)
        return None if values is None else [self._element_of(value, axis) for value in values]

    def _element_of(self, value: Any, axis: int) -> Any:
        if value is None or not -value.ndim <= axis < value.ndim:
            return None
        shape = list(value._tuple_shape)
        del shape[axis]
        return self._unread(shape, value.dtype)

    def scalar(self, dtype: str) -> list[Any]:
        """Returns an unknown number."""
        return [self._unread((), dtype)] * len(self.runs)

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
            self._values[node] = [self._builder.attributes[str(node.target)]] * len(self.runs)
        elif all(read in self._values for read in node.all_input_nodes):
            found = [self._called(node, run) for run in range(len(self.runs))]
            if any(value is not None for value in found):
                self._values[node] = found

    def _called(self, node: fx.Node, run: int) -> Any:
        given = {read: self._values[read][run] for read in node.all_input_nodes}
        if any(value is None for value in given.values()) or _takes_long(node, given.values()):
            return None
        args, kwargs = map_arg((node.args, node.kwargs), given.__getitem__)
        try:
            if node.op == "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            function: Any = node.target
            with without_values():
                return function(*args, **kwargs)
        # it reads values, or shapes do not fit, which running the model will tell
        except Exception as error:
            if _NO_DOUBLES in str(error):
                self.has_no_doubles = True
            return None

    def describe(self, operand: Operand) -> None:
        """Notes shape and dtype with an operand, where they are known."""
        if operand.array is not None or operand.node not in self._values:
            return
        found = [value for value in self._values[operand.node] if isinstance(value, Tensor)]
        if len(found) > 1 and len({value.ndim for value in found}) == 1:
            extents = zip(*(value._tuple_shape for value in found), strict=True)
            operand.shape, operand.dtype = tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in extents), found[0].dtype.name


def _takes_long(node: fx.Node, given: Iterable[Any]) -> bool:
    shapes = [value._tuple_shape for value in given if isinstance(value, Tensor)]
    loops = getattr(node.target, "__name__", "") in _LOOPS
    return any(math.prod(shape) > _MOST_ELEMENTS or (loops and max(shape, default=0) > _MOST_STEPS) for shape in shapes)
