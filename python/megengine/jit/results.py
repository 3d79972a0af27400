"""Results of a body that are not tensors: calls that do not run the body return the same objects
again.
"""

from __future__ import annotations

import gc
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

from .._core import user_line
from ..core._tree import LEAF, Branch
from ..module import Module
from ..tensor import Tensor
from .reach import is_plain, opaque

_MOST_OBJECTS = 10_000
_USED_UP = (Iterator, Awaitable, AsyncIterator)
_NOT_HELD = (type, types.ModuleType, Module)  # their contents existed before the call


def _others(tree: Any) -> list[Any]:
    """Returns the leaves of a tree that are neither tensors nor plain values."""
    if type(tree) is Branch:
        return [leaf for part in tree.parts for leaf in _others(part)]
    return [] if tree is LEAF or is_plain(tree) else [tree]


def refuse_used_up(tree: Any) -> None:
    """Raises AssertionError for results that run when they are asked: generators, coroutines,
    iterators.
    """
    for leaf in _others(tree):
        if isinstance(leaf, _USED_UP):
            kind = type(leaf).__name__.replace("_", " ")
            if isinstance(leaf, Coroutine):
                leaf.close()  # otherwise Python warns that it was never awaited
            raise AssertionError(
                f"doesn't support {leaf!r} type\n"
                f"  why: a {kind} runs when it is asked for values, and only once: later calls of trace(without_host=True) would return it used up\n"
                "  fix: return a list of the values, as list(...) gives it, or drop without_host\n"
                f"  at:  {user_line()}"
            )


def reason_in_results(tree: Any, arguments: list[Tensor], made: list[Tensor], has_seen: Callable[[object], bool]) -> str | None:
    """Returns why a later call cannot return the same objects, or tensors that the body has
    ``made``; None if it can.

    has_seen: whether the body found an object, which is then the same in each call.
    """
    ids = set(map(id, arguments))
    for tensor in made:
        for name, held in vars(tensor).items():
            if id(tensor) not in ids and not is_plain(held):
                return f"the body returns a tensor whose {name} is a {type(held).__name__}"
    for leaf in _others(tree):
        kind = type(leaf).__name__
        if isinstance(leaf, _USED_UP):
            return f"the body returns a {kind}, which runs only once"
        if _reaches(leaf, ids):
            return f"the body returns a {kind} that holds an argument"
        if not (has_seen(leaf) or isinstance(leaf, (*opaque(), type, types.ModuleType))):
            return f"the body returns a {kind} that it makes, which the caller may change"
    return None


def _reaches(value: Any, ids: set[int]) -> bool:
    """Whether it holds one of these objects, at any depth."""
    seen, queue = {id(value)}, [value]
    while queue and len(seen) < _MOST_OBJECTS:
        for held in _held_by(queue.pop()):
            if id(held) in ids:
                return True
            if id(held) not in seen and not isinstance(held, _NOT_HELD):
                seen.add(id(held))
                queue.append(held)
    return False


def _held_by(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):  # its globals existed before the call
        return [value.__closure__, value.__defaults__, value.__kwdefaults__]
    return gc.get_referents(value)
