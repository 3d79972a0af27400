"""An ATen graph as a program of ours: its recording, and its calls."""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree

from .. import _core
from .. import functional as F
from ..core import ops
from ..device import coalesce_free_memory, get_allocated_memory, get_reserved_memory
from ..jit.configs import memory_limit_bytes
from ..jit.replay import Replay
from ..jit.report import MemoryPlan, OutsideProgram
from ..tensor import Tensor
from ._aten import RANDOM, function_of
from ._bytes import COPIES, OTHER_PARTS, owners_of, told_with
from ._devices import Place, device_of, place_on
from ._forms import Unsupported
from ._linalg import BY_ORDER_OF_MEMORY
from ._names import kinds_text, name_of_argument, uses_of
from ._partition import (
    DTYPES,
    is_check,
    line_of,
    name_of,
    short_line_of,
    tensors_in,
    user_line_of,
)
from ._private import unset_fake_temporarily
from ._strides import (
    channels_last,
    has_fixed_sizes,
    is_channels_last,
    lies_as_ours,
    order_of,
)
from ._views import Views

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None


def release_torchs() -> None:
    """Gives the system what the allocator of torch's operations holds free."""
    if _trim:
        _trim(0)


def release_unused(limit: int) -> None:
    """Gives the system what our allocator holds free, where that is more than a few parts of the limit: it counts as the process' memory."""
    if get_reserved_memory("cpux") - get_allocated_memory("cpux") > limit // 64:
        coalesce_free_memory()


def _name_of(graph: fx.GraphModule) -> str:
    """Returns the name in plans and errors: "forward from net.py:3 in forward"."""
    line = next((short_line_of(node) for node in graph.graph.nodes if line_of(node)), "")
    is_backward = any("tangents" in node.name for node in graph.graph.find_nodes(op="placeholder"))
    return ("backward" if is_backward else "forward") + (f" from {line}" if line else "")


_MOST_REPLAYS = 16  # of a graph: each amount that others keep beside it has a limit of its own
# These ops add small integers and truth values in 64 bits.
_ADDING_IN_64_BITS = {"sum", "prod", "cumsum", "cumprod"}


