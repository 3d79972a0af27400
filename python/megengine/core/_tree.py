"""Containers of tensors: lists, tuples, named tuples, dicts, slices and dataclasses, in one another.

All look for tensors in these: traces, guards, batches and module graphs, whose arguments may be
containers of other
classes (`_graph.tree`). `traced_module.pytree` adds classes that programs register.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..tensor import Tensor

LEAF = object()  # stands for a tensor
# class of a container -> class of its copies
PLAIN: dict[type, type] = {list: list, tuple: tuple, dict: dict}


class Branch(NamedTuple):
    """A container of parts. Other values stand for themselves, and `LEAF` for a tensor."""

    kind: type
    names: tuple[Any, ...] | None  # None: they are numbered
    parts: list[Any]

    def named(self, path: str) -> list[str]:
        """Returns the Python expressions of the parts of a container whose own expression is
        ``path``.
        """
        if self.names is None:
            return [f"{path}[{number}]" for number in range(len(self.parts))]
        if issubclass(self.kind, dict):
            return [f"{path}[{name!r}]" for name in self.names]
        return [f"{path}.{name}" for name in self.names]

    def made_of(self, parts: list[Any]) -> Any:
        """A container like this one, of other parts."""
        if self.kind is slice:
            return slice(*parts)
        if issubclass(self.kind, tuple) and hasattr(self.kind, "_fields"):
            return self.kind._make(parts)  # type: ignore[attr-defined]
        if self.names is None:
            return self.kind(parts)
        if issubclass(self.kind, dict):
            return self.kind(zip(self.names, parts, strict=True))
        made = object.__new__(self.kind)
        vars(made).update(zip(self.names, parts, strict=True))  # a frozen one has no other way
        return made


def branch_of(value: Any) -> Branch | None:
    """Returns a container with its parts; None for other values."""
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


def opened(value: Any) -> Branch | None:
    """Opens what `branch_of` opens and lists, tuples and dicts of other classes, for callers that
    only read.
    """
    if (branch := branch_of(value)) is not None:
        return branch
    if isinstance(value, dict):
        return Branch(type(value), tuple(value), list(value.values()))
    return Branch(type(value), None, list(value)) if isinstance(value, (list, tuple)) else None


Opener = Callable[[Any], Branch | None]  # opens a container; None for a leaf


def leaves(value: Any, branch_of: Opener = opened) -> Iterator[Any]:
    """Iterates over the leaves of a tree, in order."""
    kind, parts = PLAIN.get(type(value)), value
    if kind is dict:
        parts = value.values()
    elif kind is None:
        if (branch := branch_of(value)) is None:
            yield value
            return
        parts = branch.parts
    for part in parts:
        yield from leaves(part, branch_of)


def mapped(value: Any, each: Callable[[Any], Any], branch_of: Opener = branch_of, kinds: dict[type, type] = PLAIN) -> Any:
    """A tree like ``value`` with ``each(leaf)`` in the place of each leaf; ``kinds`` are those of its containers."""
    kind: Any = kinds.get(type(value))
    if kind is None:
        if (branch := branch_of(value)) is None:
            return each(value)
        branch = branch._replace(kind=kinds.get(branch.kind, branch.kind))
        return branch.made_of([mapped(part, each, branch_of, kinds) for part in branch.parts])
    if issubclass(kind, dict):
        return kind({name: mapped(part, each, branch_of, kinds) for name, part in value.items()})
    return kind([mapped(part, each, branch_of, kinds) for part in value])


def flatten(value: Any, found: list[Tensor], seen: dict[int, Branch] | None = None) -> Any:
    """Returns the shape of a tree: tensors are collected and replaced by `LEAF`, all else is kept.

    seen: if given, a container that stands in several places becomes one `Branch`, whose tensors
    are collected once.
    """
    if isinstance(value, Tensor):
        found.append(value)
        return LEAF
    if seen is not None and id(value) in seen:
        return seen[id(value)]
    if (branch := branch_of(value)) is None:
        return value
    made = branch._replace(parts=[flatten(part, found, seen) for part in branch.parts])
    if seen is not None:
        seen[id(value)] = made
    return made


def unflatten(tree: Any, tensors: Iterator[Any], made: dict[int, Any] | None = None) -> Any:
    """The tree with the next tensors in place of each `LEAF`. made: where `flatten` had ``seen``."""
    if tree is LEAF:
        return next(tensors)
    if type(tree) is not Branch:
        return tree
    if made is not None and id(tree) in made:
        return made[id(tree)]
    value = tree.made_of([unflatten(part, tensors, made) for part in tree.parts])
    if made is not None:
        made[id(tree)] = value
    return value
