"""Loops and conditions as operations. A trace records their bodies once; without one Python runs them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, TypeVarTuple

import numpy as np

from .. import _core
from ..core import ops
from ..core._tree import LEAF, Branch, branch_of, flatten, mapped, unflatten
from ..core.tensor.quantized import QuantizedTensor
from ..tensor import Tensor
from .tensor import stack

_Value = TypeVar("_Value")  # a Tensor or a number, or a tree of them
_Operands = TypeVarTuple("_Operands")


def _fail(what: str, why: str, fix: str) -> NoReturn:
    raise TypeError(f"{what}\n  why: {why}\n  fix: {fix}\n  at:  {_core.user_line()}")


def _type_of(leaf: Tensor) -> str:
    quantized = f" {dict(*(leaf.dtype.metadata or {}).values())}" if isinstance(leaf, QuantizedTensor) else ""
    return f"{leaf.dtype.name}{list(leaf._tuple_shape)}{quantized}"


def _quantized_as(leaf: Tensor, like: Tensor) -> Tensor:
    return QuantizedTensor(leaf, like.dtype) if isinstance(like, QuantizedTensor) else leaf


_ALIKE = "return the same containers, with the same names"
_CONVERTS = "convert it with astype, reshape or F.broadcast_to, on either side"


def says_types_differ(error: TypeError) -> bool:
    """Whether two functions, or two trips, have given values of different types, or in different
    containers.
    """
    return any(way in str(error) for way in (_CONVERTS, _ALIKE))


class _Tree:
    """Tensors in containers: their values, and the containers."""

    def __init__(self, what: str, value: Any) -> None:
        self.what = what
        self.leaves: list[Tensor] = []
        self._shape = flatten(mapped(value, self._tensor_of), self.leaves)

    def _tensor_of(self, leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, Tensor):
            return leaf
        if isinstance(leaf, bool | int | float | np.ndarray | np.generic):
            return Tensor(leaf)
        _fail(
            f"{self.what} holds a {type(leaf).__name__}",
            "it is made of Tensors, numbers and None, in lists, tuples and dicts",
            "let the function read it from outside, or make a Tensor of it",
        )

    def filled(self, leaves: list[Tensor]) -> Any:
        """Returns the same tree of other tensors; those in places of quantized tensors are
        quantized alike.
        """
        return unflatten(self._shape, map(_quantized_as, leaves, self.leaves))

    def leaves_of(self, value: object, how: str) -> list[Tensor]:
        """Returns the tensors of a tree that must match this one in containers and types. how: the
        origin of the tree, for errors.
        """
        found = list(self._matched(self._shape, value, "", how))
        for (path, leaf), like in zip(found, self.leaves, strict=True):
            same = leaf.dtype == like.dtype and leaf.dtype.metadata == like.dtype.metadata
            if not same or leaf._tuple_shape != like._tuple_shape:
                _fail(
                    f"{self.what} {how} as another type",
                    f"{path or 'it'} was {_type_of(like)} and is {_type_of(leaf)}",
                    _CONVERTS,
                )
        return [leaf for _, leaf in found]

    def _matched(self, shape: Any, value: Any, path: str, how: str) -> Iterator[tuple[str, Tensor]]:
        if shape is LEAF and isinstance(value, Tensor | float | int | float | np.ndarray | np.generic):
            yield path, value if isinstance(value, Tensor) else Tensor(value)
            return
        branch = branch_of(value)
        fits = value is None if shape is None else isinstance(shape, Branch) and branch is not None
        if fits and branch is not None:
            keys = branch.names or range(len(branch.parts))
            names = shape.names or range(len(shape.parts))
            fits = branch.kind is shape.kind and set(keys) == set(names)
            if fits:
                parts = dict(zip(keys, branch.parts, strict=True))
                for name, part in zip(names, shape.parts, strict=True):
                    yield from self._matched(part, parts[name], f"{path}[{name!r}]", how)
        if not fits:
            _fail(
                f"{self.what} {how} as another tree",
                f"{path or 'it'} was {_text_of(shape)} and is {_text_of(value)}",
                _ALIKE,
            )


def _text_of(part: Any) -> str:
    if part is LEAF or isinstance(part, Tensor):
        return "a Tensor"
    branch = part if isinstance(part, Branch) else branch_of(part)
    if branch is None:
        return "None" if part is None else f"a {type(part).__name__}"
    inside = len(branch.parts) if branch.names is None else list(branch.names)
    return f"a {branch.kind.__name__} of {inside}"


class _Bodies(threading.local):
    open = 0


_bodies = _Bodies()


def is_in_body() -> bool:
    """Whether this thread records the body of a loop or a branch, which no code can leave."""
    return _bodies.open > 0


@contextmanager
def _recording(what: str) -> Iterator[_core.BodyRecorder]:
    body = _core.BodyRecorder(what)
    _bodies.open += 1
    try:
        yield body
    finally:
        _bodies.open -= 1
        body.abort()  # ends a recording that has not finished


def _flag(value: Any, what: str) -> Tensor:
    """Returns the bool of a condition."""
    flag = value if isinstance(value, Tensor) else Tensor(value)
    if flag._tuple_shape != ():
        _fail(
            f"{what} is {_type_of(flag)}",
            "it must be one bool",
            "reduce it: x.all(), x.any(), or x.reshape(()) of one element",
        )
    return flag if flag.dtype == np.bool_ else flag != 0


def scan(
    f: Callable[[_Value, Any], tuple[_Value, Any]],
    init: _Value,
    xs: object = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[_Value, Any]:
    """Calls ``carry, y = f(carry, x)`` for each element x of xs.

    A trace records ``f`` once: a graph of its size runs in the memory of one trip, whatever the
    number of trips. Without a trace Python runs the loop. Tensors that ``f`` reads from outside
    (parameters) get gradients; backward is such a loop from the other end. It keeps the carries and
    computes everything else again.

    Parameters
    ----------
    f : callable
        Takes the carry and an element; returns the next carry, in the same containers and types,
        and y.
    init : object
        The first carry: Tensors or numbers in lists, tuples, dicts and None.
    xs : object
        Tree of Tensors, whose first axis counts the trips; None makes each x None.
    length : int or None
        Number of trips, which is needed if xs is None.
    reverse : bool
        Whether to go from the last element to the first; each y lies where its x does.

    Returns
    -------
    carry : object
        The last one, in the containers of ``init``.
    ys : object
        All y, stacked along a new first axis.

    Raises
    ------
    TypeError
        For a carry that changes its type.
    ValueError
        For numbers of trips that differ.

    See Also
    --------
    while_loop : Ends when a condition no longer holds.
    cond : Chooses one of two functions.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import tensor
    >>> last, sums = F.scan(lambda total, x: (total + x, total + x), 0.0, tensor([1.0, 2.0, 3.0]))
    >>> last.item(), sums.numpy().tolist()
    (6.0, [1.0, 3.0, 6.0])
    """
    if not callable(f):
        raise TypeError(f"scan: f is {f!r}, not a function of (carry, x)")
    carry, slices = _Tree("scan: the carry", init), _Tree("scan: xs", xs)
    trips = _trips(slices.leaves, length)
    recorded = _core.is_tracing() or trips == 0  # the recording tells the types of y
    return (_recorded_scan if recorded else _scan_in_python)(f, carry, slices, trips, reverse)


def _trips(slices: list[Tensor], length: int | None) -> int:
    extents = {leaf._tuple_shape[0] if leaf._tuple_shape else None for leaf in slices}
    if length is not None:
        extents.add(length)
    if len(extents) == 1 and (trips := next(iter(extents))) is not None and trips >= 0:
        return trips
    told = "nothing" if not extents else ", ".join(map(str, sorted(extents, key=str)))
    raise ValueError(
        f"scan: {told} tells the number of trips\n"
        "  why: all Tensors of xs have it as their first axis, and length agrees with them\n"
        f"  fix: give xs of equal length, or length=\n  at:  {_core.user_line()}"
    )


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        _fail(
            f"scan: f returns {_text_of(result)}",
            "it must return a pair: the new carry, and what is stacked",
            "return carry, y (or carry, None)",
        )
    return result[0], result[1]


def _scan_in_python(
    f: Callable[..., Any], carry: _Tree, slices: _Tree, trips: int, reverse: bool
) -> tuple[Any, Any]:
    read: list[Tensor] = []
    # before it runs, so that the body's own writes are those of a trip
    if _core.records_gradients():
        read = carry.leaves + slices.leaves + _read_by("the body of scan", lambda body: f(
            carry.filled([body.input(leaf) for leaf in carry.leaves]), slices.filled([body.element(leaf) for leaf in slices.leaves])
        ))  # fmt: skip
    leaves, rows = carry.leaves, []
    trees: list[_Tree] = []
    for i in reversed(range(trips)) if reverse else range(trips):
        x = slices.filled([leaf[i] for leaf in slices.leaves])
        new, y = _pair(f(carry.filled(leaves), x))
        leaves = carry.leaves_of(new, "comes back")
        trees = trees or [_Tree("scan: y", y)]
        rows.append(trees[0].leaves_of(y, "comes back"))
    columns = [stack(list(column)) for column in zip(*(reversed(rows) if reverse else rows), strict=True)]
    both = _with_zeros_for(read, leaves + columns)
    leaves, columns = both[: len(leaves)], both[len(leaves) :]
    return carry.filled(_as_results(leaves)), trees[0].filled(columns)


def _recorded_scan(
    f: Callable[..., Any], carry: _Tree, slices: _Tree, trips: int, reverse: bool
) -> tuple[Any, Any]:
    spare = [] if carry.leaves or slices.leaves else [Tensor(0)]  # an op has operands
    with _recording("the body of scan") as body:
        inputs = [body.input(leaf) for leaf in carry.leaves + spare]
        x = slices.filled([body.element(leaf) for leaf in slices.leaves])
        new, y = _pair(f(carry.filled(inputs), x))
        outputs, ys = carry.leaves_of(new, "comes back"), _Tree("scan: y", y)
        body.finish(outputs + inputs[len(outputs) :] + ys.leaves)
    found = _core.scan(body, carry.leaves + spare, slices.leaves, trips, reverse)
    return carry.filled(found[: len(inputs)]), ys.filled(found[len(inputs) :])


def while_loop(
    cond_fun: Callable[[_Value], Tensor | float],
    body_fun: Callable[[_Value], _Value],
    init_val: _Value,
    *,
    max_trips: int | None = None,
) -> _Value:
    """Calls ``value = body_fun(value)`` as long as ``cond_fun(value)``.

    A trace records both functions once, and the number of trips may differ from call to call.
    Without a trace Python runs the loop. On a GPU the host waits for the condition of each trip.

    Parameters
    ----------
    cond_fun : callable
        Takes the value; returns one bool.
    body_fun : callable
        Takes the value; returns the next one, in the same containers and types.
    init_val : object
        Tensors or numbers in lists, tuples, dicts and None.
    max_trips : int or None
        Largest number of trips, after which the loop ends. In a trace such a loop takes the time
        and the memory of a `scan` of so many trips; it has gradients and may draw random numbers.
        Without max_trips backward raises RuntimeError.

    Returns
    -------
    object
        The last value, in the containers of ``init_val``.

    Raises
    ------
    TypeError
        For a value that changes its type.

    See Also
    --------
    scan : Goes over the elements of a tensor, and keeps a result of each trip.
    cond : Chooses one of two functions.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import tensor
    >>> F.while_loop(lambda x: x < 100, lambda x: x * 2, tensor(3)).item()
    192
    """
    carry = _Tree("while_loop: the value", init_val)
    if not carry.leaves:
        _fail("while_loop: init_val holds no Tensor", "nothing could end it", "give a Tensor")

    def condition(value: Any) -> Tensor:
        return _flag(cond_fun(value), "while_loop: what cond_fun gives")

    def trip(value: Any) -> list[Tensor]:
        return carry.leaves_of(body_fun(value), "comes back")

    if not _core.is_tracing():
        leaves, trips = carry.leaves, 0
        while trips != max_trips and condition(carry.filled(leaves)):
            leaves, trips = trip(carry.filled(leaves)), trips + 1
        if max_trips and _core.records_gradients():
            read = [] if trips else _read_by("the body of while_loop", lambda body: trip(carry.filled([body.input(leaf) for leaf in carry.leaves])))
            leaves = _with_zeros_for(carry.leaves + read, leaves)
        return carry.filled(_as_results(leaves))
    if max_trips is not None:
        return carry.filled(_bounded_loop(condition, trip, carry, max_trips))
    with _recording("the condition of while_loop") as test:
        test.finish([condition(carry.filled([test.input(leaf) for leaf in carry.leaves]))])
    with _recording("the body of while_loop") as body:
        body.finish(trip(carry.filled([body.input(leaf) for leaf in carry.leaves])))
    return carry.filled(_core.while_loop(test, body, carry.leaves))


def _bounded_loop(
    condition: Callable[[Any], Tensor],
    trip: Callable[[Any], list[Tensor]],
    carry: _Tree,
    max_trips: int,
) -> list[Tensor]:
    """Runs the loop as a scan whose trips do nothing once the condition was false."""

    def step(state: Any, _: None) -> Any:
        goes_on, leaves = state
        goes_on = cond(goes_on, lambda: condition(carry.filled(leaves)), lambda: goes_on)
        return [goes_on, cond(goes_on, lambda: trip(carry.filled(leaves)), lambda: leaves)], None

    first: list[Any] = [True, carry.leaves]
    return scan(step, first, length=max_trips)[0][1]


def _as_results(leaves: list[Tensor]) -> list[Tensor]:
    """Makes results like those of an op: no tensor from outside, which writes into a result would
    reach, and none twice.
    """
    return [leaf.reshape(leaf._tuple_shape) for leaf in leaves]


def _read_by(what: str, function: Callable[[_core.BodyRecorder], object]) -> list[Tensor]:
    """Records a function that does not run, and returns what it reads from outside. An error ends
    the recording and is not raised.
    """
    with _recording(what) as body:
        try:
            function(body)
        except Exception:  # noqa: BLE001, S110
            pass
        return body.read()


def _with_zeros_for(read: list[Tensor], results: list[Tensor]) -> list[Tensor]:
    """Returns the results as if they depended on ``read`` with gradients of zeros, as they do in a
    trace.
    """
    read = [each for each in read if "float" in each.dtype.name]

    def backward(gradients: list[Tensor | None]) -> list[Tensor | None]:
        zeros = [ops.full(shape=each._tuple_shape, value=0.0, dtype=each.dtype.name, device=each) for each in read]
        return [*zeros, *gradients]

    return _core.custom_apply(read + results, results, backward) if read else results


def cond(
    pred: Tensor | float,
    true_fun: Callable[[*_Operands], _Value],
    false_fun: Callable[[*_Operands], _Value],
    *operands: *_Operands,
) -> _Value:
    """Returns ``true_fun(*operands)`` if pred, else ``false_fun(*operands)``.

    A trace records both functions, and each call runs the one that pred selects. Operands and
    tensors that the functions read from outside get gradients; what only the other function reads
    gets zeros. If both draw random numbers, the generator advances for both. Without a trace one of
    them runs; a GradManager calls the other one, too, to record it for the zeros. With a Python
    bool only one of them is called. On a GPU the host waits for pred; `F.where` needs no wait.

    Parameters
    ----------
    pred : Tensor or float
        One bool, or a number, which counts as true unless it is 0.
    true_fun, false_fun : callable
        Called with ``operands``; both return the same containers and types.
    *operands : object
        Tensors, or containers of them.

    Returns
    -------
    object
        The result of the function that was selected.

    Raises
    ------
    TypeError
        In a trace where the functions return different types.

    See Also
    --------
    where : Chooses element by element, and computes both sides.
    while_loop : Repeats a function while a condition holds.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import tensor
    >>> x = tensor(-2.0)
    >>> F.cond(x > 0, F.sqrt, lambda x: x * 0, x).item()
    -0.0
    """
    if not _core.is_tracing() or isinstance(pred, bool):
        flag = pred if isinstance(pred, bool) else bool(_flag(pred, "cond: pred"))
        runs, rests = (true_fun, false_fun) if flag else (false_fun, true_fun)
        results = _Tree("cond: the result", runs(*operands))
        if isinstance(pred, bool):
            return results.filled(results.leaves)
        read = _read_by("a branch of cond", lambda _: rests(*operands)) if _core.records_gradients() else []
        return results.filled(_as_results(_with_zeros_for(read, results.leaves)))
    with _recording("a branch of cond") as if_true:
        results = _Tree("cond: the result", true_fun(*operands))
        if_true.finish(results.leaves)
    with _recording("a branch of cond") as if_false:
        if_false.finish(results.leaves_of(false_fun(*operands), "of false_fun comes"))
    return results.filled(_core.cond(_flag(pred, "cond: pred"), if_true, if_false))
