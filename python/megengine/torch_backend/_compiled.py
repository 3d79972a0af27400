"""One graph of AOTAutograd as torch calls it: programs of ours, and torch for operations that we
lack.
"""

from __future__ import annotations

import copy
import operator
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from ..jit.configs import memory_limit_bytes
from ..jit.report import OutsideProgram
from ._bytes import (
    OTHER_PARTS,
    Places,
    bounds_of,
    bytes_needed,
    bytes_of,
    owners_of,
    refusal,
)
from ._devices import make_room
from ._draws import draw_apart, drawn_first
from ._forms import Unsupported
from ._partition import (
    Part,
    line_of,
    parts_of,
    parts_of_result,
    place_of,
    reasons_against,
    tensors_of,
    user_line_of,
    with_strides,
)
from ._program import Program, release_torchs, release_unused
from ._strides import has_fixed_sizes
from ._views import read_memory_of_owners

_MOST_NAMED = 6  # the most operations in a warning
under_way: list[int] = []  # bytes of calls whose operations torch runs just now, which may call other graphs


class Compiled:
    """Calls of a graph with a list of arguments, which the call empties.

    options: the options of `jit.trace`. fallback: whether torch runs what we lack, with one warning
    that names it; else RuntimeError. seen: how many of the first results
    the user's program sees, which have torch's strides.
    """

    def __init__(self, graph: fx.GraphModule, options: dict[str, Any], fallback: bool, seen: int) -> None:
        self.graph, self._options, self._fallback = graph, options, fallback
        self._limit = memory_limit_bytes(options.get("memory_limit"))
        self._strided = with_strides(graph.graph, graph.graph.output_node().args[0][:seen])
        read_memory_of_owners(graph.graph)
        draw_apart(graph.graph)
        self._left = reasons_against(graph)
        self._is_told = self._has_run = False
        self._bounds = bounds_of(graph) if self._limit else {}
        self._planned: dict[int, int] = {}  # bytes kept beside -> bytes planned
        # a quick call, as `Program` has it
        self.quick: Callable[[list[Any]], list[Any] | None] | None = None
        self._may_be_quick = True
        self._prepare()

    def _prepare(self) -> None:
        self._drawn = drawn_first(self.graph.graph.nodes, self._left)  # by torch, in no program's way
        if not self._drawn.issuperset(self._left) and not self._fallback:
            raise RuntimeError(f"megjit cannot compile this graph: {self._names()}\n  fix: leave fallback=False out")
        self._whole = None if self._left else Program(self.graph, self._options, strided=self._strided)
        parts = parts_of(self.graph, self._left, self._drawn) if self._left else []
        self._parts = [(part, part.graph if is_torchs else self._program_of(part)) for part, is_torchs in parts]
        last = {each: part for part, _ in self._parts for each in part.reads}
        self._last_reads = {part: [each for each in part.reads if last[each] is part] for part, _ in self._parts}
        self._needs = self._needed_by_parts() if self._limit else []
        self._planned.clear()

    def _program_of(self, part: Part) -> Program:
        strided = {copy for copy, node in part.originals.items() if node in self._strided}
        return Program(part.graph, self._options, originals=part.originals, strided=strided, outside=self._outside())

    def _outside(self) -> list[OutsideProgram]:
        """Returns what plans say about the operations that are left to torch."""
        left = {node: why for node, why in self._left.items() if node.target is not operator.getitem}
        return [OutsideProgram(_named(node), why, _bytes_if_fixed(tensors_of(node))) for node, why in left.items()]

    def _names(self) -> str:
        """Returns the operations that are left to torch, with reasons, but not the draws in front."""
        named = list(dict.fromkeys(f"{place_of(node)} ({why})" for node, why in self._left.items() if node.target is not operator.getitem and node not in self._drawn))
        return "; ".join(named[:_MOST_NAMED]) + (f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else "")

    def __call__(self, arguments: list[Any], beside: int = 0) -> list[Any]:
        """beside: bytes that other graphs keep meanwhile, which are taken from the limit. MemoryError, before anything runs, if it cannot be kept."""
        while True:
            try:
                if self._limit and not self._whole:
                    self.plan(beside)
                results = self._whole(arguments, beside) if self._whole else self._by_parts(arguments, beside)
                if self._whole and self._may_be_quick:
                    self.quick = self._whole.quick
                break
            except Unsupported as error:
                self._leave(error)
        if self._limit and not self._has_run:
            release_torchs()  # compilation held hundreds of megabytes for a large graph
            self._has_run = True
        if self._left and not self._is_told:
            self._is_told = True
            if names := self._names():
                warnings.warn(f"megjit leaves operations to torch: {names}", stacklevel=2)
        arguments.clear()
        return results

    def without_limit(self) -> Callable[[list[Any]], list[Any]]:
        """Returns the call as a function of one frame, for small graphs, whose calls cost more than
        their computation.
        """
        quick: Callable[[list[Any]], list[Any] | None] | None = None

        def run(arguments: list[Any]) -> list[Any]:
            nonlocal quick
            if quick:
                if (results := quick(arguments)) is not None:
                    return results
                self._may_be_quick = False
            results = self(arguments)
            quick = self.quick if self._may_be_quick else None
            return results

        return run

    def plan(self, beside: int = 0) -> int:
        """Returns the bytes of a call for the tensors' known sizes, and for the largest sizes that
        data allows. MemoryError if it cannot keep the limit.
        """
        while beside not in self._planned:
            try:
                self._planned[beside] = beside + self._whole.plan(beside).planned_bytes if self._whole else self._plan_parts(beside)
                release_torchs()  # several cuts are planned in turn, and each plan held memory
            except Unsupported as error:
                self._leave(error)
        return self._planned[beside]

    def bytes_of(self, node: fx.Node) -> int:
        """Returns the bytes that a node's value takes at most."""
        return bytes_of(node.meta.get("val"), self._bounds)

    def _leave(self, error: Unsupported) -> None:
        """Leaves to torch an operation that a part turns out to lack while it is recorded. What ran
        before has changed nothing.
        """
        alike = [error.node]
        if re.search("float64|int64", str(error)):  # other operations of these dtypes fail, too
            dtypes = [tensor.dtype for tensor in tensors_of(error.node)]
            alike += [node for node in self.graph.graph.nodes if node.target is error.node.target and [tensor.dtype for tensor in tensors_of(node)] == dtypes]
        for node in alike:
            self._left.update(dict.fromkeys((node, *parts_of_result(node)), str(error)))
        self._prepare()

    def _by_parts(self, arguments: list[Any], beside: int) -> list[Any]:
        results = self.graph.graph.output_node().args[0]
        values: dict[Any, Any] = dict(zip(self.graph.graph.find_nodes(op="placeholder"), arguments, strict=True))
        values.update((node, getattr(self.graph, str(node.target))) for node in results if isinstance(node, fx.Node) and node.op == "get_attr")
        for (part, run), (waiting, needed) in zip(self._parts, self._needs or [(0, 0)] * len(self._parts), strict=True):
            given = [values[node] for node in part.reads]
            for node in self._last_reads[part]:
                if node not in results:
                    del values[node]
            if isinstance(run, Program):
                if self._limit:
                    release_torchs()
                found = run(given, beside, waiting)
            else:
                found = self._run_torchs(part, given, beside, waiting + needed) if self._limit else run(*given)
            values.update(zip(part.gives, found, strict=True))
            del given, found
        return [values[each] if isinstance(each, fx.Node) else each for each in results]

    def _run_torchs(self, part: Part, given: list[Any], beside: int, needed: int) -> list[Any]:
        make_room(self._limit, beside + needed)
        release_unused(0)
        under_way.append(needed)
        try:
            return list(part.graph(*given))
        finally:
            under_way.pop()

    def _needed_by_parts(self) -> list[tuple[int, int]]:
        """Returns for each part the bytes that wait for other parts meanwhile, and its own if torch
        runs it. Arguments always wait, as the caller holds them.
        """
        inputs = self.graph.graph.find_nodes(op="placeholder")
        results = {each for each in self.graph.graph.output_node().args[0] if isinstance(each, fx.Node)}
        places, alive, needs = Places(self.graph, self._bounds), dict.fromkeys(inputs), []
        for part, run in self._parts:
            waiting = places.bytes_at(alive, but=part.reads)
            needs.append((waiting, 0 if isinstance(run, Program) else places.run_torchs(part)))
            if isinstance(run, Program):
                places.give(part)
            for node in self._last_reads[part]:
                if node not in results and node.op != "placeholder":
                    alive.pop(node, None)
            alive.update(dict.fromkeys(part.gives))
        return needs

    def _plan_parts(self, beside: int) -> int:
        """Returns the bytes of the part that needs most, with values that wait for other parts.
        MemoryError that names the part, if they are too many.
        """
        most, refused = 0, list[MemoryError]()
        for (part, run), (waiting, needed) in zip(self._parts, self._needs, strict=True):
            try:
                most = max(most, beside + waiting + (run.plan(beside, waiting).planned_bytes if isinstance(run, Program) else needed))
            except MemoryError as error:
                outside = next(place_of(node) for node in self._left if node.target is not operator.getitem)
                refused.append(copy.copy(error))
                refused[-1].args = (f"{error}\n  parts: {outside} is left to torch, before which or behind which this is computed",)
            if not isinstance(run, Program) and beside + waiting + needed > self._limit:
                refused.append(self._refusal(part, beside, waiting, needed))
        if refused:
            raise max(refused, key=bytes_needed)
        return most

    def _refusal(self, part: Part, beside: int, waiting: int, needed: int) -> MemoryError:
        calls = [part.originals[node] for node in part.graph.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
        largest = max(calls, key=lambda node: bytes_of(node.meta.get("val"), self._bounds))
        why = f"{place_of(largest)} is left to torch, which takes {needed} bytes for what it reads, gives and has between"
        return refusal(beside + waiting + needed, self._limit, why, [*owners_of(beside), (waiting, OTHER_PARTS)])


def _named(node: fx.Node) -> str:
    """Returns the operation, and its line as plans show it."""
    return f"{node.target} {user_line_of(node)}" if line_of(node) else str(node.target)


def _bytes_if_fixed(tensors: Iterable[torch.Tensor]) -> int:
    """Returns the bytes of tensors, each counted once; 0 if sizes change."""
    found = {id(each): each for each in tensors}.values()
    return bytes_of(list(found), {}) if all(map(has_fixed_sizes, found)) else 0
