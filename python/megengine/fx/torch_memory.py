"""Writes in place of a torch program as new values: which values share memory, and which are read
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Operators that return a view of their first argument's memory, or may do so.
VIEWS = frozenset(
    ("view", "_unsafe_view", "reshape", "view_as", "reshape_as", "flatten", "unflatten", "transpose", "swapaxes",
     "swapdims", "t", "permute", "movedim", "moveaxis", "unsqueeze", "squeeze", "expand", "expand_as", "broadcast_to",
     "select", "slice", "narrow", "chunk", "split", "split_with_sizes", "unbind", "getitem", "getattr", "detach",
     "contiguous", "to", "alias", "mT", "numpy_T", "meshgrid", "float", "double", "half", "bfloat16", "int", "long",
     "short", "bool", "type_as", "cpu", "cuda", "requires_grad", "dropout", "dropout1d", "dropout2d", "dropout3d", "Flatten", "Unflatten", "Identity", "Dropout", "Dropout1d", "Dropout2d",
     "Dropout3d")
)  # fmt: skip
_COUNTS = ("size", "sym_size", "dim", "numel")


class Memory:
    """Groups of nodes of a torch graph whose values share memory."""

    def __init__(self, nodes: Any) -> None:
        self._places = {node: place for place, node in enumerate(nodes)}
        self._groups: dict[Any, set[Any]] = {}
        self._numbers: set[Any] = (
            set()
        )  # nodes whose values are Python's numbers, or tuples of them

    def note(self, node: Any, name: str, source: object, inputs: Sequence[object]) -> None:
        """Notes that ``node`` applied ``name`` to ``source`` (a node or None) and others."""
        is_shape = name == "getattr" and node.args[1] in ("shape", "ndim")
        if name in _COUNTS or is_shape or (inputs and self._numbers.issuperset(inputs)):
            self._numbers.add(node)
        elif name in VIEWS and source is not None:
            self._join(node, source)

    def is_number(self, node: object) -> bool:
        """Whether the value is a number, which no operator writes in place."""
        return node in self._numbers

    def written(self, node: object, source: object) -> Iterator[tuple[Any, bool]]:
        """Iterates over (other node, whether it is read later) for all that share the memory that
        ``node`` writes, source included.
        """
        self._join(node, source)
        for other in self._groups[source] - {node}:
            yield other, any(self._places[user] > self._places[node] for user in other.users)

    def _join(self, node: Any, source: Any) -> None:
        group = self._groups.setdefault(source, {source})
        group.add(node)
        self._groups[node] = group
