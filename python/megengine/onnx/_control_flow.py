"""Nodes that hold graphs: If, Loop, Scan. Each graph becomes a module; values that it reads from
outside are further inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functional as F
from .. import fx
from ..core._registry import enters
from ._builder import Operand
from ._proto import OnnxError
from .functions import loops

if TYPE_CHECKING:
    from ._load import Loader

_LARGEST_COUNT = 2**31 - 1  # this many trips count as unbounded


def held_graphs(node: Any) -> dict[str, Any]:
    """The graphs of a node by the names of its attributes."""
    return {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}


def _reads(graphs: Iterable[Any]) -> dict[str, None]:
    """Names that the graphs do not make themselves, in order."""
    found: dict[str, None] = {}
    for graph in graphs:
        own = {value.name for value in (*graph.initializer, *graph.input)} | {tensor.values.name for tensor in graph.sparse_initializer}
        for node in graph.node:
            found.update((name, None) for name in (*node.input, *_reads(held_graphs(node).values())) if name and name not in own)
            own.update(node.output)
        found.update((info.name, None) for info in graph.output if info.name not in own)
    return found


class Holder:
    """A node that holds graphs, about to become a call with modules."""

    def __init__(self, loader: Loader, node: Any, where: str, attrs: dict[str, Any]) -> None:
        self.loader, self.node, self.where, self.attrs = loader, node, where, attrs
        self.what = f"load: {node.op_type} {where}"
        self.graphs = held_graphs(node)
        self.inputs = [loader.values[name] if name else None for name in node.input]
        self._outside: dict[str, Operand] = {}
        for name in _reads(self.graphs.values()):
            if name not in loader.values:
                raise OnnxError(f"{self.what} reads {name!r}, which nothing makes")
            self._outside[name] = loader.values[name]

    def needed(self, first: int = 0) -> list[Operand]:
        """Returns the inputs from a place on. OnnxError for one that is missing."""
        found = [operand for operand in self.inputs[first:] if operand is not None]
        if len(found) < len(self.inputs[first:]):
            raise OnnxError(f"{self.what} lacks an input")
        return found

    def tensors(self, operands: Iterable[Operand]) -> list[fx.Node]:
        """Nodes that give the operands."""
        return [self.loader.builder.tensor(operand) for operand in operands]

    @property
    def outside(self) -> list[fx.Node]:
        """Returns what the graphs read from outside, without small constants, which they hold
        themselves.
        """
        return self.tensors(operand for operand in self._outside.values() if not operand.is_small)

    def are_tensors(self) -> list[bool]:
        """Returns for each result of the graphs whether it is a tensor; others are sequences, or
        optional values.
        """
        graph = next(iter(self.graphs.values()))
        found = [not (info.type.HasField("sequence_type") or info.type.HasField("optional_type")) for info in graph.output]
        return found[1:] if self.node.op_type == "Loop" else found

    def check_counts(self, graph: Any, inputs: int, outputs: int) -> None:
        """Raises OnnxError unless the graph has that many inputs, and that many results; those of a
        loop may be more.
        """
        found = len(graph.output)
        if len(graph.input) != inputs or found < outputs or (found > outputs and self.node.op_type == "If"):
            raise OnnxError(
                f"{self.what}: its graph {graph.name!r} has {len(graph.input)} inputs and {found} outputs\n"
                f"  why: the node needs {inputs} and {outputs}\n  fix: export the model again: the file is damaged"
            )

    def load(self, name: str, given: Sequence[Any] = (), states: Sequence[Operand] = ()) -> Loader:
        """Returns what is made of a graph. given: values for each of its own inputs, as `Probes.of`
        gives them. states: the first values of its last inputs.
        """
        return self.loader.held(self.graphs[name], given, self._outside, states)

    def check_states(self, inner: Loader, states: Sequence[Operand], first: int, may_change: bool = False) -> bool:
        """Raises OnnxError for a state that a trip returns, from its output ``first`` on, in
        another type. may_change: whether its shape may differ.

        Tells whether all states stay tensors of the types that they are.
        """
        stay = all(state.is_tensor for state in states)
        for before, info in zip(states, inner.graph.output[first:], strict=False):
            after = inner.result(info.name)
            if before.is_tensor and not before.may_become(after):
                stay = False
                if may_change and not (before.dtype and after.dtype and before.dtype != after.dtype):
                    continue
                raise OnnxError(
                    f"{self.what}: the state {before.name!r} comes back as another type\n"
                    f"  why: it was {before.type_text} and is {after.type_text}\n"
                    "  fix: let the model bring both to one shape and dtype"
                )
        return stay

    def module(self, name: str, inner: Loader) -> fx.Node:
        """The node that gives a graph as a module. ValueError, with a list, if some of its nodes
        have no counterpart.
        """
        if self.loader.problems:
            raise ValueError
        builder = self.loader.builder
        path = builder.path_of(re.sub(r"\W+", "_", f"{self.where}_{name}"))
        builder.attributes[path] = inner.module()
        return builder.graph.get_attr(path)


CONTROL_FLOW: dict[str, Callable[[Holder], fx.Node]] = {}


def _holds_graphs(op: str) -> Callable[..., Any]:
    """Puts a converter into the table."""
    return enters(CONTROL_FLOW, [op])


@_holds_graphs("If")
def _if(holder: Holder) -> fx.Node:
    """Converts an If whose condition is not known; otherwise the nodes of a branch have replaced
    it. A condition on sizes is a number of the host, by which each call takes a branch.
    """
    call = holder.loader.builder.call
    given = holder.needed()
    is_of_sizes = given[0].is_of_sizes
    (condition,) = holder.tensors(given)
    if given[0].shape != () and not is_of_sizes:
        condition = call(F.reshape, condition, ())
    branches = {name: holder.load(name) for name in ("then_branch", "else_branch")}
    for inner in branches.values():
        holder.check_counts(inner.graph, 0, len(holder.node.output))
    modules = [holder.module(name, inner) for name, inner in branches.items()]
    pairs = zip(*([inner.result(info.name) for info in inner.graph.output] for inner in branches.values()), strict=True)
    are_alike = all(one.shape is not None and None not in one.shape and (one.dtype, one.shape) == (other.dtype, other.shape) for one, other in pairs)
    name = holder.node.output[0] if len(holder.node.output) == 1 else ""
    taken = loops.branch_by_size if is_of_sizes else F.cond if are_alike else loops.branch
    return call(taken, condition, *modules, *holder.outside, name=name)


@_holds_graphs("Scan")
def _scan(holder: Holder) -> fx.Node:
    probes, attrs = holder.loader.probes, dict(holder.attrs)
    inputs = holder.tensors(holder.needed())
    states = len(inputs) - attrs.pop("num_scan_inputs")
    if states < 0:
        raise OnnxError(f"{holder.what} has {len(inputs)} inputs, fewer than its num_scan_inputs")
    holder.check_counts(holder.graphs["body"], len(inputs), max(len(holder.node.output), states))
    axes = attrs.get("scan_input_axes") or [0] * (len(inputs) - states)
    rows = [probes.element_of(x, axis) for x, axis in zip(inputs[states:], axes, strict=True)]
    inner = holder.load("body", [*map(probes.of, inputs[:states]), *rows])
    holder.check_states(inner, holder.needed()[:states], 0)
    body = holder.module("body", inner)
    return holder.loader.builder.call(loops.scan, body, inputs[:states], inputs[states:], holder.outside, **attrs)


@_holds_graphs("Loop")
def _loop(holder: Holder) -> fx.Node:
    """Converts a Loop: to a scan if the number of trips is known before, else to a while_loop if
    states keep their types and nothing is stacked.
    """
    probes, call = holder.loader.probes, holder.loader.builder.call
    trips, condition = [*holder.inputs, None, None][:2]
    states, graph = holder.needed(2), holder.graphs["body"]
    initial = holder.tensors(states)
    holder.check_counts(graph, len(states) + 2, max(len(holder.node.output), len(states)) + 1)
    inner = holder.load("body", [probes.scalar("int64"), probes.scalar("bool"), *map(probes.of, initial)], states)
    stay = holder.check_states(inner, states, 1, True)
    goes_on = inner.result(graph.output[0].name)
    is_fixed = goes_on is inner.values[graph.input[1].name] or (goes_on.array is not None and bool(goes_on.array.all()))
    results = [inner.result(info.name) for info in graph.output[len(states) + 1 :]]
    count, first = _plain(holder, trips), True if condition is None else _plain(holder, condition)
    if isinstance(count, int) and count >= _LARGEST_COUNT and not (results and is_fixed):
        count = None
    body, outside = holder.module("body", inner), holder.outside
    if not stay or (results and (count is None or not is_fixed)):
        stacked = [(y.dtype or "float32", tuple(extent or 0 for extent in y.shape or ())) for y in results]
        return call(loops.changing_loop, body, count, initial, outside, first, is_counted=is_fixed and count is not None, stacked=stacked)
    if results or (is_fixed and isinstance(count, int) and isinstance(first, bool)):
        return call(loops.counted_loop, body, count, initial, outside, first)
    return call(loops.loop, body, initial, outside, count, first)


def _plain(holder: Holder, operand: Operand | None) -> Any:
    """A number where it is known, else the node that gives it."""
    if operand is None:
        return None
    if operand.array is None:
        return holder.loader.builder.tensor(operand)
    return np.asarray(operand.array).reshape(()).item()
