"""Finds where a program keeps the tensors that a traced function reads: names in its code,
attributes, and items of containers.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..module import Module
from ..tensor import Tensor
from .code_reads import names_in
from .reach import WRAPPERS, is_foreign, is_foreign_code
from .watched import MISSING, content, slots_of

_MOST_OBJECTS = 100_000  # the most objects that are looked into


def tensor_places(function: Callable[..., Any], held: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors that are reached from a function and its keyword arguments, by their places: "net.layers[0].weight"."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    queue: collections.deque[tuple[str, Any]] = collections.deque([*held.items(), ("", function)])
    while queue and len(seen) < _MOST_OBJECTS:
        place, value = queue.popleft()
        if isinstance(value, Tensor):
            found.setdefault(place, value)
        if id(value) not in seen:
            seen.add(id(value))
            queue.extend(_parts(place, value))
    return found


def _parts(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Iterates over what an object of the program holds. Our own objects, except modules and
    tensors, hold caches and buffers.
    """
    if isinstance(value, types.FunctionType):
        yield from () if is_foreign_code(value) else _named_by(value)
    elif type(value) in WRAPPERS:
        yield from ((place, getattr(value, name)) for name in WRAPPERS[type(value)])
    elif isinstance(value, dict):
        yield from ((f"{place}[{key!r}]" if isinstance(key, (str, int)) else f"{place}[...]", item) for key, item in [*value.items()])
    elif isinstance(value, (list, tuple, collections.deque)):
        yield from ((f"{place}[{index}]", item) for index, item in enumerate([*value]))
    elif isinstance(value, type):
        if not is_foreign(value.__module__):
            yield from ((f"{place}.{name}", item) for name, item in [*vars(value).items()])
    elif isinstance(value, (Module, Tensor)) or not type(value).__module__.startswith("megengine"):
        held = getattr(value, "__dict__", None)
        attributes = [*held.items()] if isinstance(held, dict) and not isinstance(value, types.ModuleType) else []
        attributes += [(name, getattr(value, name, None)) for name in slots_of(type(value))]
        yield from ((f"{place}.{name}", item) for name, item in attributes if name != "grad")
        yield from ((place, kind) for kind in type(value).__mro__)
    elif wrapped := getattr(value, "__wrapped__", None):  # a traced function
        yield place, wrapped


def _named_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code, scope = function.__code__, function.__globals__
    names = sorted(names_in(code))
    for name in names:
        value = scope.get(name, MISSING)
        yield name, value
        if isinstance(value, types.ModuleType) and not is_foreign(value.__name__):
            yield from ((f"{name}.{each}", vars(value)[each]) for each in names if each in vars(value))
    yield from zip(code.co_freevars, map(content, function.__closure__ or ()), strict=True)
    positional = code.co_varnames[: code.co_argcount]
    yield from zip(reversed(positional), reversed(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
