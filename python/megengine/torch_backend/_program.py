"""An ATen graph as a program of ours: what its values become, and the calls."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

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
from ..random import seed as seed_ours
from ..tensor import Tensor
from ._aten import RANDOM, Unsupported, function_of
from ._layouts import (
    channels_last,
    has_fixed_sizes,
    is_channels_last,
    lies_as_ours,
    order_of,
)
from ._partition import DTYPES, line_of, name_of, user_line_of
from ._private import unset_fake_temporarily

_exchange = _core.Exchange(torch.Tensor)
_arena: list[Replay] = []  # one, whose arena is that of all


def share_arena(replay: Replay) -> Replay:
    """Programs of one process run one after the other, so what lives within a call has one place."""
    if _arena:
        replay.share_arena(_arena[0])
    else:
        _arena.append(replay)
    return replay


def seed_from_torch() -> None:
    """Our generator follows torch's."""
    seed_ours(int(torch.randint(2**31 - 1, ())))


def _release_unused(limit: int) -> None:
    """Gives the system what our allocator holds free, where that is more than a few parts of the limit: it counts as the process' memory."""
    if get_reserved_memory("cpux") - get_allocated_memory("cpux") > limit // 64:
        coalesce_free_memory()


def bytes_needed(error: MemoryError) -> int:
    """By what a refused limit's error tells; 0 for another error."""
    found = re.findall(r"(?:at least|which makes) (\d+)", str(error))
    return int(found[-1]) if found else 0


def _name_of(graph: fx.GraphModule) -> str:
    """As plans and errors call it: "forward from net.py:3 in forward"."""
    line = next((user_line_of(node) for node in graph.graph.nodes if line_of(node)), "")
    is_backward = any("tangents" in node.name for node in graph.graph.find_nodes(op="placeholder"))
    return ("backward" if is_backward else "forward") + (f" from {line}" if line else "")


# Of small integers and truths.
_ADDING_IN_64_BITS = {"sum", "prod", "cumsum", "cumprod"}


