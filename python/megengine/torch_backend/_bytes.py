"""Computes the bytes of a graph's tensors from what torch knows before anything runs, and writes
refusals of limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .. import _core
from ..core import OutOfMemoryError
from ._buckets import bucket_bytes
from ._partition import Part, name_of, place_of, tensors_in, values_with_sizes
from ._private import free_symbols, free_unbacked_symbols

Bounds = Mapping[Any, int]  # symbol of a size that data decides -> its bound
# Operations whose results have at most as many rows, or elements, as one operand has elements.
_SELECT = {"nonzero", "masked_select", "index", "_unique2", "unique_dim", "unique_consecutive", "_unique"}


BOUNDS = "megjit_bounds"  # key of a graph's meta: the bounds of the graph that it is a part of


def bounds_of(graph: fx.GraphModule) -> dict[Any, int]:
    """Returns the bounds of sizes that data decides. MemoryError, with the operation, for a tensor
    of a size without a bound.
    """
    bounds: dict[Any, int] = dict(graph.meta.get(BOUNDS, {}))
    for node in graph.graph.nodes:
        values = values_with_sizes(node.meta.get("val"))
        if any(set(free_symbols(each)) - set(free_unbacked_symbols(each)) for each in values if isinstance(each, torch.Tensor)):
            raise _core.out_of_memory(
                f"memory_limit: in one graph data decides sizes, and sizes of arguments change: {place_of(node)}\n"
                "  why: a limit is kept, or refused, before anything runs\n"
                "  fix: torch.compile(..., dynamic=False), or leave the limit out"
            )
        new = {symbol for value in values for symbol in free_unbacked_symbols(value)} - bounds.keys()
        if new and name_of(node).partition(".")[0] in _SELECT:
            sources = [each for each in node.args[1] if each is not None] if name_of(node) == "index.Tensor" else node.all_input_nodes
            operands = [each for source in sources for each in tensors_in(source.meta.get("val"))]
            bounds.update(dict.fromkeys(new, max(_most(each.numel(), bounds) for each in operands)))
        elif any(set(free_unbacked_symbols(each)) - bounds.keys() for each in values if isinstance(each, torch.Tensor)):
            raise _core.out_of_memory(
                f"memory_limit: data decides a size that nothing bounds: {place_of(node)}\n"
                "  why: a limit is kept, or refused, before anything runs\n"
                "  fix: leave torch._dynamo.config.capture_scalar_outputs off, so that a graph ends there, or leave the limit out"
            )
    return bounds


def _most(extent: Any, bounds: Bounds) -> int:
    """Returns the largest value of a product of sizes: at their bounds, or at 0."""
    if isinstance(extent, int):
        return extent
    expression = extent.node.expr
    return max(int(expression.xreplace(bounds)), int(expression.xreplace(dict.fromkeys(bounds, 0))), 0)


def bytes_of(value: Any, bounds: Bounds) -> int:
    """Returns the bytes of all tensors in a tree."""
    return sum(_most(each.numel(), bounds) * each.element_size() for each in tensors_in(value))


class Places:
    """Tells which memory holds each value while torch and programs of ours take turns: results of
    our programs have memory of their own, those of torch may be views.
    """

    def __init__(self, graph: fx.GraphModule, bounds: Bounds) -> None:
        self._bounds = bounds
        self._place: dict[fx.Node, Any] = {}
        self._bytes: dict[Any, int] = {}
        for node in graph.graph.find_nodes(op="placeholder"):
            self._put(node, node)

    def _put(self, node: fx.Node, place: Any, size: int | None = None) -> None:
        self._place[node] = place
        self._bytes[place] = max(self._bytes.get(place, 0), bytes_of(node.meta.get("val"), self._bounds) if size is None else size)

    def bytes_at(self, nodes: Iterable[fx.Node], but: Iterable[fx.Node] = ()) -> int:
        """Returns the bytes of values without the memory of others; each memory counts once."""
        places = {self._place[node] for node in nodes if node in self._place}
        return sum(self._bytes[place] for place in places - {self._place[node] for node in but if node in self._place})

    def give(self, part: Part) -> None:
        """Adds what a program of ours gives."""
        for node in part.gives:
            self._put(node, node)

    def run_torchs(self, part: Part) -> int:
        """Returns the most bytes of tensors while torch runs a part, which keeps its inputs. Memory
        inside an operation does not count.
        """
        shared: dict[Any, Any] = {}  # torch's memory -> place
        for node in part.reads:
            shared.update((memory, self._place[node]) for memory, _ in self._memory(node) if node in self._place)
        nodes = [node for node in part.graph.graph.nodes if node.op == "call_function"]
        for copy in nodes:
            for place, (memory, size) in enumerate(self._memory(copy)):
                self._bytes.setdefault(shared.setdefault(memory, (part.originals[copy], place)), size)
        last = {each: node for node in part.graph.graph.nodes for each in node.all_input_nodes}
        read = {self._place[node] for node in part.reads if node in self._place}
        most, alive = 0, dict[fx.Node, set[Any]]()
        for node in nodes:
            alive[node] = {shared[memory] for memory, _ in self._memory(node)}
            most = max(most, sum(self._bytes[place] for place in read.union(*alive.values())))
            alive = {each: taken for each, taken in alive.items() if last.get(each, node) is not node}
        for node in part.gives:
            if memories := self._memory(node):
                self._place[node] = shared[memories[0][0]]
        return most

    def _memory(self, node: fx.Node) -> list[tuple[Any, int]]:
        """Returns for each tensor the address of its storage, and its bytes."""
        tensors = [each for each in tensors_in(node.meta.get("val")) if each.layout is torch.strided]
        return [(each.untyped_storage()._cdata, self._extent(each)) for each in tensors]

    def _extent(self, value: torch.Tensor) -> int:
        size = value.untyped_storage().nbytes()
        if isinstance(size, int):
            return size
        is_known = self._bounds.keys() >= set(free_symbols(size))  # an argument whose sizes have become numbers keeps a symbol for its memory
        return max(_most(size, self._bounds) if is_known else 0, bytes_of(value, self._bounds))


# -- refusals

# Owners of bytes that are part of what a call needs.
_OTHER_GRAPHS = "other graphs of the program keep {} bytes for their backward"
OTHER_PARTS = "{} bytes wait for other parts of the graph"
_BUCKETS = "buckets of DistributedDataParallel take {} bytes"
COPIES = "copies of arguments and results of other strides, or in memory of others, take {} bytes"


def owners_of(beside: int) -> list[tuple[int, str]]:
    """Returns the bytes beside a graph by their owners, each with the words that tell of it."""
    buckets = min(beside, bucket_bytes())
    return [(beside - buckets, _OTHER_GRAPHS), (buckets, _BUCKETS)]


_SMALLER = "or take a smaller batch"
# the beginning of a plan's refusal
_OUTSIDE = re.compile(r"^(inputs, parameters and results take [^(]*)\(")


def bytes_needed(error: MemoryError) -> int:
    """Returns the bytes that a refused limit's error names; 0 for another error."""
    return (isinstance(error, OutOfMemoryError) and error.needed) or 0