class Program:
    """Calls of one graph.

    options: the options of `jit.trace`. originals: for a part of a graph, the nodes that its own
    stand for. line_of: names a node in plans and errors.
    strided: the results that get the strides that torch has planned; others, which no program of the user's sees, lie as they are made.
    outside: the part of the graph that torch runs, for plans.
    What lies in another order of axes than ours is read, or given, as its transpose; other strides are copied, and the copies count under a limit.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        options: dict[str, Any],
        originals: dict[fx.Node, fx.Node] | None = None,
        line_of: Callable[[fx.Node], str] = user_line_of,
        strided: Collection[fx.Node] = (),
        outside: Sequence[OutsideProgram] = (),
    ) -> None:
        self._graph, self._options, self._line_of, self._name = graph, options, line_of, _name_of(graph)
        self._originals = originals or {}
        self.place = place_on(device_of(graph.graph))
        self._limit = memory_limit_bytes(options.get("memory_limit"))
        # blocks of up to 1 MiB grow as needed, so free memory counts
        if self._limit and self.place.is_host:
            _core.set_memory_growth(2**21, 0, 0.0, "cpu0:0")
        # their conditions come after the results
        self._checks = [node for node in graph.graph.nodes if is_check(node)]
        given = self._given = [*graph.graph.output_node().args[0], *(node.args[0] for node in self._checks)]
        first = {node: place for place, node in reversed([*enumerate(given)]) if isinstance(node, fx.Node)}
        self._chosen = [place for place, node in enumerate(given) if first.get(node, place) == place]  # each value once
        results = [given[place] for place in self._chosen]
        rows = {place: row for row, place in enumerate(self._chosen)}
        # for each wanted result its row
        self._rows = [rows[first.get(node, place)] for place, node in enumerate(given)]
        self._expected = [node.meta.get("val") if isinstance(node, fx.Node) else node for node in results]
        self._strided = [node in strided for node in results]
        inputs = graph.graph.find_nodes(op="placeholder")
        self._orders = {place: order for place, node in enumerate(inputs) if (order := order_of(node.meta.get("val")))}
        self._copied = sum(_bytes_of_copy(node.meta.get("val")) for place, node in enumerate(inputs) if place not in self._orders)
        self._takes_tensors_alone = all(isinstance(node.meta.get("val"), torch.Tensor) for node in inputs)
        self._unread = {place for place, node in enumerate(inputs) if not node.users}
        self._named = [name_of_argument(node) for node in inputs]
        places = {node: place for place, node in enumerate(inputs)}
        # for each result the argument that it is, if any
        self._passed_on = [places.get(node) for node in results]
        self._copied += _bytes_of_shared(results)
        self._views = Views(graph, results, strided)
        self._result_orders: dict[int, tuple[int, ...]] = {}
        for place, (value, is_strided, passed_on) in enumerate(zip(self._expected, self._strided, self._passed_on, strict=True)):
            if is_strided and passed_on is None and (order := order_of(value)):
                self._result_orders[place], self._expected[place] = order, value.permute(order)
            elif is_strided and passed_on is None and isinstance(value, torch.Tensor) and _known_steps(value):
                self._copied += _bytes_of_copy(value)
        self._gives_tensors_alone = all(isinstance(each, torch.Tensor) for each in self._expected)
        wanted = zip(self._expected, self._strided, self._passed_on, strict=True)
        self._wanted = [_wanted(self.place, *each) for each in wanted if isinstance(each[0], torch.Tensor)]
        self.draws = any(name_of(node).partition(".")[0] in RANDOM for node in graph.graph.nodes)
        self._outside = [*outside]
        if self._copied:
            self._outside.append(OutsideProgram("copies of arguments and results", "strides that are not row-major in any order of axes, or memory of another value", self._copied))
        self._is_plain = self._takes_tensors_alone and not (self._checks or self.draws or self._limit or self._orders or self._result_orders or self._views)
        # Runs the next call of a plain program whose results can all be shared; empties the arguments, or returns None and leaves them.
        self.quick: Callable[[list[Any]], list[Any] | None] | None = None
        self._replays: dict[tuple[Any, ...], tuple[Replay, dict[Any, list[Any]]]] = {}
        self._constants: dict[str, Tensor] = {}

    def __call__(self, arguments: list[Any], beside: int = 0, waiting: int = 0) -> list[Any]:
        """beside: bytes that other graphs hold meanwhile; waiting: those that other parts of this one do. Both are taken from the limit."""
        # values of other parts may lie as they were made
        turned = {place: order for place, order in self._orders.items() if not lies_as_ours(arguments[place])}
        shown = [each.detach().permute(turned[place]) if place in turned else each for place, each in enumerate(arguments)] if turned else arguments
        given, left = self.place.exchange.ours(shown)
        for place in left:
            given[place] = self.place.as_ours(shown[place])
        drawn = self.place.random_state() if self.draws and self._limit else None
        if self.draws:
            self.place.seed()
        replay, forms, tensors = self._replay(given, beside + waiting, turned)
        if self._limit and self.place.is_host:
            release_unused(self._limit)
        try:
            with _core.OnDevice(self.place.name):
                found = replay(tensors)
        except MemoryError as error:
            if drawn is not None:
                self.place.set_random_state(drawn)
            raise self._told(error, beside, waiting) from None
        theirs, left = self.place.exchange.theirs(found, self._wanted)
        if left or not self._gives_tensors_alone:
            theirs = self._by_copies(arguments, forms[_shapes_of(tensors)], found, theirs)
        elif self._is_plain and len(self._rows) == len(self._chosen):
            self.quick = functools.partial(self.place.exchange.replayed, replay.function, self._wanted)
        for place, order in self._result_orders.items():
            theirs[place] = theirs[place].permute(_inverse(order))
        if self._views:
            self._views.place(arguments, theirs)
        results = [theirs[row] for row in self._rows]
        count = len(results) - len(self._checks)
        for node, holds in zip(self._checks, results[count:], strict=True):
            if not holds:
                raise RuntimeError(node.args[1] if len(node.args) > 1 else "Expected Tensor with single nonzero value, but got zero")
        return results[:count]

    def _by_copies(self, arguments: list[Any], form: list[Any], found: list[Tensor], theirs: list[Any]) -> list[Any]:
        """Returns the results if some are no tensors, are arguments, or must be copied."""
        pairs = zip(found, theirs, strict=True)
        results = [next(pairs) if each is Tensor else (each, None) for each in form]
        same = [None if place is None else arguments[place] for place in self._passed_on]
        return [
            argument if argument is not None else given if given is not None else as_theirs(self.place, value, expected, strided)
            for (value, given), expected, argument, strided in zip(results, self._expected, same, self._strided, strict=True)
        ]

    def plan(self, beside: int = 0, waiting: int = 0) -> MemoryPlan:
        """The plan of a call with tensors as the graph has them, all of known sizes. MemoryError for a limit that cannot be kept."""
        values = [node.meta.get("val") for node in self._graph.graph.find_nodes(op="placeholder")]
        # torch compiles in a mode in which tensors have no memory; unwritten memory takes none
        with unset_fake_temporarily():
            values = [value.permute(self._orders[place]) if place in self._orders else value for place, value in enumerate(values)]
            given = [self.place.absent(_unwritten(v)) if isinstance(v, torch.Tensor) else v for v in values]
            replay, _, tensors = self._replay(given, beside + waiting, self._orders)
            try:
                with _core.OnDevice(self.place.name):
                    return replay.plan(tensors)
            except MemoryError as error:
                raise self._told(error, beside, waiting) from None

    def _told(self, error: MemoryError, beside: int, waiting: int) -> MemoryError:
        """Returns the refusal of a limit of which the plan gets only the rest."""
        return told_with(error, self._limit, [*owners_of(beside), (waiting, OTHER_PARTS), (self._copied, COPIES)], kinds_text(self._graph.graph))

    def _replay(self, given: list[Any], beside: int, turned: dict[int, tuple[int, ...]]) -> tuple[Replay, dict[Any, list[Any]], list[Tensor]]:
        """Returns the program for the arguments' shapes, its results that are no tensors, and its
        arguments. Sizes are constants in a program, so each value of them has its own.
        """
        limit = max(1, self._limit - beside - self._copied) if self._limit else None
        if self._takes_tensors_alone:
            tensors, sizes = given, (limit, *turned)
        else:
            tensors = [value for value in given if isinstance(value, Tensor)]
            given = [None if place in self._unread and not isinstance(value, Tensor) else value for place, value in enumerate(given)]
            sizes = (limit, *turned, None, *(value for value in given if not isinstance(value, Tensor)))
        if sizes not in self._replays:
            if self._limit and len(self._replays) == _MOST_REPLAYS:
                del self._replays[next(iter(self._replays))]
            forms: dict[Any, list[Any]] = {}
            pattern = [Tensor if isinstance(value, Tensor) else value for value in given]

            def body(*values: Tensor) -> list[Tensor]:
                rest = iter(values)
                arguments: list[Any] = [next(rest) if each is Tensor else each for each in pattern]
                self._tell_names(arguments)
                for place, order in turned.items():
                    arguments[place] = F.transpose(arguments[place], _inverse(order))
                every = self.interpret(arguments)
                results = [every[place] for place in self._chosen]
                for place, order in self._result_orders.items():
                    results[place] = F.transpose(results[place], order)
                results = [_laid_out(value, expected) for value, expected in zip(results, self._expected, strict=True)]
                forms[_shapes_of(values)] = [Tensor if isinstance(each, Tensor) else each for each in results]
                return [each for each in results if isinstance(each, Tensor)]

            waiting = [OutsideProgram("tensors that wait for other graphs and parts", "torch holds them", beside)] if beside else []
            replay = Replay(body, self._name, [*self._outside, *waiting], uses_of(self._named), **{**self._options, "memory_limit": limit})
            self._replays[sizes] = self.place.share_arena(replay), forms
        return (*self._replays[sizes], tensors)

    def _tell_names(self, arguments: list[Any]) -> None:
        """Tells a recording what the user's program calls its arguments."""
        for value, (name, _) in zip(arguments, self._named, strict=True):
            if isinstance(value, Tensor):
                _core.set_name(value, name)

    def interpret(self, arguments: list[Any], with_checks: bool = True) -> list[Any]:
        """Records the graph; returns its results, then the conditions of its checks. Unsupported,
        with the node, for a form that we do not have.
        """
        known: dict[fx.Node, Any] = {}
        rest = iter(arguments)
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(rest)
            elif node.op == "get_attr":
                known[node] = self._constant(node.target)
            elif node.op == "output":
                given = self._given if with_checks else node.args[0]
                return [known[each] if isinstance(each, fx.Node) else each for each in given]
            elif not is_check(node):
                try:
                    with _core.UserLine(self._line_of(node)):
                        known[node] = _settled(self._apply(node, known), node.meta["val"])
                except MemoryError:
                    raise
                except Exception as error:
                    raise Unsupported(str(error).partition("\n")[0], self._originals.get(node, node)) from error
        raise AssertionError("a graph without an output")

    def _apply(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        def ours(value: Any) -> Any:
            return DTYPES[value] if isinstance(value, torch.dtype) else value

        args, kwargs = _pytree.tree_map(ours, fx.map_arg((node.args, node.kwargs), known.__getitem__))
        without = ("device", "layout", "pin_memory", "memory_format", "generator")
        kwargs = {name: value for name, value in kwargs.items() if name not in without and value is not None}
        name = name_of(node)
        operation = name.partition(".")[0]
        if operation in _ADDING_IN_64_BITS and node.meta["val"].dtype is torch.int64:
            args = (args[0].astype("int64"), *args[1:])
        if operation in BY_ORDER_OF_MEMORY:
            kwargs["is_contiguous"] = node.args[0].meta["val"].is_contiguous()
        if torch.Tag.pointwise in getattr(node.target, "tags", ()):
            args = _in_torchs_dtype(node, args)
        return (function_of(name) if name else node.target)(*args, **kwargs)  # type: ignore[misc]  # it was looked for before

    def _constant(self, name: str) -> Tensor:
        if name not in self._constants:
            self._constants[name] = self.place.as_ours(getattr(self._graph, name).detach().clone())
        return self._constants[name]


# Operations that multiply by an operand without axes, or divide by one, before rounding it to halves.
_KEEPING_THE_SECOND = {"mul", "div"}


def _in_torchs_dtype(node: fx.Node, values: Sequence[Any]) -> list[Any]:
    """Returns the operands of a pointwise operator. An operand without axes does not make others
    wider; torch first rounds it to their dtype.
    """
    made = [each.meta["val"] for each in node.args if isinstance(each, fx.Node) and isinstance(each.meta["val"], torch.Tensor)]
    flat, wide = ({each.dtype for each in made if bool(each.ndim) == has_axes} for has_axes in (False, True))
    if not (flat and wide):
        return list(values)
    common = torch.result_type(*(torch.empty(shape, dtype=functools.reduce(torch.promote_types, each)) for shape, each in (((), flat), ((1,), wide))))
    result = node.meta["val"].dtype
    common = result if result.is_floating_point and not common.is_floating_point else common  # quotients of integers
    settled = []
    for place, value in enumerate(values):
        if isinstance(value, Tensor) and value.ndim == 0 and value.dtype != np.bool_:
            is_kept = place == 1 and common.itemsize == 2 and name_of(node).partition(".")[0] in _KEEPING_THE_SECOND
            value = value.astype("float32" if is_kept else DTYPES[common])
        settled.append(value)
    return settled


def _shapes_of(tensors: Iterable[Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(each._tuple_shape for each in tensors)


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _bytes_of_copy(value: Any) -> int:
    """Returns the bytes of a copy, if one is needed; elements that are in many places count once.
    """
    if not isinstance(value, torch.Tensor) or not has_fixed_sizes(value) or lies_as_ours(value):
        return 0
    return value.element_size() * math.prod(extent for extent, step in zip(value.shape, value.stride(), strict=True) if step)


# These return the memory of their arguments.
_SHARING = {"view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "alias", "detach", "clone", "lift_fresh_copy", "_to_copy"}


def _bytes_of_shared(results: Iterable[Any]) -> int:
    """Returns the bytes of results in the memory of an argument, or of another result: each is
    copied, as torch may write to it.
    """
    groups: dict[fx.Node, list[fx.Node]] = {}
    for node in results:
        if isinstance(node, fx.Node) and node.op == "call_function":
            source = node
            while source.op == "call_function" and name_of(source).partition(".")[0] in _SHARING:
                source = source.all_input_nodes[0]
            groups.setdefault(source, []).append(node)
    shared = [node for source, group in groups.items() if source.op == "placeholder" or len(group) > 1 for node in group]
    tensors = [value for node in shared for value in tensors_in(node.meta.get("val")) if has_fixed_sizes(value)]
    return sum(value.numel() * value.element_size() for value in tensors)


def _unwritten(expected: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with the shape, dtype and order that calls will have; unwritten pages take
    no memory.
    """
    memory = torch.empty(expected.shape, dtype=getattr(torch, DTYPES[expected.dtype]), device="cpu")
    return channels_last(memory) if is_channels_last(expected) else memory


def _laid_out(value: Any, expected: Any) -> Any:
    """Returns a result in the memory order that torch has planned for it, if that is one of ours.
    """
    if isinstance(value, Tensor) and isinstance(expected, torch.Tensor) and is_channels_last(expected):
        return ops.relayout(value, layout="channels_last")
    return value


def _wanted(place: Place, expected: torch.Tensor, strided: bool, passed_on: int | None) -> _core.Wanted:
    """Returns the form in which torch takes a result without a copy; none for a result that is an
    argument.
    """
    dtype = DTYPES.get(expected.dtype)
    is_same = passed_on is None and dtype is not None and getattr(torch, dtype) is expected.dtype and expected.device == place.device
    return _core.Wanted(dtype if is_same else None, _known_steps(expected) if strided else None)


def _known_steps(expected: torch.Tensor) -> list[int] | None:
    """Returns the strides; None if only calls know them, or one element is in many places."""
    steps = expected.stride()
    return list(steps) if all(isinstance(step, int) and step for step in (*expected.shape, *steps)) else None


def as_theirs(place: Place, value: Any, expected: Any, strided: bool = True) -> Any:
    """Returns a copy in the dtype and with the strides that torch has planned."""
    if not isinstance(value, Tensor):
        return value
    lent, device = place.lent(value), expected.device
    steps = _known_steps(expected) if strided else None
    made = torch.empty(lent.shape, dtype=expected.dtype, device=device) if steps is None else torch.empty_strided(expected.shape, steps, dtype=expected.dtype, device=device)
    return made.copy_(lent)


def _settled(value: Any, expected: Any) -> Any:
    """Casts results to torch's dtypes. Unsupported if a part is missing or not a number, or a shape
    differs.
    """
    if isinstance(expected, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(expected):
            raise Unsupported("with other results")
        return [_settled(part, each) for part, each in zip(value, expected, strict=True)]
    if not isinstance(expected, torch.Tensor):
        if isinstance(value, Tensor) and expected is not None:
            raise Unsupported("with a tensor in the place of a number")
        return None if isinstance(value, Tensor) else value
    shape: Sequence[Any] = expected.shape
    if value is None and 0 in shape:
        value = Tensor([]).reshape(*shape)
    if not isinstance(value, Tensor) or (all(isinstance(n, int) for n in shape) and value._tuple_shape != tuple(shape)):
        if isinstance(value, Tensor) and not shape and value.size == 1:
            return value.reshape(()).astype(DTYPES[expected.dtype])
        raise Unsupported(f"with a result of shape {tuple(shape)}")
    wanted = DTYPES[expected.dtype]
    return value if value.dtype.name == wanted else value.astype(wanted)
