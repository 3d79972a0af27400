"""Forward and backward of one graph, as AOTAutograd compiles them, and what pairs that live together keep."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from ._compiled import Compiled
from ._crossing import REFUSED, SEEN, have_fixed_sizes, partitioner
from ._private import default_partition
from ._sizes import Sizes, are_known_by_call

_held: dict[int, dict[int, int]] = {}  # what calls keep for their backward: by call, and by address its bytes
_calls = 0


class Pair:
    """The compilers that AOTAutograd asks for one graph of dynamo's."""

    def __init__(self, options: dict[str, Any], fallback: bool, inputs: Iterable[Any] = (), breaks: bool = False) -> None:
        """inputs: of the call that asks for it. breaks: whether another graph follows, for which there must be room."""
        self._options, self._fallback = options, fallback
        self._is_limited = bool(options.get("memory_limit"))
        self._call: int | None = None  # the last of forward
        self._given = _addresses(inputs)
        self._cut = partitioner(options, lambda: _others(self._given), breaks)
        self._sizes: Sizes | None = None

    def partition(self, joint: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **more: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Of a joint graph, as AOTAutograd asks for it; if sizes change under a limit, those of a call are cut when it comes."""
        if not self._is_limited or have_fixed_sizes(joint) or not are_known_by_call(joint):
            return self._cut(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)

        def cut(joint: fx.GraphModule) -> tuple[fx.GraphModule, fx.GraphModule]:
            pair = self._cut(joint, (), num_fwd_outputs=num_fwd_outputs)
            if refused := pair[0].meta.get(REFUSED):
                raise copy.copy(refused)  # what is raised keeps its callers' frames, and this is kept
            return pair

        self._sizes = Sizes(joint, num_fwd_outputs, cut, self._compiled)
        return self._sizes.shown(default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more))

    def _compiled(self, graph: fx.GraphModule) -> Compiled:
        return Compiled(graph, self._options, self._fallback, graph.meta.get(SEEN, 0))

    def alone(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        """Of a graph without a backward."""
        compiled = Compiled(graph, self._options, self._fallback, seen=len(graph.graph.output_node().args[0]))
        return boxed((lambda arguments: compiled(arguments, _others(_addresses(arguments)))) if self._is_limited else compiled.without_limit())

    def forward(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        if refused := graph.meta.get(REFUSED):

            def refuse(arguments: list[Any]) -> Any:
                raise copy.copy(refused)

            return boxed(refuse)
        if SEEN not in graph.meta and not self._sizes:  # it has no backward, from which it was parted
            return self.alone(graph, _)
        if not self._is_limited:
            return boxed(self._compiled(graph).without_limit())
        compiled = self._sizes.forward if self._sizes else self._compiled(graph)

        def run(arguments: list[Any]) -> list[Any]:
            given = self._given = _addresses(arguments)
            results = compiled(arguments, _others(given))
            self._call = _hold([each for each in results if isinstance(each, torch.Tensor) and each.numel() and each.data_ptr() not in given])
            return results

        return boxed(run)

    def backward(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        if not self._is_limited:
            return boxed(self._compiled(graph).without_limit())
        compiled = self._sizes.backward if self._sizes else self._compiled(graph)
        return boxed(lambda arguments: compiled(arguments, _others(_addresses(arguments), self._call)))


def _addresses(values: Iterable[Any]) -> set[int]:
    """Of tensors that have memory."""
    return {each.data_ptr() for each in values if type(each) in (torch.Tensor, torch.nn.Parameter)}


def _others(given: set[int], without: int | None = None) -> int:
    """Bytes that calls keep meanwhile, but for those that are given to this one, and those of one call."""
    kept: dict[int, int] = {}
    for call, bytes_at in _held.items():
        if call != without:
            kept.update(bytes_at)
    return sum(size for address, size in kept.items() if address not in given)


def _hold(results: list[torch.Tensor]) -> int | None:
    """Counts what a forward call gives, as long as the last of it lives."""
    global _calls
    if not results:
        return None
    _calls += 1
    _held[_calls] = {each.data_ptr(): each.numel() * each.element_size() for each in results}
    weakref.finalize(results[-1], _held.pop, _calls)
    return _calls


def boxed(call: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """A function as torch takes what a compiler gives: marked as one of a list."""
    call._boxed_call = True  # type: ignore[attr-defined]  # torch's protocol
    return call
