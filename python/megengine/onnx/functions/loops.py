"""If, Scan and Loop. ``body`` is a module that takes ONNX's inputs, then the values that it reads
from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

from ... import functional as F
from ..._core import running_trace
from ...functional._control_flow import is_in_body, says_types_differ
from ...fx import wrap
from ...jit import trace
from ...tensor import Tensor
from ._table import axis_of, left_graph, number

Body = Callable[..., Any]
Parts = tuple[list[Tensor], list[Tensor]]  # states, and what is stacked

# first branch of an If -> types of tensors for which a trace has left its graph
_LEAVING: WeakKeyDictionary[Body, set[Any]] = WeakKeyDictionary()
# a graph that an If holds -> functions that run it, by the options of the trace around; None: it reads values
_PROGRAMS: WeakKeyDictionary[Body, dict[tuple[int, bool], Body | None]] = WeakKeyDictionary()


@wrap
def branch(condition: Tensor, if_true: Body, if_false: Body, *outside: Tensor) -> Any:
    """Runs an If whose branches may give different types, or of which one may not take such
    shapes. If so, a trace runs the branch outside of its graph, as a program of its own.
    """
    condition, leaving, running = condition.reshape(()), _LEAVING.setdefault(if_true, set()), running_trace()
    types = tuple(map(_types_of, outside))
    if types not in leaving or is_in_body():
        try:
            return F.cond(condition, if_true, if_false, *outside)
        except (TypeError, ValueError) as error:
            if is_in_body() or running is None or not (isinstance(error, ValueError) or says_types_differ(error)):
                raise
    with left_graph():
        taken = if_true if number(condition) else if_false
        found = _by_program(taken, outside, running)
    leaving.add(types)
    return found


def _types_of(value: Any) -> Any:
    """Returns the types of a tensor, or of those in a sequence; None for an optional value that is not there."""
    if isinstance(value, Tensor):
        return value.dtype.name, value._tuple_shape
    return None if value is None else tuple(map(_types_of, value))


def _by_program(body: Body, given: Sequence[Tensor], around: tuple[int, bool] | None) -> Any:
    """Calls a graph that a node holds as a function of its own, which Python does not walk again
    unless it reads values. around: the options of the trace that runs, None for no trace.
    """
    if around is None or not all(isinstance(value, Tensor) for value in given):
        return body(*given)
    programs = _PROGRAMS.setdefault(body, {})
    if around not in programs:
        held, (level, exact) = ref(body), around  # the table must not keep the graph
        programs[around] = trace(
            lambda *tensors: held()(*tensors),  # type: ignore[misc]
            symbolic=True, without_host=True, opt_level=level, numerics="exact" if exact else "fast",
        )  # fmt: skip
    program = programs[around]
    if program is not None:
        try:
            return program(*given)
        except (RuntimeError, ValueError) as error:
            if not any(words in str(error) for words in ("without_host", "symbolic=True")):
                raise
        programs[around] = None
    return body(*given)


@wrap
def branch_by_size(condition: Tensor, if_true: Body, if_false: Body, *outside: Tensor) -> Any:
    """Runs an If whose condition follows from sizes: a trace records the branch that its sizes take."""
    return (if_true if number(condition) else if_false)(*outside)


@wrap
def scan(
    body: Body, initial: Sequence[Tensor], xs: Sequence[Tensor], outside: Sequence[Tensor] = (), *,
    scan_input_axes: Sequence[int] | None = None, scan_output_axes: Sequence[int] | None = None, scan_input_directions: Sequence[int] | None = None, scan_output_directions: Sequence[int] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns the last states, and the results of all trips over ``xs``."""
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
    """Runs a Loop with a number of trips, or none; its condition does not change. Numbers that are
    Tensors are read.
    """
    length = max(int(number(trips)), 0) if number(condition) else 0

    def step(state: list[Tensor], _: None) -> Parts:
        trip, *states = state
        found = _several(body(trip, Tensor(True), *states, *outside))[1:]
        return [trip + 1, *found[: len(states)]], list(found[len(states) :])

    try:
        (_, *states), ys = F.scan(step, [Tensor(0, dtype="int64"), *initial], length=length)
    except TypeError as error:
        if not says_types_differ(error):
            raise
        return changing_loop(body, length, initial, outside, is_counted=True)
    return *states, *ys


@wrap
def changing_loop(
    body: Body, trips: Tensor | int | None, initial: Sequence[Any], outside: Sequence[Tensor] = (), condition: Tensor | bool = True, *,
    is_counted: bool = False, stacked: Sequence[tuple[str, Sequence[int]]] = (),
) -> tuple[Any, ...]:  # fmt: skip
    """Runs a Loop whose states may change their shapes or be sequences, and whose stacked results
    have as many trips as its condition allows.

    is_counted: whether the condition never changes. stacked: dtypes and shapes of the stacked
    results if there are no trips. A trace runs the trips outside of its graph, unless their number
    is known.
    """
    if is_counted and not isinstance(trips, Tensor) and not isinstance(condition, Tensor):
        return _trips_in_python(body, trips, initial, outside, condition, is_counted, stacked)
    if is_in_body():
        raise TypeError("Loop: states that change their shapes, or results of a number of trips that data tell, cannot be in another loop's body of a trace")
    with left_graph():
        return _trips_in_python(body, trips, initial, outside, condition, is_counted, stacked)


def _trips_in_python(
    body: Body, trips: Tensor | int | None, initial: Sequence[Any], outside: Sequence[Tensor], condition: Tensor | bool,
    is_counted: bool, stacked: Sequence[tuple[str, Sequence[int]]],
) -> tuple[Any, ...]:  # fmt: skip
    limit = None if trips is None else int(number(trips))
    goes_on, states = bool(number(condition)), list(initial)
    trip, results = 0, []
    while goes_on and (limit is None or trip < limit):
        follows, *found = _several(body(Tensor(trip, dtype="int64"), Tensor(True), *states, *outside))
        results.append(found[len(states) :])
        states = found[: len(states)]
        trip += 1
        goes_on = is_counted or trip == limit or bool(number(follows))
    if not results:
        return *states, *(F.zeros((0, *shape), dtype=dtype) for dtype, shape in stacked)
    return *states, *(F.stack(list(line), axis=0) for line in zip(*results, strict=True))


@wrap
def loop(
    body: Body, initial: Sequence[Tensor], outside: Sequence[Tensor] = (), trips: Tensor | int | None = None, condition: Tensor | bool = True
) -> tuple[Tensor, ...]:
    """Runs a Loop until its condition is false, or for the largest number of trips."""

    def goes_on(state: list[Tensor]) -> Tensor:
        return state[1] if trips is None else F.logical_and(state[1], state[0] < trips).reshape(())

    def trip(state: list[Tensor]) -> list[Tensor]:
        condition, *states = _several(body(*state, *outside))
        return [state[0] + 1, condition.reshape(()), *states]

    first = condition.reshape(()) if isinstance(condition, Tensor) else Tensor(condition)
    try:
        return tuple(F.while_loop(goes_on, trip, [Tensor(0, dtype="int64"), first, *initial])[2:])
    except TypeError as error:
        if is_in_body() or not says_types_differ(error):
            raise
        return changing_loop(body, trips, initial, outside, condition)


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
