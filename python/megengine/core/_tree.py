"""Containers of tensors: lists, tuples, named tuples, dicts, slices and dataclasses, in one another.

What is computed is looked for in these by everybody but module graphs, whose arguments stay as the program wrote them (`_graph.tree`).
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..tensor import Tensor

LEAF = object()  # stands for a tensor


class Branch(NamedTuple):
    """A container of parts; what is no container and no `LEAF` is itself."""

    kind: type
    names: tuple[Any, ...] | None  # None: they are numbered
    parts: list[Any]

    def made_of(self, parts: list[Any]) -> Any:
        """A container like this one, of other parts."""
        if self.names is None:
            return self.kind(parts)
        if self.kind is slice:
            return slice(*parts)
        if issubclass(self.kind, dict):
            return self.kind(zip(self.names, parts, strict=True))
        if issubclass(self.kind, tuple):
            return self.kind._make(parts)  # type: ignore[attr-defined]
        made = object.__new__(self.kind)
        vars(made).update(zip(self.names, parts, strict=True))  # a frozen one has no other way
        return made


def branch_of(value: Any) -> Branch | None:
    """The container with its parts; None for what is none."""
    kind = type(value)
    if kind in (list, tuple):
        return Branch(kind, None, list(value))
    if kind is slice:
        return Branch(kind, ("start", "stop", "step"), [value.start, value.stop, value.step])
    if kind in (dict, OrderedDict):
        return Branch(kind, tuple(value), list(value.values()))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return Branch(kind, kind._fields, list(value))
    if dataclasses.is_dataclass(value) and hasattr(value, "__dict__"):
        return Branch(kind, tuple(vars(value)), list(vars(value).values()))
    return None


def leaves(value: Any) -> Iterator[Any]:
    """What stands in a tree, in order; lists, tuples and dicts of other classes are opened as well, as nobody makes them anew."""
    if (branch := branch_of(value)) is not None:
        parts: Any = branch.parts
    elif isinstance(value, (list, tuple, dict)):
        parts = value.values() if isinstance(value, dict) else value
    else:
        yield value
        return
    for part in parts:
        yield from leaves(part)


def flatten(value: Any, found: list[Tensor]) -> Any:
    """The shape of a tree: tensors are collected and replaced by `LEAF`, all else is kept."""
    if isinstance(value, Tensor):
        found.append(value)
        return LEAF
    if (branch := branch_of(value)) is None:
        return value
    return branch._replace(parts=[flatten(part, found) for part in branch.parts])


def unflatten(tree: Any, tensors: Iterator[Any]) -> Any:
    """The tree with the next tensors in place of each `LEAF`."""
    if tree is LEAF:
        return next(tensors)
    if type(tree) is Branch:
        return tree.made_of([unflatten(part, tensors) for part in tree.parts])
    return tree
