"""Forward and backward of one graph, as AOTAutograd compiles them, and the values that pairs keep
at the same time.
"""

from __future__ import annotations

import copy
import gc
import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import fx

from ..jit.configs import memory_limit_bytes
from ._buckets import bucket_bytes
from ._bytes import bytes_needed
from ._compiled import Compiled, under_way
from ._crossing import PLANNED, REFUSED, SEEN, have_fixed_sizes, partitioner
from ._names import Named, name_arguments
from ._private import default_partition, sequence_number
from ._sizes import Alone, Planned, Sizes, are_known_by_call

Bytes = Mapping[int, int]  # address of memory -> its bytes


class Call:
    """A call of forward, which lives as long as anything that it keeps for its backward."""

    def __init__(self, backward: Compiled | None, saved: Sequence[Any]) -> None:
        """backward: the planned graph that is still to run. saved: arguments of this call that it
        also gets.
        """
        self.backward, self.saved = backward, _bytes_at(saved)
        self.held: dict[int, int] = {}
        # Others may hold these for longer: they do not tell how long the call lives.
        self.given = _bytes_at(each for each in saved if isinstance(each, torch.Tensor) and each.is_leaf and not each.requires_grad)
        self.sequence = sequence_number()  # the number of its node in autograd, if it has one


_held: dict[int, Call] = {}
_numbers = itertools.count()


