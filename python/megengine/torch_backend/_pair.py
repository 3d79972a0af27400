"""Forward and backward of one graph, as AOTAutograd compiles them, and what pairs that live together keep."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ._compiled import Compiled
from ._crossing import REFUSED, SEEN, partitioner

_held: dict[int, int] = {}  # bytes that calls keep for their backward, by call
_calls = 0


class Pair:
    """The compilers that AOTAutograd asks for one graph of dynamo's."""

    def __init__(self, options: dict[str, Any], fallback: bool) -> None:
        self._options, self._fallback = options, fallback
        self._is_limited = bool(options.get("memory_limit"))
        self._keeps = 0  # bytes of the last forward call
        self.partition = partitioner(options, _others)

    def alone(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        """Of a graph without a backward."""
        compiled = Compiled(graph, self._options, self._fallback, seen=len(graph.graph.output_node().args[0]))
        return boxed((lambda arguments: compiled(arguments, _others())) if self._is_limited else compiled)

    def forward(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        if refused := graph.meta.get(REFUSED):

            def refuse(arguments: list[Any]) -> Any:
                raise refused

            return boxed(refuse)
        if SEEN not in graph.meta:  # it has no backward, from which it was parted
            return self.alone(graph, _)
        compiled = Compiled(graph, self._options, self._fallback, graph.meta[SEEN])

        def run(arguments: list[Any]) -> list[Any]:
            given = {each.data_ptr() for each in arguments if isinstance(each, torch.Tensor)}
            results = compiled(arguments, _others())
            self._keeps = _hold([each for each in results if isinstance(each, torch.Tensor) and each.data_ptr() not in given])
            return results

        return boxed(run if self._is_limited else compiled)

    def backward(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        compiled = Compiled(graph, self._options, self._fallback, seen=0)
        return boxed((lambda arguments: compiled(arguments, max(0, _others() - self._keeps))) if self._is_limited else compiled)


def _others() -> int:
    return sum(_held.values())


def _hold(results: list[torch.Tensor]) -> int:
    """Counts what a forward call gives, as long as the last of it lives."""
    global _calls
    if not results:
        return 0
    _calls += 1
    _held[_calls] = sum(each.numel() * each.element_size() for each in results)
    weakref.finalize(results[-1], _held.pop, _calls)
    return _held[_calls]


def boxed(call: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """As torch takes what a compiler gives: a function, marked as one of a list."""

    def run(arguments: list[Any]) -> list[Any]:
        return call(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]  # torch's protocol
    return run