def refusal(
    needed: int, limit: int, why: str, beside: Sequence[tuple[int, str]], fix: str = _SMALLER, bound: int | None = None, proof: str = ""
) -> OutOfMemoryError:
    """beside: bytes that are part of what is needed, each with its holder. bound: bytes that no
    plan goes below; None if planning changes nothing.
    """
    told = "; ".join(text.format(count) for count, text in beside if count)
    if bound is not None:
        why += f"; no plan is below {_core.bytes_text(bound, needed)}: {proof}"
    more = f"\n  why: {why}\n  fix: raise the limit to {needed}, {fix}" + (f"\n  beside: {told}, which makes {needed}" if told else "")
    return _core.over_limit(limit, needed, needed if bound is None else bound, proof or why, more)


def told_with(error: MemoryError, limit: int, beside: Sequence[tuple[int, str]], kinds: str) -> MemoryError:
    """Returns the error of a plan for the rest of a limit, with the figures of the whole. kinds:
    bytes of arguments and results by kind.
    """
    if not isinstance(error, OutOfMemoryError) or not error.needed:
        return error
    more = sum(count for count, _ in beside)
    found = re.search(r"why: (.*?)(; no plan is below .*)?$", str(error), re.MULTILINE)
    why = _OUTSIDE.sub(rf"\1({kinds}; the largest: ", found[1] if found else "")
    fix = re.search(r"raise the limit to \d+, (.*)", str(error))
    at = re.search(r"\n  at: .*", str(error))
    words = (fix[1] if fix else _SMALLER) + (at[0] if at and not more else "")
    return refusal(error.needed + more, limit, why, beside, words, (error.bound or 0) + more, error.proof or "")