class Program:
    """Calls of one graph.

    options: of `jit.trace`. originals: of a part of a graph, the nodes that its own stand for. line_of: what names a node in plans and errors.
    strided: the results that get the strides that torch has planned; others, which no program of the user's sees, lie as they are made.
    outside: what torch runs of the same graph, for plans.
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
        self._limit = memory_limit_bytes(options.get("memory_limit"))
        if self._limit:  # blocks of up to 1 MiB take what they need, too: what is free counts
            _core.set_memory_growth(2**21, 0, 0.0, "cpu0:0")
        results = list(graph.graph.output_node().args[0])
        self._expected = [node.meta.get("val") if isinstance(node, fx.Node) else node for node in results]
        self._strided = [node in strided for node in results]
        inputs = graph.graph.find_nodes(op="placeholder")
        self._orders = {place: order for place, node in enumerate(inputs) if (order := order_of(node.meta.get("val")))}
        self._copied = sum(_bytes_of_copy(node.meta.get("val")) for place, node in enumerate(inputs) if place not in self._orders)
        self._takes_tensors_alone = all(isinstance(node.meta.get("val"), torch.Tensor) for node in inputs)
        places = {node: place for place, node in enumerate(inputs)}
        self._passed_on = [places.get(node) for node in results]  # of each result the argument that it is, if any
        self._result_orders: dict[int, tuple[int, ...]] = {}
        for place, (value, is_strided, passed_on) in enumerate(zip(self._expected, self._strided, self._passed_on, strict=True)):
            if is_strided and passed_on is None and (order := order_of(value)):
                self._result_orders[place], self._expected[place] = order, value.permute(order)
            elif is_strided and passed_on is None and isinstance(value, torch.Tensor) and _known_steps(value):
                self._copied += _bytes_of_copy(value)
        self._wanted = [_wanted(*each) for each in zip(self._expected, self._strided, self._passed_on, strict=True) if isinstance(each[0], torch.Tensor)]
        self.draws = any(name_of(node).partition(".")[0] in RANDOM for node in graph.graph.nodes)
        self._outside = [*outside]
        if self._copied:
            self._outside.append(OutsideProgram("copies of arguments and results", "strides that are not row-major in any order of axes", self._copied))
        self._is_plain = self._takes_tensors_alone and not (self.draws or self._limit or self._orders or self._result_orders)
        # The next call, of a plain program whose results could all be shared: empties the arguments, or gives None and leaves them.
        self.quick: Callable[[list[Any]], list[Any] | None] | None = None
        self._replays: dict[tuple[Any, ...], tuple[Replay, list[Any]]] = {}
        self._constants: dict[str, Tensor] = {}

    def __call__(self, arguments: list[Any], beside: int = 0) -> list[Any]:
        """beside: bytes that are held elsewhere meanwhile, and taken from the limit."""
        turned = {place: order for place, order in self._orders.items() if not lies_as_ours(arguments[place])}  # of other parts, some lie as they were made
        shown = [each.detach().permute(turned[place]) if place in turned else each for place, each in enumerate(arguments)] if turned else arguments
        given, left = _exchange.ours(shown)
        for place in left:
            given[place] = as_ours(shown[place])
        if self.draws:
            seed_from_torch()
        replay, form, tensors = self._replay(given, beside, turned)
        if self._limit:
            _release_unused(self._limit)
        try:
            found = replay(tensors)
        except MemoryError as error:
            raise self._with_copies(error) from None
        theirs, left = _exchange.theirs(found, self._wanted)
        if left or len(form) != len(theirs):
            theirs = self._by_copies(arguments, form, found, theirs)
        elif self._is_plain:
            self.quick = functools.partial(_exchange.replayed, replay.recorded, self._wanted)
        for place, order in self._result_orders.items():
            theirs[place] = theirs[place].permute(_inverse(order))
        return theirs

    def _by_copies(self, arguments: list[Any], form: list[Any], found: list[Tensor], theirs: list[Any]) -> list[Any]:
        """The results, of which some are no tensors, are arguments, or cannot be given away as they lie."""
        pairs = zip(found, theirs, strict=True)
        results = [next(pairs) if each is Tensor else (each, None) for each in form]
        same = [None if place is None else arguments[place] for place in self._passed_on]
        return [
            argument if argument is not None else given if given is not None else as_theirs(value, expected, strided)
            for (value, given), expected, argument, strided in zip(results, self._expected, same, self._strided, strict=True)
        ]

    def plan(self, beside: int = 0) -> MemoryPlan:
        """Of a call with tensors as the graph has them, all of known sizes. MemoryError for a limit that cannot be kept."""
        values = [node.meta.get("val") for node in self._graph.graph.find_nodes(op="placeholder")]
        with unset_fake_temporarily():  # torch compiles in a mode in which tensors have no memory; what is not written takes none
            values = [value.permute(self._orders[place]) if place in self._orders else value for place, value in enumerate(values)]
            given = [_core.borrow(_unwritten(v)) if isinstance(v, torch.Tensor) else v for v in values]
            replay, _, tensors = self._replay(given, beside, self._orders)
            try:
                return replay.plan(tensors)
            except MemoryError as error:
                raise self._with_copies(error) from None

    def _with_copies(self, error: MemoryError) -> MemoryError:
        """A limit that is refused, where copies are taken from it."""
        if not self._copied or not (needed := bytes_needed(error)):
            return error
        return MemoryError(f"{error}\n  beside: copies of arguments and results of other strides take {self._copied} bytes, which makes {self._copied + needed}")

    def _replay(self, given: list[Any], beside: int, turned: dict[int, tuple[int, ...]]) -> tuple[Replay, list[Any], list[Tensor]]:
        """The program, which of its results are tensors, and its arguments. Sizes are numbers of it: there is one for each of their values."""
        limit = max(1, self._limit - beside - self._copied) if self._limit else None
        if self._takes_tensors_alone:
            tensors, sizes = given, (limit, *turned)
        else:
            tensors = [value for value in given if isinstance(value, Tensor)]
            sizes = (limit, *turned, None, *(value for value in given if not isinstance(value, Tensor)))
        if sizes not in self._replays:
            form: list[Any] = []
            pattern = [Tensor if isinstance(value, Tensor) else value for value in given]

            def body(*values: Tensor) -> list[Tensor]:
                rest = iter(values)
                arguments: list[Any] = [next(rest) if each is Tensor else each for each in pattern]
                for place, order in turned.items():
                    arguments[place] = F.transpose(arguments[place], _inverse(order))
                results = self.interpret(arguments)
                for place, order in self._result_orders.items():
                    results[place] = F.transpose(results[place], order)
                results = [_laid_out(value, expected) for value, expected in zip(results, self._expected, strict=True)]
                form[:] = [Tensor if isinstance(each, Tensor) else each for each in results]
                return [each for each in results if isinstance(each, Tensor)]

            waiting = [OutsideProgram("tensors that wait for other graphs and parts", "torch holds them", beside)] if beside else []
            replay = Replay(body, self._name, [*self._outside, *waiting], **{**self._options, "memory_limit": limit})
            self._replays[sizes] = share_arena(replay), form
        return (*self._replays[sizes], tensors)

    def interpret(self, arguments: list[Any]) -> list[Any]:
        """The graph's results, in a recording. Unsupported, with the node, for a form that we do not have."""
        known: dict[fx.Node, Any] = {}
        rest = iter(arguments)
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(rest)
            elif node.op == "get_attr":
                known[node] = self._constant(node.target)
            elif node.op == "output":
                return [known[each] if isinstance(each, fx.Node) else each for each in node.args[0]]
            else:
                try:
                    with _core.UserLine(self._line_of(node)):
                        known[node] = _settled(self._apply(node, known), node.meta.get("val"))
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
        if name.partition(".")[0] in _ADDING_IN_64_BITS and node.meta["val"].dtype is torch.int64:
            args = (args[0].astype("int64"), *args[1:])
        return (function_of(name) if name else node.target)(*args, **kwargs)  # type: ignore[misc]  # it was looked for before

    def _constant(self, name: str) -> Tensor:
        if name not in self._constants:
            self._constants[name] = as_ours(getattr(self._graph, name).detach().clone())
        return self._constants[name]


