"""What a body could read of a thing: a tensor, a logger, a gradient manager, an optimizer.

In: a thing. Out: a tuple of objects, which `Facts` compare by identity.
"""

from __future__ import annotations

import logging
import types
from typing import Any

from ..autodiff import GradManager
from ..optimizer import Optimizer
from ..tensor import Tensor
from .watchable import _MISSING

_NO_FACTS = ("grad", "_lent")  # the first is compared by itself; the second is what other libraries see of the value


def _slots_of(kind: type) -> tuple[str, ...]:
    """The attributes that a class and its bases keep outside of ``__dict__``."""
    return tuple(slot for base in kind.__mro__ for slot in _own_slots(base))


def _own_slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return tuple(
        f"_{kind.__name__.lstrip('_')}{s}" if s.startswith("__") and not s.endswith("__") else s
        for s in ((slots,) if isinstance(slots, str) else slots)
        if s not in ("__dict__", "__weakref__")
    )


def _facts_of(tensor: Tensor) -> tuple[Any, ...]:
    """What a body can read of a tensor besides its value and type: class, name, quantization, whatever a program has put on it."""
    kind, held = type(tensor), vars(tensor)
    attributes = (part for key, value in held.items() if key not in _NO_FACTS for part in (key, value))
    return (kind, *attributes, *(getattr(tensor, slot, _MISSING) for slot in _slots_of(kind)))


def _settings_of(logger: logging.Logger) -> tuple[Any, ...]:
    return (logger.level, logger.disabled, logger.propagate, logger.name, logger.parent, *logger.handlers, None, *logger.filters)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return _MISSING


def _attached(manager: GradManager) -> tuple[Any, ...]:
    return tuple(found for spec in manager._attach_specs.values() for found in (spec.tensor(), *spec.callbacks, None))


def _options(optimizer: Optimizer) -> tuple[Any, ...]:
    """The options of each group; of numbers, whether they are zero."""
    return tuple(
        tuple(
            (name, bool(value) if isinstance(value, (int, float)) else _numbers_aside(value))
            for name, value in group.items()
        )
        for group in optimizer.param_groups
    )


def _held_options(optimizer: Optimizer) -> list[Any]:
    """All that the groups hold, and the items of what may change in place."""
    held: list[Any] = []
    for group in optimizer.param_groups:
        held += (group, *group)
        for value in group.values():
            held.append(value)
            if isinstance(value, list):
                held += value
    return held


def _values_of(optimizer: Optimizer) -> tuple[Any, ...]:
    """The options of each group, with their numbers."""
    return tuple((name, tuple(value) if isinstance(value, list) else value) for group in optimizer.param_groups for name, value in group.items())


def _numbers_aside(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(bool(v) if isinstance(v, (int, float)) else v for v in value)
    return value
