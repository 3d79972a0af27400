"""One graph of AOTAutograd as torch calls it: programs of ours, and torch where it has what we lack."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

from torch import fx

from ._aten import Unsupported
from ._partition import Part, parts_of, parts_of_result, place_of, reasons_against
from ._program import Program

_MOST_NAMED = 6  # operations in a warning


class Compiled:
    """Calls of a graph with a list of arguments, which the call empties.

    options: of `jit.trace`. fallback: what we lack is torch's, with one warning that names it; else RuntimeError.
    """

    def __init__(self, graph: fx.GraphModule, options: dict[str, Any], fallback: bool) -> None:
        self._graph, self._options, self._fallback = graph, options, fallback
        self._left = reasons_against(graph)
        self._is_told = False
        self._prepare()

    def _prepare(self) -> None:
        if self._left and not self._fallback:
            raise RuntimeError(f"megjit cannot compile this graph: {self._names()}\n  fix: leave fallback=False out")
        self._whole = None if self._left else Program(self._graph, self._options)
        self._parts = [(part, part.graph if is_torchs else Program(part.graph, self._options)) for part, is_torchs in parts_of(self._graph, self._left)] if self._left else []
        last = {each: part for part, _ in self._parts for each in part.reads}
        self._last_reads = {part: [each for each in part.reads if last[each] is part] for part, _ in self._parts}

    def _names(self) -> str:
        """What is left to torch, and why."""
        named = list(dict.fromkeys(f"{place_of(node)} ({why})" for node, why in self._left.items() if node.target is not operator.getitem))
        return "; ".join(named[:_MOST_NAMED]) + (f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else "")

    def __call__(self, arguments: list[Any]) -> list[Any]:
        while True:
            try:
                results = self._whole(arguments) if self._whole else self._by_parts(arguments)
                break
            except Unsupported as error:  # found when a program is recorded; what has run has changed nothing
                self._left.update(dict.fromkeys((error.node, *parts_of_result(error.node)), str(error)))
                self._prepare()
        if self._left and not self._is_told:
            self._is_told = True
            warnings.warn(f"megjit leaves operations to torch: {self._names()}", stacklevel=2)
        arguments.clear()
        return results

    def _by_parts(self, arguments: list[Any]) -> list[Any]:
        results = self._graph.graph.output_node().args[0]
        values: dict[Any, Any] = dict(zip(self._graph.graph.find_nodes(op="placeholder"), arguments, strict=True))
        values.update((node, getattr(self._graph, str(node.target))) for node in results if isinstance(node, fx.Node) and node.op == "get_attr")
        for part, run in self._parts:
            found = self._run(part, run, [values[node] for node in part.reads])
            for node in self._last_reads[part]:
                if node not in results:
                    del values[node]
            values.update(zip(part.gives, found, strict=True))
        return [values[each] if isinstance(each, fx.Node) else each for each in results]

    def _run(self, part: Part, run: Callable[..., Any], given: list[Any]) -> list[Any]:
        if not isinstance(run, Program):
            return list(run(*given))
        try:
            return run(given)
        except Unsupported as error:
            error.node = part.originals[error.node]
            raise


def boxed(call: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """As torch takes what a compiler gives: a function, marked as one of a list."""

    def run(arguments: list[Any]) -> list[Any]:
        return call(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]  # torch's protocol
    return run
