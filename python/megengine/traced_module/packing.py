"""Takes trees of arguments and results in a graph apart, gives them values, and prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._graph.tree import opened, tree_text
from ..core._tree import mapped
from .node import Node
from .pytree import SUPPORTED_TYPE, TreeDef, tree_flatten

if TYPE_CHECKING:
    from .expr import Expr

_NATIVE = (list, tuple, dict, slice)


class Packed(NamedTuple):
    """A container that the graph cannot look into, taken apart: its arrangement and its leaves."""

    tree: TreeDef
    leaves: tuple[Any, ...]


def _is_whole(tree: object) -> bool:
    return type(tree) in SUPPORTED_TYPE and type(tree) not in _NATIVE


def pack(tree: object) -> Any:
    """Returns ``tree`` with registered containers taken apart, so that the graph sees their nodes.
    """

    def packed(leaf: Any) -> Any:
        if not _is_whole(leaf):
            return leaf
        leaves, arrangement = tree_flatten(leaf)
        return Packed(arrangement, tuple(leaves))

    return mapped(tree, packed, lambda part: None if _is_whole(part) else opened(part))


def unpack(tree: object, value_of: Callable[[Any], Any] = lambda node: node) -> Any:
    """Undoes `pack`: returns ``tree`` with whole containers, and ``value_of(node)`` in place of
    each node.
    """

    def whole(leaf: Any) -> Any:
        if isinstance(leaf, Packed):
            return leaf.tree.unflatten([unpack(part, value_of) for part in leaf.leaves])
        return value_of(leaf) if isinstance(leaf, Node) else leaf

    return mapped(tree, whole, lambda part: None if isinstance(part, Packed) else opened(part))


def _pairs(pattern: object, value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Pairs the parts of a container with those of ``value``; None if ``value`` has other parts."""
    if isinstance(pattern, Packed):
        leaves, arrangement = tree_flatten(value)
        return zip(pattern.leaves, leaves, strict=True) if arrangement == pattern.tree else None
    if isinstance(pattern, (tuple, list)):
        fits = isinstance(value, (tuple, list)) and len(value) == len(pattern)
        return zip(pattern, value, strict=True) if fits else None
    if isinstance(pattern, dict):
        fits = isinstance(value, dict) and pattern.keys() == value.keys()
        return ((inner, value[key]) for key, inner in pattern.items()) if fits else None
    return ()  # a constant


def bind(pattern: object, value: object, env: dict[Node, Any], expr: Expr) -> None:
    """Gives the nodes of ``pattern`` the values in their places."""
    if isinstance(pattern, Node):
        env[pattern] = value
        return
    pairs = _pairs(pattern, value)
    if pairs is None:
        raise ValueError(
            f"{expr.describe()} gave {type(value).__name__} of another arrangement than while tracing\n"
            "  fix: trace again with such inputs"
        )
    for inner, item in pairs:
        bind(inner, item, env, expr)


def show(tree: object, spec: str = "") -> str:
    return tree_text(tree, lambda leaf: _leaf_text(leaf, spec))


def _leaf_text(leaf: Any, spec: str) -> str:
    if isinstance(leaf, Node):
        return format(leaf, spec)
    if isinstance(leaf, np.ndarray):
        return f"array{leaf.shape}"
    if callable(leaf) and hasattr(leaf, "__qualname__"):
        return leaf.__qualname__
    return repr(leaf)
