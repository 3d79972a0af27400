"""Decisions that a traced step makes for a later part of itself: whether the gradients of these
tensors are finite.

In: the result of `GradScaler.unscale`, as a tensor that may not be read yet. Out: the answer for
the optimizer's next step.
A decision is held by a tensor of its own, which is a state of the step: it is True again once the optimizer has acted by it, or
when the gradient is another one. So a call that runs no Python leaves it as one that does.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from ..tensor import Tensor

_T = TypeVar("_T")


class ByTensor(Generic[_T]):
    """A mapping from tensors, as long as they live. (Tensors compare element by element, so a dict
    cannot have them as keys.)
    """

    def __init__(self) -> None:
        self.entries: dict[int, tuple[weakref.ref[Tensor], _T]] = {}

    def get(self, tensor: Tensor) -> _T | None:
        entry = self.entries.get(id(tensor))
        return None if entry is None else entry[1]

    def set(self, tensor: Tensor, value: _T) -> None:
        key, entries = id(tensor), self.entries
        entries[key] = (weakref.ref(tensor, lambda _: entries.pop(key, None)), value)


_held = ByTensor[Tensor]()
held = _held.entries  # empty in programs that scale no loss in a trace, which check only that
# Parameters whose gradients differ between processes until the optimizer's step -> the function that gives the least value of all processes.
together = ByTensor[Callable[[Tensor], Tensor]]()


@functools.cache
def settled(value: bool, device: str) -> Tensor:
    """The one tensor that stands for a settled decision; the id of its value tells it without a
    read.
    """
    return Tensor(value, device=device)


def _is_settled(decision: Tensor, value: bool = True) -> bool:
    return decision._value_id() == settled(value, decision._device_name)._value_id()


def read(decision: Tensor) -> bool:
    """Returns the decision to eager code; a settled one is known without waiting for the device."""
    return _is_settled(decision) or (not _is_settled(decision, False) and bool(decision.item()))


def decide(tensor: Tensor, is_finite: Tensor) -> None:
    """The gradient of ``tensor`` counts where ``is_finite`` is True, a 0-d bool."""
    if (decision := _held.get(tensor)) is None:
        decision = Tensor(True, device=is_finite._device_name)
        _held.set(tensor, decision)
    decision._hold(is_finite)


def decision_of(tensor: Tensor) -> Tensor | None:
    """Whether the gradient of ``tensor`` is finite; None if nothing is left to decide."""
    decision = _held.get(tensor)
    return None if decision is None or _is_settled(decision) else decision


def settle(tensor: Tensor) -> None:
    """Forgets a decision: the optimizer has followed it, or the gradient is a new one."""
    if (decision := decision_of(tensor)) is not None:
        decision._hold(settled(True, decision._device_name))


def share(part: Tensor, whole: Tensor) -> None:
    """Makes ``part`` share the decision of ``whole``."""
    decision = _held.get(whole)
    if decision is not None and _held.get(part) is not decision:
        _held.set(part, decision)