def as_ours(value: Any) -> Any:
    """A tensor over torch's memory, where that is as ours lies, else over a copy; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return _core.borrow(as_readable(value.detach()))


def as_readable(value: torch.Tensor) -> torch.Tensor:
    """The same, if it lies as tensors of ours do, else a copy that does."""
    return value if lies_as_ours(value) else value.contiguous()


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _bytes_of_copy(value: Any) -> int:
    """What two of it take more than one, if it has to be copied; elements that are in many places count once."""
    if not isinstance(value, torch.Tensor) or not has_fixed_sizes(value) or lies_as_ours(value):
        return 0
    return value.element_size() * math.prod(extent for extent, step in zip(value.shape, value.stride(), strict=True) if step)


def _unwritten(expected: torch.Tensor) -> torch.Tensor:
    """As calls will have it, by its shape, dtype and order; what is not written takes no memory."""
    memory = torch.empty(expected.shape, dtype=getattr(torch, DTYPES[expected.dtype]))
    return channels_last(memory) if is_channels_last(expected) else memory


def _laid_out(value: Any, expected: Any) -> Any:
    """A result in the order of memory that torch has planned for it, where that is one of ours."""
    if isinstance(value, Tensor) and isinstance(expected, torch.Tensor) and is_channels_last(expected):
        return ops.relayout(value, layout="channels_last")
    return value


def _wanted(expected: torch.Tensor, strided: bool, passed_on: int | None) -> _core.Wanted:
    """How a result is torch's without a copy. One that is an argument is no result of ours."""
    dtype = DTYPES.get(expected.dtype)
    is_same = passed_on is None and dtype is not None and getattr(torch, dtype) is expected.dtype
    return _core.Wanted(dtype if is_same else None, _known_steps(expected) if strided else None)


def _known_steps(expected: torch.Tensor) -> list[int] | None:
    """None where only calls know them, or where one element is in many places."""
    steps = expected.stride()
    return list(steps) if all(isinstance(step, int) and step for step in (*expected.shape, *steps)) else None


def as_theirs(value: Any, expected: Any, strided: bool = True) -> Any:
    """A copy, in the dtype that torch has planned for it, and with its strides."""
    if not isinstance(value, Tensor):
        return value
    lent = torch.from_dlpack(_core.lend(value))
    steps = _known_steps(expected) if strided else None
    made = torch.empty_strided(expected.shape, steps, dtype=expected.dtype) if steps is not None else torch.empty(lent.shape, dtype=expected.dtype)
    return made.copy_(lent)


def _settled(value: Any, expected: Any) -> Any:
    """In the dtype that torch has for it. Unsupported where a part is missing, or the shape is another one."""
    if isinstance(expected, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(expected):
            raise Unsupported("with other results")
        return [_settled(part, each) for part, each in zip(value, expected, strict=True)]
    if not isinstance(expected, torch.Tensor):
        return value
    shape: Sequence[Any] = expected.shape
    if value is None and 0 in shape:
        value = Tensor([]).reshape(*shape)
    if not isinstance(value, Tensor) or (all(isinstance(n, int) for n in shape) and value._tuple_shape != tuple(shape)):
        if isinstance(value, Tensor) and not shape and value.size == 1:
            return value.reshape(()).astype(DTYPES[expected.dtype])
        raise Unsupported(f"with a result of shape {tuple(shape)}")
    wanted = DTYPES[expected.dtype]
    return value if value.dtype.name == wanted else value.astype(wanted)
