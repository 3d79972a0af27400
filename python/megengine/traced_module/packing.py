"""Trees of arguments and results in a graph: taken apart, given values, printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._graph.tree import rebuild, tree_text
from .node import Node
from .pytree import SUPPORTED_TYPE, TreeDef, tree_flatten

if TYPE_CHECKING:
    from .expr import Expr

_NATIVE = (list, tuple, dict, slice)


class Packed(tuple[Any, ...]):
    """A container that the graph cannot look into, taken apart: its arrangement and its leaves."""

    _fields = ("tree", "leaves")

    def __new__(cls, tree: TreeDef, leaves: Sequence[Any]) -> Packed:
        return super().__new__(cls, (tree, leaves))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


def pack(tree: object) -> Any:
    """``tree`` with registered containers taken apart, so that the nodes in them are seen."""
    kind = type(tree)
    if kind in _NATIVE:
        return rebuild(tree, pack, list, dict)
    if kind in SUPPORTED_TYPE:
        leaves, arrangement = tree_flatten(tree)
        return Packed(arrangement, tuple(leaves))
    return tree


def unpack(tree: object) -> Any:
    """The containers that `pack` took apart, whole again."""
    if isinstance(tree, Packed):
        return tree[0].unflatten([unpack(leaf) for leaf in tree[1]])
    return rebuild(tree, unpack, list, dict)


def bind(pattern: object, value: object, env: dict[Node, Any], expr: Expr) -> None:
    """Give the nodes of ``pattern`` the values that stand in their places."""
    if isinstance(pattern, Node):
        env[pattern] = value
        return
    if isinstance(pattern, Packed):
        leaves, arrangement = tree_flatten(value)
        if len(leaves) == len(pattern[1]) and arrangement == pattern[0]:
            return bind(tuple(pattern[1]), tuple(leaves), env, expr)
    elif isinstance(pattern, (tuple, list)):
        if isinstance(value, (tuple, list)) and len(value) == len(pattern):
            for inner, item in zip(pattern, value, strict=True):
                bind(inner, item, env, expr)
            return
    elif isinstance(pattern, dict):
        if isinstance(value, dict) and pattern.keys() == value.keys():
            for key, inner in pattern.items():
                bind(inner, value[key], env, expr)
            return
    else:
        return  # a constant
    raise ValueError(
        f"{expr.describe()} gave {type(value).__name__} of another arrangement than while tracing\n"
        "  fix: trace again with such inputs"
    )


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
