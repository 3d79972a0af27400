"""Reads what a body could see of a tensor, a logger, a gradient manager or an optimizer; and
compares two of these.

In: a thing. Out: a tuple of objects, which `Facts` compare by identity.
"""

from __future__ import annotations

import logging
import struct
import types
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..autodiff import GradManager
from ..optimizer import Optimizer
from ..tensor import Tensor
from .reach import is_plain

MISSING = object()
# the first is compared separately; other libraries see the value by the second
NO_FACTS = ("grad", "_lent")


# A new size asks for the slots of Tensor several times.
_slots: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()


def slots_of(kind: type) -> tuple[str, ...]:
    """The attributes that a class and its bases keep outside of ``__dict__``."""
    if (known := _slots.get(kind)) is None:
        known = _slots[kind] = tuple(slot for base in kind.__mro__ for slot in _own_slots(base))
    return known


def _own_slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return tuple(
        f"_{kind.__name__.lstrip('_')}{s}" if s.startswith("__") and not s.endswith("__") else s
        for s in ((slots,) if isinstance(slots, str) else slots)
        if s not in ("__dict__", "__weakref__")
    )


def facts_of(tensor: Tensor) -> tuple[Any, ...]:
    """Returns what a body can read of a tensor besides value and type: class, name, quantization,
    attributes that a program set.
    """
    kind, held = type(tensor), vars(tensor)
    attributes = (part for key, value in held.items() if key not in NO_FACTS for part in (key, value))
    return (kind, *attributes, *(getattr(tensor, slot, MISSING) for slot in slots_of(kind)))


def settings_of(logger: logging.Logger) -> tuple[Any, ...]:
    return (logger.level, logger.disabled, logger.propagate, logger.name, logger.parent, *logger.handlers, None, *logger.filters)


def content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is not bound yet
        return MISSING


def attached(manager: GradManager) -> tuple[Any, ...]:
    return tuple(found for spec in manager._attach_specs.values() for found in (spec.tensor(), *spec.callbacks, None))


def options(optimizer: Optimizer) -> tuple[Any, ...]:
    """Returns the options of each group; a number is replaced by whether it is zero."""
    return tuple(
        tuple(
            (name, bool(value) if isinstance(value, (int, float)) else _numbers_aside(value))
            for name, value in group.items()
        )
        for group in optimizer.param_groups
    )


def held_options(optimizer: Optimizer) -> list[Any]:
    """Returns all that the groups hold, and the items of containers that may change in place."""
    held: list[Any] = []
    for group in optimizer.param_groups:
        held += (group, *group)
        for value in group.values():
            held.append(value)
            if isinstance(value, list):
                held += value
    return held


def values_of(optimizer: Optimizer) -> tuple[Any, ...]:
    """The options of each group, with their numbers."""
    return tuple((name, tuple(value) if isinstance(value, list) else value) for group in optimizer.param_groups for name, value in group.items())


def _numbers_aside(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(bool(v) if isinstance(v, (int, float)) else v for v in value)
    return value


# ---- comparisons


def same(a: object, b: object) -> bool:
    """Whether a body reads the same from both. Objects are compared by identity: their content is
    watched.
    """
    if a is b:
        return True
    if isinstance(a, np.dtype):
        return isinstance(b, np.dtype) and a == b and a.metadata == b.metadata  # the latter holds the scale of a quantized one
    if is_plain(a):
        return type(a) is type(b) and (_bits(a) == _bits(b) if isinstance(a, (float, complex, np.inexact)) else bool(a == b))
    if isinstance(a, types.MethodType):  # made anew by each access
        return isinstance(b, types.MethodType) and a.__func__ is b.__func__ and a.__self__ is b.__self__
    return type(a) is tuple and type(b) is tuple and len(a) == len(b) and all(map(same, a, b))


def _bits(value: Any) -> bytes:
    """Returns the bits of a number, which tell -0.0 from 0.0 and one NaN from another."""
    return value.tobytes() if isinstance(value, np.inexact) else struct.pack("dd", value.real, value.imag)


def same_items(now: Mapping[Any, Any], then: Mapping[Any, Any]) -> bool:
    return len(now) == len(then) and all(map(same, now.items(), then.items()))


def same_array(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.flags.writeable == b.flags.writeable and a.tobytes() == b.tobytes()
