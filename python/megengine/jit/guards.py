"""Guards of ``trace(without_host=True)``: facts about all that a recording could read besides its
tensors.

A call without the Python body is right only while everything that the body would read is unchanged.
All that it reaches (walk.py) is noted before the function is recorded, compared after it (a body that
changes what it reads is recorded again in each call) and before each later call.
"""

from __future__ import annotations

import copy
import itertools
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import random_state
from ..core._tree import LEAF, Branch, branch_of, opened, unflatten
from ..core.tensor.amp import state as _amp
from ..tensor import Tensor
from .reach import Unwatchable
from .walk import Walk
from .watched import facts_of, same

_numbers = itertools.count(1)  # numbers of guards
_AUTOCASTING, _WORLD = "autocasting", "the world of processes"
_TOLD = {_AUTOCASTING: "autocasting was switched", _WORLD: "a world of processes began or ended"}


class Guards:
    """The facts that one recording could read. ``reason(...)`` is None while they are the same."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]):
        self.number = next(_numbers)
        self.result_tree: Any = None  # the recorded call's result, as trace flattens it
        # makes the result of a call from its tensors
        self.make_result: Callable[[list[Any]], Any] = list
        self._walk = Walk(leaves)
        self.facts = self._walk.facts
        self._leaf_ids: list[int] | None = None  # set if the body calls id() or hash()
        self._grads = [leaf.grad for leaf in leaves]
        self._grad_places: list[int] = []  # places of arguments whose gradient the body may read
        self._unwatchable: str | None = None
        # kept until the body has run
        self._host_random: tuple[Any, ...] | None = _host_random_state()
        self._walk.watch("given", _precisions, _AUTOCASTING)
        self._walk.watch("entry", vars(random_state), _WORLD, "_noise")
        held: list[tuple[Any, str]] = []
        self._structure = _structure_of(args, kwargs, held)
        try:
            self._walk.follow([(function, "the function"), *held])
            if self._walk.reads_grads:
                self._walk.follow((grad, "an argument's gradient") for grad in self._grads if grad is not None)
            if self._walk.asks_for_ids:
                self._leaf_ids = _ids_of(leaves)
                self._walk.kept += leaves
        except Unwatchable as reason:
            self._unwatchable = str(reason)
        self._set_call(kwargs, leaves)

    def _set_call(self, kwargs: dict[str, Any], leaves: list[Tensor]) -> None:
        """Tells the facts what the arguments of a call must be."""
        grads = [(place, self._grads[place]) for place in self._grad_places]
        fixed = [*enumerate(leaves)] if self._leaf_ids is not None else self._walk.captured_leaves
        self.facts.set_call(self._structure[0], kwargs, grads, fixed, [*self._walk.captured.values()])

    def for_other_sizes(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]
    ) -> Guards | None:
        """The guards of a call with other sizes, without a walk; None if only a walk can tell.

        If all facts hold, a body finds the same things, so both share the facts and their memory.
        What a walk notes of one call (gradients, ids, arguments that the body also
        reaches, numbers of an optimizer) is never shared.
        """
        walk = self._walk
        is_of_one_call = bool(walk.reads_grads or walk.asks_for_ids or walk.captured_leaves or walk.checks_of_body)
        if is_of_one_call or self.reason(args, kwargs, leaves) is not None:
            return None
        other = copy.copy(self)
        other.number = next(_numbers)
        return other  # the recording that walked has seen that nothing unwatched draws on the host

    def result_maker(self) -> Callable[[list[Any]], Any]:
        """Returns a function that makes the recorded result from other tensors."""
        tree = self.result_tree
        if tree is LEAF:
            return operator.itemgetter(0)
        if type(tree) is Branch and tree.kind in (list, tuple) and all(part is LEAF for part in tree.parts):
            return tree.kind
        return lambda flat: unflatten(tree, iter(flat), {})

    def has_seen(self, value: object) -> bool:
        """Whether it was there before the body ran, where the body can find it."""
        return id(value) in self._walk.seen

    def leave_grads_of(self, tensors: list[Tensor], kwargs: dict[str, Any], leaves: list[Tensor]) -> None:
        """Leaves the ``.grad`` of these tensors to each call, which sets them anew and checks
        whether they were None.
        """
        self._walk.kept += tensors
        own = {id(tensor) for tensor in tensors}
        if self._walk.reads_grads:
            self._grad_places = [place for leaf, place in self._walk.leaves.items() if leaf not in own]
        else:
            self._grads = []
        self.facts.leave_grads(tensors)
        self._set_call(kwargs, leaves)

    def reason_after_recording(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]) -> str | None:
        """Returns why every later call needs the body: it changes what it reads."""
        if self._unwatchable:
            return self._unwatchable
        drawn_before, self._host_random = self._host_random, None
        if drawn_before is not None and drawn_before != _host_random_state():
            return "the body draws random numbers on the host"
        reason = self.reason(args, kwargs, leaves)
        reason = reason or next((f"{name} has changed" for holds, name in self._walk.checks_of_body if not holds()), None)
        return reason and f"{reason}, by the body itself"

    def reason(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]) -> str | None:
        """Returns what has changed; None while everything reads the same."""
        if not same(_structure_of(args, kwargs, []), self._structure):
            return "the call has other arguments"
        if any(leaves[place].grad is not self._grads[place] for place in self._grad_places):
            return "an argument has another gradient"
        return self._reason_of_objects(leaves) or self._reason_of_facts()

    def _reason_of_facts(self) -> str | None:
        """Returns the fact that has changed. Other objects that are equal numbers count as the
        same, and are kept from then on.
        """
        place = self.facts.differing(0)
        while place < self.facts.count:
            name = self._walk.names[place]
            try:
                is_same = same((*self.facts.now(place),), (*self.facts.held(place),))
            except Exception:
                return f"{name} is gone"
            if not is_same:
                return _TOLD.get(name, f"{name} has changed")
            self.facts.hold(place)
            place = self.facts.differing(place + 1)
        return None

    def _reason_of_objects(self, leaves: list[Tensor]) -> str | None:
        """Returns what a body could notice from the identity of its arguments."""
        if self._leaf_ids is not None and self._leaf_ids != _ids_of(leaves):
            return "an argument is another object, and the body asks for its id()"
        if not self._walk.captured.keys().isdisjoint(map(id, leaves)):
            return "an argument is a tensor that the body also reaches by itself"
        if any(leaves[place] is not tensor for place, tensor in self._walk.captured_leaves):
            return "an argument that the body also reaches by itself is another one"
        return None


def _ids_of(leaves: list[Tensor]) -> list[int]:
    return [*dict.fromkeys(map(id, leaves))]


# ---- arguments


def _structure_of(args: tuple[Any, ...], kwargs: dict[str, Any], held: list[tuple[Any, str]]) -> tuple[Any, ...]:
    """Returns what is compared of the arguments; tensors among the positional ones are inputs.
    ``held`` gets what a body reads of them, with names.
    """
    positional = tuple(_shape_of(value, f"argument {i}", held) for i, value in enumerate(args))
    held += ((value, f"argument {name}") for name, value in kwargs.items())
    return positional, tuple((name, _keyword(value)) for name, value in kwargs.items())


def _shape_of(value: Any, name: str, held: list[tuple[Any, str]]) -> Any:
    if isinstance(value, Tensor):
        facts = facts_of(value)
        if facts != (Tensor,):
            held += ((fact, name) for fact in facts)
        return facts
    if (branch := opened(value)) is None:
        held.append((value, name))
        return value
    held.append((branch.kind, branch.kind.__name__))
    parts = (_shape_of(part, named, held) for part, named in zip(branch.parts, branch.named(name), strict=False))
    return (branch.kind, branch.names, tuple(parts))


def _keyword(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    branch = branch_of(value)
    return value if branch is None else (branch.kind, branch.names, tuple(map(_keyword, branch.parts)))


# ---- what every body may read


def _precisions() -> tuple[bool, str, str]:
    now = _amp.get()
    return now.enabled, now.low, now.high


def _host_random_state() -> tuple[Any, ...]:
    state: Any = np.random.get_state()
    name, keys, *rest = state
    return random.getstate(), name, keys.tobytes(), *rest
