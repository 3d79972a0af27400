"""What things of one kind hold, and whether they hold the same: dicts, cells, tensors, optimizers, loggers.

In: a thing. Out: what a body could read of it, as a tuple of objects, which are compared by identity.
"""

from __future__ import annotations

import itertools
import logging
import operator
import types
from collections.abc import Callable
from typing import Any

from ..autodiff import GradManager
from ..optimizer import Optimizer
from ..tensor import Tensor
from .watchable import _MISSING, _same


class _Watched:
    """Things of one kind; `read` gives what each of them holds, in order. All are compared at once, by identity.

    are_same: do the things hold what they held? For kinds where there is a faster way than by `read`.
    """

    def __init__(self, read: Callable[[Any], Any], are_same: Callable[[list[Any], list[tuple[Any, ...]]], bool] | None = None):
        self._read = read
        self.are_same = are_same or (lambda things, held: all(map(_identical, map(read, things), held)))
        self.things: list[Any] = []
        self._names: list[str] = []
        self.held: list[tuple[Any, ...]] = []  # keeps it alive too: no other object takes its place

    def add(self, thing: object, name: str) -> None:
        self.things.append(thing)
        self._names.append(name)
        self.held.append((*self._read(thing),))

    def read_again(self, things: set[int]) -> None:
        """What those with these ids hold now is what they are compared with."""
        for i, thing in enumerate(self.things):
            if id(thing) in things:
                self.held[i] = (*self._read(thing),)

    def changed(self) -> str | None:
        """The name of a thing that holds something else, or None: where `are_same` finds other objects, they may be equal numbers."""
        for i, thing in enumerate(self.things):
            now = (*self._read(thing),)
            if not _same(now, self.held[i]):
                return self._names[i]
            self.held[i] = now  # equal numbers in other objects
        return None


def _identical(now: Any, then: tuple[Any, ...]) -> bool:
    return len(now) == len(then) and all(map(operator.is_, now, then))


def _same_tables(tables: list[dict[Any, Any]], held: list[tuple[Any, ...]]) -> bool:
    for table, then in zip(tables, held):
        if not table and not then:
            continue
        if 2 * len(table) != len(then) or not all(map(operator.is_, itertools.chain(table, table.values()), then)):
            return False
    return True


def _same_entries(entries: list[tuple[dict[Any, Any], Any]], held: list[tuple[Any, ...]]) -> bool:
    for (table, key), (then,) in zip(entries, held):
        if table.get(key, _MISSING) is not then:
            return False
    return True


def _same_instances(values: list[Any], held: list[tuple[Any, ...]]) -> bool:
    for value, (kind, table) in zip(values, held):
        if type(value) is not kind or getattr(value, "__dict__", None) is not table:
            return False
    return True


def _same_sequences(sequences: list[Any], held: list[tuple[Any, ...]]) -> bool:
    return all(map(_identical, sequences, held))


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


def _fact_count(held: dict[str, Any]) -> int:
    return len(held) - sum(key in held for key in _NO_FACTS)


def _settings_of(logger: logging.Logger) -> tuple[Any, ...]:
    return (logger.level, logger.disabled, logger.propagate, logger.name, logger.parent, *logger.handlers, None, *logger.filters)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return _MISSING


def _attached(manager: GradManager) -> list[Any]:
    found: list[Any] = []
    for spec in manager._attach_specs.values():
        found += (spec.tensor(), *spec.callbacks, None)
    return found


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
