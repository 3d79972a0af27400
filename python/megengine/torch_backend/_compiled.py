"""One graph of AOTAutograd as torch calls it: programs of ours, and torch where it has what we lack."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from .. import _core
from ..jit.configs import memory_limit_bytes
from ..jit.report import OutsideProgram
from ._aten import Unsupported
from ._layouts import has_fixed_sizes
from ._partition import (
    Part,
    line_of,
    parts_of,
    parts_of_result,
    place_of,
    reasons_against,
    tensors_in,
    tensors_of,
    user_line_of,
    with_strides,
)
from ._program import Program

_MOST_NAMED = 6  # operations in a warning


class Compiled:
    """Calls of a graph with a list of arguments, which the call empties.

    options: of `jit.trace`. fallback: what we lack is torch's, with one warning that names it; else RuntimeError. seen: how many of the first results
    the user's program sees, which have torch's strides.
    """

    def __init__(self, graph: fx.GraphModule, options: dict[str, Any], fallback: bool, seen: int) -> None:
        self._graph, self._options, self._fallback = graph, options, fallback
        self._limit = memory_limit_bytes(options.get("memory_limit"))
        self._strided = with_strides(graph.graph, graph.graph.output_node().args[0][:seen])
        self._left = reasons_against(graph)
        self._is_told = False
        self.quick: Callable[[list[Any]], list[Any] | None] | None = None  # as of a program
        self._may_be_quick = True
        self._prepare()

    def _prepare(self) -> None:
        if self._left and not self._fallback:
            raise RuntimeError(f"megjit cannot compile this graph: {self._names()}\n  fix: leave fallback=False out")
        self._whole = None if self._left else Program(self._graph, self._options, strided=self._strided)
        parts = parts_of(self._graph, self._left) if self._left else []
        self._parts = [(part, part.graph if is_torchs else self._program_of(part)) for part, is_torchs in parts]
        last = {each: part for part, _ in self._parts for each in part.reads}
        self._last_reads = {part: [each for each in part.reads if last[each] is part] for part, _ in self._parts}
        self._torchs = {part: _bytes_at_once(part.graph) for part, is_torchs in parts if is_torchs}

    def _program_of(self, part: Part) -> Program:
        strided = {copy for copy, node in part.originals.items() if node in self._strided}
        return Program(part.graph, self._options, originals=part.originals, strided=strided, outside=self._outside())

    def _outside(self) -> list[OutsideProgram]:
        """What plans say of the operations that are left to torch."""
        left = {node: why for node, why in self._left.items() if node.target is not operator.getitem}
        return [OutsideProgram(_named(node), why, _bytes_if_fixed(tensors_of(node))) for node, why in left.items()]

    def _names(self) -> str:
        """What is left to torch, and why."""
        named = list(dict.fromkeys(f"{place_of(node)} ({why})" for node, why in self._left.items() if node.target is not operator.getitem))
        return "; ".join(named[:_MOST_NAMED]) + (f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else "")

    def __call__(self, arguments: list[Any], beside: int = 0) -> list[Any]:
        """beside: bytes that other graphs keep meanwhile, which are taken from the limit."""
        while True:
            try:
                results = self._whole(arguments, beside) if self._whole else self._by_parts(arguments, beside)
                if self._whole and self._may_be_quick:
                    self.quick = self._whole.quick
                break
            except Unsupported as error:
                self._leave(error)
        if self._left and not self._is_told:
            self._is_told = True
            warnings.warn(f"megjit leaves operations to torch: {self._names()}", stacklevel=2)
        arguments.clear()
        return results

    def without_limit(self) -> Callable[[list[Any]], list[Any]]:
        """The same as a function of one frame, for small graphs, whose calls cost more than what they compute."""

        def run(arguments: list[Any]) -> list[Any]:
            if self.quick:
                if (results := self.quick(arguments)) is not None:
                    return results
                self.quick, self._may_be_quick = None, False
            return self(arguments)

        return run

    def plan(self) -> int:
        """The bytes that a call takes, by what the graph knows of its tensors, whose sizes are all known. MemoryError if it cannot keep the limit."""
        while True:
            try:
                return self._whole.plan().planned_bytes if self._whole else self._plan_parts()
            except Unsupported as error:
                self._leave(error)

    def _leave(self, error: Unsupported) -> None:
        """What a part turns out to lack, when it is recorded, is torch's too; what has run until then has changed nothing."""
        alike = [error.node]
        if re.search("float64|int64", str(error)):  # nor will others of these dtypes be computed
            dtypes = [tensor.dtype for tensor in tensors_of(error.node)]
            alike += [node for node in self._graph.graph.nodes if node.target is error.node.target and [tensor.dtype for tensor in tensors_of(node)] == dtypes]
        for node in alike:
            self._left.update(dict.fromkeys((node, *parts_of_result(node)), str(error)))
        self._prepare()

    def _by_parts(self, arguments: list[Any], beside: int) -> list[Any]:
        results = self._graph.graph.output_node().args[0]
        values: dict[Any, Any] = dict(zip(self._graph.graph.find_nodes(op="placeholder"), arguments, strict=True))
        values.update((node, getattr(self._graph, str(node.target))) for node in results if isinstance(node, fx.Node) and node.op == "get_attr")
        for part, run in self._parts:
            given = [values[node] for node in part.reads]
            for node in self._last_reads[part]:
                if node not in results:
                    del values[node]
            held = beside + _bytes_of(value for node, value in values.items() if node not in part.reads)
            self._check(part, held)
            found = run(given, held) if isinstance(run, Program) else run(*given)
            values.update(zip(part.gives, found, strict=True))
        return [values[each] if isinstance(each, fx.Node) else each for each in results]

    def _check(self, part: Part, held: int) -> None:
        """MemoryError for a part of torch's whose tensors are more than the limit leaves."""
        needed = held + self._torchs.get(part, 0)
        if not self._limit or part not in self._torchs or needed <= self._limit:
            return
        calls = [node for node in part.originals.values() if node.op == "call_function" and node.target is not operator.getitem]
        largest = max(calls, key=lambda node: _bytes_of(tensors_in(node.meta.get("val"))))
        raise MemoryError(
            f"memory_limit: a call needs at least {_core.bytes_text(needed, self._limit)}, and the limit is {_core.bytes_text(self._limit, needed)}\n"
            f"  why: {place_of(largest)} is left to torch, which takes {self._torchs[part]} bytes for what it reads, gives and has between; {held} bytes wait for others\n"
            f"  fix: raise the limit to {needed}, or take a smaller batch"
        )

    def _plan_parts(self) -> int:
        """Of the largest part, with what waits for others."""
        most = 0
        results = self._graph.graph.output_node().args[0]
        values = dict.fromkeys(self._graph.graph.find_nodes(op="placeholder"))
        for part, run in self._parts:
            held = _bytes_of(node.meta.get("val") for node in values if node not in part.reads)
            self._check(part, held)
            own = run.plan(held).planned_bytes if isinstance(run, Program) else self._torchs[part]
            most = max(most, held + own)
            for node in self._last_reads[part]:
                if node not in results:
                    values.pop(node, None)
            values.update(dict.fromkeys(part.gives))
        return most


