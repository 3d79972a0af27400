"""Scan and Loop. ``body`` is a module that takes, behind what ONNX gives to it, what it reads from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import functional as F
from ...functional._control_flow import is_in_body, says_types_differ
from ...fx import wrap
from ...jit import exclude_from_trace
from ...tensor import Tensor
from ._table import axis_of, number

Body = Callable[..., Any]
Parts = tuple[list[Tensor], list[Tensor]]  # states, and what is stacked


@wrap
def branch(condition: Tensor, if_true: Body, if_false: Body, *outside: Tensor) -> Any:
    """An If whose branches may give different types. A value of a graph has one: where they do, a trace leaves its graph for the branch that is taken."""
    try:
        return F.cond(condition.reshape(()), if_true, if_false, *outside)
    except TypeError as error:
        if is_in_body() or not says_types_differ(error):
            raise
    with exclude_from_trace():
        return (if_true if number(condition) else if_false)(*outside)


@wrap
def scan(
    body: Body, initial: Sequence[Tensor], xs: Sequence[Tensor], outside: Sequence[Tensor] = (), *,
    scan_input_axes: Sequence[int] | None = None, scan_output_axes: Sequence[int] | None = None, scan_input_directions: Sequence[int] | None = None, scan_output_directions: Sequence[int] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The last states, and the results of all trips over ``xs``."""
    is_reverse = bool(scan_input_directions) and all(scan_input_directions or ())
    rows = [
        _flipped(_moved(x, axis_of(axis, x.ndim), 0), bool(backward) != is_reverse)
        for x, axis, backward in zip(xs, _each(scan_input_axes, xs), _each(scan_input_directions, xs), strict=True)
    ]

    def step(states: list[Tensor], x: list[Tensor]) -> Parts:
        found = _several(body(*states, *x, *outside))
        return list(found[: len(states)]), list(found[len(states) :])

    states, ys = F.scan(step, list(initial), rows, reverse=is_reverse)
    return *states, *(
        _moved(_flipped(y, bool(backward) != is_reverse), 0, axis_of(axis, y.ndim))
        for y, axis, backward in zip(ys, _each(scan_output_axes, ys), _each(scan_output_directions, ys), strict=True)
    )


@wrap
def counted_loop(
    body: Body, trips: Tensor | int, initial: Sequence[Tensor], outside: Sequence[Tensor] = (), condition: Tensor | bool = True
) -> tuple[Tensor, ...]:
    """A Loop of so many trips, or none; its condition does not change. The numbers are read if they are Tensors."""
    length = max(int(number(trips)), 0) if number(condition) else 0

    def step(state: list[Tensor], _: None) -> Parts:
        trip, *states = state
        found = _several(body(trip, Tensor(True), *states, *outside))[1:]
        return [trip + 1, *found[: len(states)]], list(found[len(states) :])

    (_, *states), ys = F.scan(step, [Tensor(0, dtype="int64"), *initial], length=length)
    return *states, *ys


@wrap
def loop(
    body: Body, initial: Sequence[Tensor], outside: Sequence[Tensor] = (), trips: Tensor | int | None = None, condition: Tensor | bool = True
) -> tuple[Tensor, ...]:
    """A Loop that ends as soon as its condition is false, after so many trips at the latest."""

    def goes_on(state: list[Tensor]) -> Tensor:
        return state[1] if trips is None else F.logical_and(state[1], state[0] < trips).reshape(())

    def trip(state: list[Tensor]) -> list[Tensor]:
        condition, *states = _several(body(*state, *outside))
        return [state[0] + 1, condition.reshape(()), *states]

    first = condition.reshape(()) if isinstance(condition, Tensor) else Tensor(condition)
    return tuple(F.while_loop(goes_on, trip, [Tensor(0, dtype="int64"), first, *initial])[2:])


def _several(found: Any) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def _each(values: Any, things: Sequence[Any]) -> Sequence[int]:
    return values or [0] * len(things)


def _moved(x: Tensor, axis: int, to: int) -> Tensor:
    order = list(range(x.ndim))
    order.insert(to, order.pop(axis))
    return x if axis == to else F.transpose(x, order)


def _flipped(x: Tensor, flips: bool) -> Tensor:
    return x[::-1] if flips else x
