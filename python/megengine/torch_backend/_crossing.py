"""Chooses the values that cross from forward to backward so that both keep a limit: cuts of the
joint graph, judged by our plans.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ..jit.configs import memory_limit_bytes
from ..jit.report import MemoryPlan
from ._bytes import BOUNDS, Bounds, bounds_of, bytes_needed, bytes_of
from ._compiled import Compiled
from ._forms import Unsupported
from ._joint import prepare, separate_statistics
from ._layouts import lay_out
from ._partition import (
    SYMBOLIC,
    is_random,
    name_of,
    reasons_against,
    tensors_in,
    with_strides,
)
from ._private import (
    InputMutationAOTOutput,
    default_partition,
    extract_forward_and_backward,
    min_cut_rematerialization_partition,
)
from ._program import Program
from ._strides import has_fixed_sizes
from ._views import source_of

Pair = tuple[fx.GraphModule, fx.GraphModule]
# Shares of the limit that the joint graph is planned for, one after the other. Its plan holds what
# the two graphs hold, except values that cross between them.
_PARTS = (1.0, 0.8, 0.6, 0.4, 0.2)
_TRIES = 3  # to find the limit that a refusal names
REFUSED = "megjit_refused"  # key of a forward graph's meta: why no cut keeps the limit
PLANNED = "megjit_planned"  # key of the same meta: both graphs as they were planned
SEEN = "megjit_seen"  # key of the same meta: the number of first results that torch's programs see
# These are free to compute again from the values that they view, which may be kept anyway.
_VIEWS = {"view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "alias", "detach"}


def partitioner(options: dict[str, Any], fallback: bool, beside: Callable[[bool], int], breaks: bool) -> Callable[..., Pair]:
    """Returns the function that AOTAutograd calls to cut a joint graph. options, fallback: those of
    `Compiled`. beside: bytes that other graphs keep for their backward just now; True: without what
    only cycles hold. breaks: another graph follows.

    A graph that another one follows keeps at most half of the remaining limit if a cut allows that,
    and else the least.
    """
    limit = memory_limit_bytes(options.get("memory_limit"))

    def partition(joint: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **more: Any) -> Pair:
        prepare(joint)
        # backward then reads kept values by their strides
        by_strides = len(with_strides(joint.graph, ())) > 0
        if not by_strides:
            lay_out(_forward(joint), joint.graph.output_node().args[0][:num_fwd_outputs])
        if limit and have_fixed_sizes(joint):
            separate_statistics(joint)
        return cut(joint, inputs, num_fwd_outputs, more, by_strides, beside(False))

    def cut(joint: fx.GraphModule, inputs: Sequence[Any], num_fwd_outputs: int, more: dict[str, Any], by_strides: bool, kept_beside: int) -> Pair:
        def noted(pair: Pair) -> Pair:
            _drop_unread_draws(pair[1])
            pair[0].meta[SEEN] = len(pair[0].graph.output_node().args[0]) if by_strides else num_fwd_outputs
            return pair

        by_data = not have_fixed_sizes(joint)
        if not limit:
            return noted((_cut_by_torch if by_data else _all_kept)(joint, inputs, num_fwd_outputs, more))
        try:
            bounds = bounds_of(joint)
        except MemoryError as error:
            return _refused(noted(_cut_by_torch(joint, inputs, num_fwd_outputs, more)), error)
        room = max(1, limit - kept_beside)

        def cuts(room: int) -> Iterator[Pair]:
            some = [_cut_by_torch(joint, inputs, num_fwd_outputs, more)] if by_data else _cuts(joint, inputs, num_fwd_outputs, {**options, "memory_limit": room}, more)
            for pair in some:
                for graph in pair:
                    graph.meta[BOUNDS] = bounds
                yield noted(pair)

        refusals: list[MemoryError] = []
        fitting: list[tuple[int, Pair]] = []  # bytes that cross, and the cut
        for number, pair in enumerate(cuts(room)):
            pair[0].meta[PLANNED] = tuple(Compiled(graph, options, fallback, graph.meta.get(SEEN, 0)) for graph in pair)
            if found := _refusal(pair[0].meta[PLANNED], kept_beside):
                refusals.append(found)
            else:
                fitting.append((_crossing_bytes(pair[0], num_fwd_outputs, bounds), pair))
                if not breaks or fitting[-1][0] <= room // 2:
                    return pair
            if not number and kept_beside and (living := beside(True)) < kept_beside:
                return cut(joint, inputs, num_fwd_outputs, more, by_strides, living)
        if fitting:
            return min(fitting, key=operator.itemgetter(0))[1]
        return _refused(pair, _kept_when_raised(min(refusals, key=bytes_needed), cuts, options, kept_beside))

    return partition


def _kept_when_raised(error: MemoryError, cuts: Callable[[int], Iterable[Pair]], options: dict[str, Any], beside: int) -> MemoryError:
    """Returns the refusal, or one with a larger figure if needed, so that a cut fits the limit that
    it names.
    """
    for _ in range(_TRIES):
        limit, found = bytes_needed(error), list[MemoryError]()
        for pair in cuts(limit - beside):
            refused = _refusal([Compiled(graph, {**options, "memory_limit": limit}, True, graph.meta.get(SEEN, 0)) for graph in pair], beside)
            if not refused:
                return error
            found.append(refused)
        error = min(found, key=bytes_needed)
    return error


def _refused(pair: Pair, error: MemoryError) -> Pair:
    pair[0].meta[REFUSED] = copy.copy(error)  # a copy has no frames: it lives as long as the graph
    return pair


def have_fixed_sizes(joint: fx.GraphModule) -> bool:
    """Whether all extents are known, and all numbers among the arguments."""
    values = [node.meta.get("val") for node in joint.graph.nodes]
    return all(has_fixed_sizes(tensor) for value in values for tensor in tensors_in(value)) and not any(isinstance(value, SYMBOLIC) for value in values)


def _crossing_bytes(forward: fx.GraphModule, count: int, bounds: Bounds) -> int:
    """Returns the bytes that forward keeps, without its arguments and its first results, which the
    caller keeps anyway.
    """
    kept = {node for node in forward.graph.output_node().args[0][count:] if isinstance(node, fx.Node) and node.op != "placeholder"}
    return sum(bytes_of(node.meta.get("val"), bounds) for node in kept)


def _refusal(pair: Sequence[Compiled], beside: int) -> MemoryError | None:
    """The refusal of the graph that needs more memory, or None. beside: bytes that other graphs keep."""
    found = []
    for each in pair:
        try:
            each.plan(beside)
        except MemoryError as error:
            found.append(error)
    return max(found, key=bytes_needed, default=None)


def _cuts(joint: fx.GraphModule, inputs: Sequence[Any], count: int, options: dict[str, Any], more: dict[str, Any]) -> Iterator[Pair]:
    """Iterates over cuts, the cheapest first: keep all; torch's own choice; what plans of the joint
    graph keep; what cannot be computed again.
    """
    yield _all_kept(joint, inputs, count, more)
    yield _without_views(joint, min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=count), count)
    known: list[set[fx.Node]] = []
    for part in _PARTS:
        kept = _kept_by_plan(joint, count, {**options, "memory_limit": max(1, int(options["memory_limit"] * part))})
        if kept is None:
            break
        if kept not in known:
            known.append(kept)
            yield _cut(joint, kept, count)
    yield _cut(joint, set(), count)


def _cut_by_torch(joint: fx.GraphModule, inputs: Sequence[Any], count: int, more: dict[str, Any]) -> Pair:
    return default_partition(joint, inputs, num_fwd_outputs=count, **more)


def _all_kept(joint: fx.GraphModule, inputs: Sequence[Any], count: int, more: dict[str, Any]) -> Pair:
    """Returns the values that backward reads."""
    return _without_views(joint, _cut_by_torch(joint, inputs, count, more), count)


def _without_views(joint: fx.GraphModule, pair: Pair, count: int) -> Pair:
    """Replaces views among the kept values, which would take memory of their own, by the values
    that they view, which may be arguments.
    """
    by_name = {node.name: node for node in joint.graph.nodes}
    kept = [by_name[each.name] for each in pair[0].graph.output_node().args[0][count:]]
    shown = {_shown(node) for node in kept}
    return pair if shown.issuperset(kept) and _changed_behind(joint).isdisjoint(kept) else _cut(joint, shown, count)


def _changed_behind(joint: fx.GraphModule) -> set[fx.Node]:
    """Returns the arguments to which the program writes after forward, and values in their memory:
    backward cannot read them.
    """
    outputs = joint.graph.output_node().meta.get("desc") or ()
    inputs = [each.mutated_input for each in outputs if isinstance(each, InputMutationAOTOutput)]
    changed = {node for node in joint.graph.find_nodes(op="placeholder") if node.meta.get("desc") in inputs}
    return {node for node in joint.graph.nodes if source_of(node) in changed} if changed else changed


def _shown(node: fx.Node) -> fx.Node:
    while node.op == "call_function" and name_of(node).partition(".")[0] in _VIEWS:
        node = node.all_input_nodes[0]
    return node


def _kept_by_plan(joint: fx.GraphModule, count: int, options: dict[str, Any]) -> set[fx.Node] | None:
    """The values of forward that lie in the arena when it ends, by a plan of the whole; None if there is none."""
    if reasons_against(joint):
        return None
    try:
        plan = Program(joint, options, line_of=lambda node: node.name).plan()
    except (MemoryError, Unsupported):
        return None
    by_name = {node.name: node for node in _forward(joint)}
    results = [each for each in joint.graph.output_node().args[0][:count] if isinstance(each, fx.Node)]
    end = _end_of_forward(plan, results)
    kept = set()
    for buffer in plan.buffers:
        if buffer.place in ("arena", "output") and (buffer.place == "output" or buffer.first_step <= end < buffer.last_step - 1):
            names = [name for value in buffer.values if (name := value.rpartition(" ")[2]) in by_name]
            if names:
                kept.add(_shown(by_name[names[-1]]))
    return kept


def _end_of_forward(plan: MemoryPlan, results: Sequence[fx.Node]) -> int:
    """Returns the step of forward's last result. Views compute nothing and may stand anywhere, and
    a kernel has the name of one of its nodes.
    """
    first: dict[str, int] = {}
    for number, step in enumerate(plan.steps):  # "%3 relu f32[8, 64] name"
        if step.split(" ")[1] != "reshape":
            first.setdefault(step.rpartition(" ")[2], number)
    found, waiting = [-1], list(results)
    while waiting:
        node = waiting.pop()
        if node.name in first:
            found.append(first[node.name])
        else:
            waiting += node.all_input_nodes
    return max(found)


def _behind_gradients(graph: fx.Graph) -> set[fx.Node]:
    """Returns the nodes that depend on a gradient of a result."""
    behind: set[fx.Node] = set()
    for node in graph.nodes:
        if (node.op == "placeholder" and "tangents" in node.name) or not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    return behind


def _forward(joint: fx.GraphModule) -> list[fx.Node]:
    """Returns the operations that depend on no gradient of a result."""
    behind = _behind_gradients(joint.graph)
    return [node for node in joint.graph.nodes if node not in behind and node.op == "call_function"]


def _cut(joint: fx.GraphModule, kept: set[fx.Node], count: int) -> Pair:
    """Returns forward and backward between which these values cross, and the random numbers that
    backward needs. All others are computed again just before they are read.
    """
    forward = set(_forward(joint))
    gradients = [each for each in joint.graph.output_node().args[0][count:] if isinstance(each, fx.Node)]
    changed = _changed_behind(joint)
    saved, waiting, seen = dict[fx.Node, None](), list(gradients), set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
        sources = (node, *node.all_input_nodes) if node.target is operator.getitem else (node,)
        reads_changed = node not in changed and any(each in changed for source in sources for each in source.all_input_nodes)
        if node in forward and is_tensor and (reads_changed or any(each in kept or is_random(each) for each in sources)):
            saved[node] = None
        else:
            waiting += node.all_input_nodes
    cut = [node for node in joint.graph.nodes if node in saved or (node.op == "placeholder" and node in seen and "tangents" not in node.name)]
    one, other = extract_forward_and_backward(joint, cut, [], num_fwd_outputs=count)
    _compute_late(other)
    return one, other


def _drop_unread_draws(backward: fx.GraphModule) -> None:
    """Removes draws of which backward reads nothing, for which torch's generator would move on. In place."""
    for node in reversed(backward.graph.nodes):
        if not node.users and is_random(node):
            backward.graph.erase_node(node)
    backward.recompile()


def _compute_late(backward: fx.GraphModule) -> None:
    """Moves operations that need no gradient to just before their first readers, in place."""
    graph = backward.graph
    behind = _behind_gradients(graph)
    calls = [node for node in graph.nodes if node.op == "call_function"]
    place = {node: number for number, node in enumerate(graph.nodes)}
    for node in reversed(calls):  # readers first
        if node not in behind:
            place[node] = min(place[each] for each in node.users) if node.users else place[node]
    for node in sorted(calls, key=lambda node: (place[node], node in behind)):
        graph.output_node().prepend(node)
    graph.lint()
    backward.recompile()