def _named(node: fx.Node) -> str:
    """The operation, and the line as plans show lines."""
    return f"{node.target} {user_line_of(node)}" if line_of(node) else str(node.target)


def _bytes_if_fixed(tensors: Iterable[torch.Tensor]) -> int:
    """Each once; 0 where sizes change."""
    found = {id(each): each for each in tensors}.values()
    return _bytes_of(found) if all(map(has_fixed_sizes, found)) else 0


def _bytes_of(values: Iterable[Any]) -> int:
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def _bytes_at_once(graph: fx.GraphModule) -> int:
    """The most that tensors of a graph take while torch runs it, its arguments throughout; not what an operation has within, and nothing where sizes change."""
    memory: dict[fx.Node, dict[int, int]] = {}  # by storage, which views share
    for node in graph.graph.nodes:
        tensors = list(tensors_in(node.meta.get("val")))
        if not all(map(has_fixed_sizes, tensors)):
            return 0
        memory[node] = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors if each.layout is torch.strided}
    last = {each: node for node in graph.graph.nodes for each in node.all_input_nodes}
    most, alive = 0, dict[fx.Node, dict[int, int]]()
    for node, own in memory.items():
        alive[node] = own
        most = max(most, sum({key: size for each in alive.values() for key, size in each.items()}.values()))
        alive = {each: taken for each, taken in alive.items() if each.op == "placeholder" or last.get(each, node) is not node}
    return most
