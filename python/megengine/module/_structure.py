"""Finding tensors and modules in the attributes of a module: a fixed order, each object once.

Attributes are visited in order of their names; lists, tuples and dicts are expanded in their own order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ..tensor import Parameter, Tensor

# Bookkeeping of Module itself, which can hold no tensor and no module.
INTERNAL = frozenset(
    {"name", "training", "quantize_disabled", "_modules", "_short_name", "_forward_pre_hooks", "_forward_hooks"}
)
_CONTAINERS = (list, tuple, dict)
_T = TypeVar("_T")


def with_state_of(module: object, cls: type[_T], standing_for: object = None) -> _T:
    """Makes a ``cls`` that replaces ``module``: it has the same attributes, name and mode, and
    copies of the hooks. standing_for: a module whose name, mode and hooks it takes instead. Raises
    ValueError for a module with a ``forward`` of its own, which would
    be called instead of that of ``cls``.
    """
    if "forward" in module.__dict__:
        raise ValueError(
            f"{type(module).__name__}: its forward was set by fully_shard or by the program, and a {cls.__name__} in its place would call that\n"
            "  fix: convert the network first"
        )
    made: Any = cls.__new__(cls)
    state = made.__dict__
    state.update(module.__dict__)
    if standing_for is not None:
        state.update({name: standing_for.__dict__[name] for name in INTERNAL})
    for hooks in ("_forward_pre_hooks", "_forward_hooks"):
        state[hooks] = OrderedDict(state[hooks])
    made._list_holders()
    return made


def _is_parameter(obj: Any) -> bool:
    return isinstance(obj, Parameter)


def _is_buffer(obj: Any) -> bool:
    return isinstance(obj, Tensor) and not isinstance(obj, Parameter)


def _is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)


class Holder:
    """The interface of `Module` that this file uses; `Module` itself is defined on top of it."""


def _is_module(obj: Any) -> bool:
    return isinstance(obj, Holder)


def _expand_structure(key: str, obj: Any) -> list[tuple[str, Any]]:
    """Returns (dotted key, object) of every Tensor and Module in ``obj``, which is one or a nest of
    containers.

    AssertionError when a dict on the way to one has a key that is not a str.
    """
    if isinstance(obj, Tensor) or _is_module(obj):
        return [(key, obj)]
    found: list[tuple[str, Any]] = []
    if isinstance(obj, dict):
        for step, item in obj.items():
            inner = _expand_structure(f"{key}.{step}", item)
            if inner and not isinstance(step, str):
                raise AssertionError(
                    f"keys of a dict of modules or tensors must be str, {key!r} has the key {step!r}\n"
                    f"  fix: write str({step!r}) as the key"
                )
            found += inner
    elif isinstance(obj, (list, tuple)):
        for index, item in enumerate(obj):
            if isinstance(item, (Tensor, _CONTAINERS)) or _is_module(item):
                found += _expand_structure(f"{key}.{index}", item)
    return found


def _members(module: Any) -> Iterator[tuple[str, Any]]:
    """Iterates over (key, object) of the tensors and modules that ``module`` itself holds."""
    attributes = module.__dict__
    for name in sorted(attributes):
        value = attributes[name]
        if name not in INTERNAL and (isinstance(value, (Tensor, _CONTAINERS)) or _is_module(value)):
            yield from _expand_structure(name, value)


def _flatten(
    module: Any,
    predicate: Callable[[Any], bool],
    *,
    prefix: str = "",
    recursive: bool = True,
    seen: set[int] | None = None,
) -> Iterator[tuple[str, Any, Any]]:
    """Iterates over (dotted path, object, owner) of what satisfies ``predicate``, depth first, each
    object once.
    """
    seen = {id(module)} if seen is None else seen
    for key, item in _members(module):
        if id(item) in seen:
            continue
        seen.add(id(item))
        path = f"{prefix}.{key}" if prefix else key
        if predicate(item):
            yield path, item, module
        if recursive and _is_module(item):
            yield from _flatten(item, predicate, prefix=path, seen=seen)


def all_paths(
    module: object, prefix: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """Iterates over (dotted path, object) of tensors and modules at every path; what a module holds
    only at its first.
    """
    seen = {id(module)} if seen is None else seen
    for key, item in _members(module):
        path = f"{prefix}.{key}" if prefix else key
        yield path, item
        if _is_module(item) and id(item) not in seen:
            seen.add(id(item))
            yield from all_paths(item, path, seen)