class Pair:
    """The compilers that AOTAutograd asks for one graph of dynamo's."""

    def __init__(self, options: dict[str, Any], fallback: bool, inputs: Iterable[Any] = (), breaks: bool = False, named: Sequence[Named] = ()) -> None:
        """inputs: the inputs of the call that asks for it. breaks: whether another graph follows,
        for which there must be room. named: the program's names of the arguments.
        """
        self._named = named
        self._options, self._fallback = options, fallback
        self._is_limited = bool(memory_limit_bytes(options.get("memory_limit")))
        self._given = _bytes_at(inputs)
        self._cut = partitioner(options, fallback, lambda living: _living_others(self._given) if living else _others(self._given), breaks)
        self._sizes: Sizes | None = None
        self._planned: Planned | None = None  # the plan of sizes that do not change

    def partition(self, joint: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **more: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Cuts a joint graph into forward and backward, for AOTAutograd. Under a limit, they are
        cut at each call if sizes change, or if values of others leave no room just now.
        """
        name_arguments(joint, self._named)
        by_call = self._is_limited and are_known_by_call(joint)
        if not by_call or have_fixed_sizes(joint):
            changed = fx.GraphModule(joint, copy.deepcopy(joint.graph)) if by_call else joint
            pair = self._cut(changed, inputs, num_fwd_outputs=num_fwd_outputs, **more)
            if planned := pair[0].meta.pop(PLANNED, None):
                self._planned = Planned(planned, num_fwd_outputs)
            if not by_call or REFUSED not in pair[0].meta or not _others(self._given):
                return pair

        def cut(joint: fx.GraphModule) -> Planned:
            pair = self._cut(joint, (), num_fwd_outputs=num_fwd_outputs)
            if refused := pair[0].meta.get(REFUSED):
                raise copy.copy(refused)  # a raised error keeps frames, so a copy is raised
            return Planned(pair[0].meta.pop(PLANNED), num_fwd_outputs)

        self._sizes = Sizes(joint, num_fwd_outputs, cut)
        return self._sizes.shown(default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more))

    def _compiled(self, graph: fx.GraphModule) -> Compiled:
        return Compiled(graph, self._options, self._fallback, graph.meta.get(SEEN, 0))

    def alone(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        """Compiles a graph without a backward."""
        name_arguments(graph, self._named)

        def made(graph: fx.GraphModule) -> Compiled:
            return Compiled(graph, self._options, self._fallback, seen=len(graph.graph.output_node().args[0]))

        if not self._is_limited:
            return boxed(made(graph).without_limit())
        try:
            compiled = Alone(graph, made) if not have_fixed_sizes(graph) and are_known_by_call(graph) else made(graph)
        except MemoryError as error:
            return refusing(error)
        return boxed(lambda arguments: _collected(lambda given: compiled(given, _others(_bytes_at(given))), arguments))

    def forward(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        if refused := graph.meta.get(REFUSED):
            return refusing(refused)
        if SEEN not in graph.meta and not self._sizes:  # a part without a backward
            return self.alone(graph, _)
        if not self._is_limited:
            return boxed(self._compiled(graph).without_limit())
        return boxed(lambda arguments: self._run_forward(arguments))

    def _run_forward(self, arguments: list[Any]) -> list[Any]:
        self._given = _bytes_at(arguments)
        planned, call, beside = _collected(self._ready, arguments)
        saved = [arguments[place] for place in planned.saved]
        results = planned.forward(arguments, beside)
        crossing = [each for each in results[planned.count :] if isinstance(each, torch.Tensor) and not any(each is other for other in saved)]
        _hold(call, [*crossing, *(each for each in saved if isinstance(each, torch.Tensor) and each.grad_fn is not None)])
        return self._sizes.filled(planned, results) if self._sizes else results

    def _ready(self, arguments: list[Any]) -> tuple[Planned, Call, int]:
        """Returns programs of these sizes, and the bytes that others keep beside forward.
        MemoryError, before anything runs, if forward or backward cannot keep the limit.
        """
        planned = self._sizes.planned(arguments) if self._sizes else self._planned
        if planned is None:
            raise RuntimeError("a forward ran before its programs were planned; this is a bug of megjit")
        call, beside = Call(planned.backward, [arguments[place] for place in planned.saved]), _others(self._given)
        _keep_limit(planned, call, arguments, beside)
        return planned, call, beside

    def backward(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        if not self._is_limited:
            return boxed(self._compiled(graph).without_limit())
        planned = self._planned.backward if self._planned else None
        compiled = self._sizes.backward if self._sizes else planned or self._compiled(graph)

        def run(arguments: list[Any]) -> list[Any]:
            given = _bytes_at(arguments)
            call = next((number for number, each in reversed(_held.items()) if not each.held.keys().isdisjoint(given)), None)
            if call is not None:
                _held[call].backward = None
            return compiled(arguments, _others(given, call))

        return boxed(run)


# -- what calls keep


_Found = TypeVar("_Found")


def _collected(ready: Callable[[list[Any]], _Found], arguments: list[Any]) -> _Found:
    """Tries again, if it is refused, without what only cycles hold, as those of torch's compiler do."""
    try:
        return ready(arguments)
    except MemoryError:
        kept = _others({})
        if not kept or _living_others({}) == kept:
            raise
    return ready(arguments)


def _keep_limit(planned: Planned, call: Call, arguments: list[Any], beside_forward: int) -> None:
    """Raises MemoryError, before anything runs, if forward or backward could not keep the limit, or
    another backward beside what this call keeps.
    """
    refused = []
    waiting = {number: each for number, each in _held.items() if each.backward}
    later = _sources(arguments, min(each.sequence for each in waiting.values())) if waiting else set()
    checks = [(planned.forward, beside_forward), (planned.backward, _others(call.saved))]
    # Backward passes of calls that gave this one's arguments run after its own.
    checks += [(each.backward, _others(each.saved, number) + planned.keeps) for number, each in waiting.items() if each.backward and each.sequence not in later]
    for each, beside in checks:
        try:
            each.plan(beside)
        except MemoryError as error:
            refused.append(error)
    if refused:
        raise max(refused, key=bytes_needed)


def _sources(values: Iterable[Any], oldest: int) -> set[int]:
    """Returns the numbers of autograd's nodes that gave these values, and of the nodes before them,
    down to ``oldest``.
    """
    waiting = [each.grad_fn for each in values if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    found: set[int] = set()
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or node._sequence_nr() < oldest:
            continue
        seen.add(node)
        found.add(node._sequence_nr())
        waiting += [each for each, _ in node.next_functions]
    return found


def _bytes_at(values: Iterable[Any]) -> dict[int, int]:
    """The bytes of tensors that have memory, by their addresses."""
    found: dict[int, int] = {}
    for each in values:
        if type(each) in (torch.Tensor, torch.nn.Parameter) and each.layout is torch.strided:
            address = each.untyped_storage().data_ptr()
            found[address] = max(found.get(address, 0), each.numel() * each.element_size())
    return found


def _others(given: Bytes, without: int | None = None) -> int:
    """Returns the bytes that other calls keep meanwhile, without values given to this call; those
    of enclosing calls; and those of buckets.
    """
    kept: dict[int, int] = {}
    for number, call in _held.items():
        if number != without:
            kept.update(call.given | call.held)
    return sum(max(0, size - given.get(address, 0)) for address, size in kept.items()) + sum(under_way) + bucket_bytes()


def _living_others(given: Bytes) -> int:
    """Returns the same bytes without values that only cycles hold."""
    if _others(given):
        gc.collect()
    return _others(given)


def _hold(call: Call, kept: Iterable[torch.Tensor]) -> None:
    """Counts what a call keeps, as long as it lives."""
    number = next(_numbers)
    for memory in (each.untyped_storage() for each in kept if each.layout is torch.strided and each.numel()):
        if (address := memory.data_ptr()) not in call.held:
            call.held[address] = memory.nbytes()
            weakref.finalize(memory, _let_go, number, address)
    if call.held:
        _held[number] = call


def _let_go(number: int, address: int) -> None:
    if call := _held.get(number):
        del call.held[address]
        if not call.held:
            del _held[number]


def boxed(call: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """Marks a function as one that takes its arguments in a list, which torch expects of compilers.
    """
    call._boxed_call = True  # type: ignore[attr-defined]  # torch's protocol
    return call


def refusing(error: MemoryError) -> Callable[[list[Any]], list[Any]]:
    def refuse(arguments: list[Any]) -> Any:
        raise copy.copy(error)

    return boxed(refuse)
