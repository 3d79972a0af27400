"""Finds parts of a graph that match a pattern, and replaces them by other nodes."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import functional as F
from .. import module as M
from .graph import Graph
from .graph_module import GraphModule
from .node import MODULE, Node, attribute_at, map_arg
from .tracer import symbolic_trace
from .verify import computes, verify_same

__all__ = ["Match", "replace_pattern"]

_COMMUTATIVE = frozenset({
    operator.add, operator.mul, operator.and_, operator.or_, operator.xor, operator.eq, operator.ne,
    F.add, F.mul, F.maximum, F.minimum, F.equal, F.not_equal, F.logical_and, F.logical_or, F.logical_xor,
    F.logaddexp,
})  # fmt: skip


class Match(NamedTuple):
    """Describes a place where `replace_pattern` found a pattern.

    Parameters
    ----------
    anchor : Node
        Last node of the match, which is erased by now.
    nodes_map : dict of Node
        Mapping of a node of the pattern to a node or constant of the graph.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import fx
    >>> gm = fx.symbolic_trace(lambda x: F.relu(x * 0.5))
    >>> match, = fx.replace_pattern(gm, lambda a, b: F.relu(a * b), lambda a, b: a * b)
    >>> {node.name: value for node, value in match.nodes_map.items() if node.op == "placeholder"}
    {'a': x, 'b': 0.5}
    """

    anchor: Node
    nodes_map: dict[Node, Any]


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | M.Module | Graph,
    replacement: Callable[..., Any] | M.Module | Graph,
    *,
    verify: object = None,
) -> list[Match]:
    """Puts a replacement wherever a pattern is found in a module, and recompiles.

    An input of the pattern stands for any value or constant, the same one wherever it is read.
    Nodes match if they do the same: arguments may be positional, by keyword or left at their
    default, and those of commutative functions may be in either order. Attributes and modules match
    by path. A place does not match if other nodes read values inside of it, or if one of its inputs
    is computed only after a part of it.

    Matches do not overlap, but one may read the result of another. New nodes have the line and the
    module of the last node of their match, and a result also keeps the type and the other ``meta``
    of the node that made it before.

    Parameters
    ----------
    gm : GraphModule
        Module that is searched and changed.
    pattern : callable, Module or Graph
        Program to look for: a function, a module or a graph.
    replacement : callable, Module or Graph
        Program to put in place, with as many inputs and results as the pattern. Attributes and
        modules that it names and ``gm`` lacks are taken from it.
    verify : Tensor, tuple or None
        A tensor or tuple of arguments for which results before and after are compared
        (`verify_same`).

    Returns
    -------
    list of Match
        The matches, in the order of the graph.

    Raises
    ------
    ValueError
        For a pattern without a computation, or for numbers of inputs or results that differ.
    VerificationError
        If results on the arguments in verify differ.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import fx
    >>> gm = fx.symbolic_trace(lambda x: F.relu(x * 0.5) + 1)
    >>> len(fx.replace_pattern(gm, lambda x, c: F.relu(x * c), lambda x, c: F.maximum(c * x, 0)))
    1
    >>> print(gm.graph)
    graph():
        %x : [#users=1] = placeholder[target=x]
        %mul_1 : [#users=1] = call_function[target=operator.mul](args = (0.5, %x), kwargs = {})
        %maximum : [#users=1] = call_function[target=megengine.functional.maximum](args = (%mul_1, 0), kwargs = {})
        %add : [#users=1] = call_function[target=operator.add](args = (%maximum, 1), kwargs = {})
        return add
    """
    before = copy.deepcopy(gm) if verify is not None else None
    wanted = _Pattern(_graph_of(pattern))
    new = _Replacement(replacement, wanted)
    matches: list[Match] = []
    claimed: set[Node] = set()
    positions = gm.graph.positions()
    for node in gm.graph.nodes:
        found = wanted.match_at(node, claimed, positions)
        if found is not None:
            claimed.update(found[inner] for inner in wanted.inner)
            matches.append(
                Match(
                    max((found[inner] for inner in wanted.inner), key=positions.__getitem__), found
                )
            )
    new.install(gm)
    replaced: dict[Node, Any] = {}
    for match in matches:
        new.put(gm.graph, match, replaced)
    gm.recompile()
    if before is not None:
        verify_same(before, gm, verify)
    return matches


def _graph_of(program: Callable[..., Any] | M.Module | Graph) -> Graph:
    if isinstance(program, Graph):
        return program
    return program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph


def _results(graph: Graph) -> tuple[Any, ...]:
    result = graph.output_node.args[0]
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


# -- what a call does, whatever way its arguments are written -------------------------------------


def _bound(node: Node) -> Any:
    """Returns arguments by name with defaults, if the parameters are known."""
    named = node.arguments_by_name()
    return (node.args, node.kwargs) if named is None else named


class _Pattern:
    """A pattern's graph, made ready for matching.

    outputs: the nodes whose values are its results. inner: all nodes but inputs and output.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.inner = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        self.outputs = _results(graph)
        if not self.inner or any(
            not isinstance(node, Node) or node.op == "placeholder" for node in self.outputs
        ):
            raise ValueError(
                "the pattern must compute each of its results, not hand on an input or a constant"
            )
        unread = [n for n in self.inner if not n.users]
        if unread:
            raise ValueError(f"node {unread[0].describe()} of the pattern leads to no result")
        self._arguments = {node: _bound(node) for node in self.inner}

    def match_at(
        self, node: Node, claimed: set[Node], positions: dict[Node, int]
    ) -> dict[Node, Any] | None:
        """The match whose first result is ``node``; None when there is none."""
        anchor = self.outputs[0]
        if node.op != anchor.op or node.target != anchor.target or node in claimed:
            return None
        binding: dict[Node, Any] = {}
        for found in self._node(anchor, node, binding):
            for whole in self._other_outputs(1, found):
                if self._is_sound(whole, claimed, positions):
                    return whole
        return None

    def _other_outputs(self, place: int, binding: dict[Node, Any]) -> Iterator[dict[Node, Any]]:
        """Extends a match to the other results, which it looks for among the readers of matched
        nodes.
        """
        if place == len(self.outputs):
            yield binding
            return
        wanted = self.outputs[place]
        if wanted in binding:
            yield from self._other_outputs(place + 1, binding)
            return
        for candidate in self._readers(wanted, binding):
            for found in self._node(wanted, candidate, binding):
                yield from self._other_outputs(place + 1, found)

    def _readers(self, wanted: Node, binding: dict[Node, Any]) -> list[Node]:
        """Iterates over candidates for a result: nodes reached along the pattern from a matched
        node that it depends on.
        """
        for value in wanted.all_input_nodes:
            known = [binding[value]] if value in binding else self._readers(value, binding)
            nodes: list[Any] = [
                user for node in known if isinstance(node, Node) for user in node.users
            ]
            if nodes:
                return [n for n in nodes if n.op == wanted.op and n.target == wanted.target]
        return []

    # A match grows in a dict, which is copied only at choices: commutative functions.

    def _node(self, wanted: Node, node: Any, binding: dict[Node, Any]) -> Iterator[dict[Node, Any]]:
        if wanted in binding:
            known = binding[wanted]
            if known is node or (not isinstance(known, Node) and _same(known, node)):
                yield binding
            return
        if wanted.op == "placeholder":
            yield {**binding, wanted: node}
            return
        if not isinstance(node, Node) or node.op != wanted.op or node.target != wanted.target:
            return
        binding = {**binding, wanted: node}
        yield from self._tree(self._arguments[wanted], _bound(node), binding)
        if wanted.target in _COMMUTATIVE and len(node.args) == len(wanted.args) == 2:
            yield from self._tree(wanted.args, node.args[::-1], binding)

    def _tree(
        self, wanted: Any, actual: Any, binding: dict[Node, Any]
    ) -> Iterator[dict[Node, Any]]:
        if isinstance(wanted, Node):
            yield from self._node(wanted, actual, binding)
        elif isinstance(wanted, slice) and isinstance(actual, slice):
            ends, found = ((s.start, s.stop, s.step) for s in (wanted, actual))
            yield from self._tree(ends, found, binding)
        elif isinstance(wanted, dict):
            if isinstance(actual, dict) and wanted.keys() == actual.keys():
                yield from self._items(
                    [(item, actual[key]) for key, item in wanted.items()], binding
                )
        elif isinstance(wanted, (tuple, list)):
            if isinstance(actual, (tuple, list)) and len(wanted) == len(actual):
                yield from self._items(list(zip(wanted, actual, strict=True)), binding)
        elif _same(wanted, actual):
            yield binding

    def _items(
        self, pairs: list[tuple[Any, Any]], binding: dict[Node, Any]
    ) -> Iterator[dict[Node, Any]]:
        if not pairs:
            yield binding
            return
        for found in self._tree(*pairs[0], binding):
            yield from self._items(pairs[1:], found)

    def _is_sound(
        self, binding: dict[Node, Any], claimed: set[Node], positions: dict[Node, int]
    ) -> bool:
        """Whether the match can be taken out of the graph as a whole."""
        nodes = {binding[inner]: inner for inner in self.inner}
        if len(nodes) < len(self.inner) or not claimed.isdisjoint(nodes):
            return False
        results = {binding[output] for output in self.outputs}
        for node in nodes:
            if node not in results and any(user not in nodes for user in node.users):
                return False
        # The last matched node makes the results, so their readers must come later.
        last = max(positions[node] for node in nodes)
        return all(
            positions[user] > last for node in results for user in node.users if user not in nodes
        )


def _same(wanted: Any, actual: Any) -> bool:
    """Whether two constants are the same; 1, 1.0 and True are not."""
    return wanted is actual or (type(wanted) is type(actual) and bool(wanted == actual))


def _now(node: Any, replaced: dict[Node, Any]) -> Any:
    """Returns the node that stands for a node of the graph after the replacements so far."""
    while isinstance(node, Node) and node in replaced:
        node = replaced[node]
    return node


def _describe_as(node: Node, original: Node) -> None:
    """Gives a new node the line and names of the original, for errors and plans."""
    node.source = original.source
    node.meta[MODULE] = original.meta.get(MODULE, "")


class _Replacement:
    def __init__(self, program: Callable[..., Any] | M.Module | Graph, pattern: _Pattern) -> None:
        graph = _graph_of(program)
        self.pattern = pattern
        self.root = program if isinstance(program, M.Module) else graph.owning_module
        self.graph = graph
        self.inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.outputs = _results(graph)
        for what, ours, theirs in (
            ("inputs", self.inputs, pattern.inputs),
            ("results", self.outputs, pattern.outputs),
        ):
            if len(ours) != len(theirs):
                raise ValueError(
                    f"the pattern has {len(theirs)} {what}, the replacement {len(ours)}"
                )

    def install(self, gm: GraphModule) -> None:
        """Give ``gm`` the attributes that the replacement names and ``gm`` lacks."""
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr") and self.root is not None:
                if attribute_at(gm, node.target, default=None) is None:
                    gm._take(self.root, node)

    def put(self, graph: Graph, match: Match, replaced: dict[Node, Any]) -> None:
        """Insert a copy before the match's last node, hand its results on, and erase the match."""
        env: dict[Node, Any] = {}
        for ours, theirs in zip(self.inputs, self.pattern.inputs, strict=True):
            if theirs not in match.nodes_map and ours.users:
                raise ValueError(f"input {theirs.name!r} of the pattern is read by nothing in it")
            env[ours] = map_arg(match.nodes_map.get(theirs), lambda node: _now(node, replaced))
        known = set(env)
        with graph.inserting_before(match.anchor):
            graph.graph_copy(self.graph, env)
        made = {env[node] for node in env.keys() - known}
        for node in made:
            _describe_as(node, match.anchor)
        for theirs, ours in zip(self.pattern.outputs, self.outputs, strict=True):
            old, new = match.nodes_map[theirs], env[ours] if isinstance(ours, Node) else ours
            old.replace_all_uses_with(new)
            replaced[old] = new
            if isinstance(new, Node) and new in made:
                _describe_as(new, old)
                new.type, new.meta = new.type or old.type, {**old.meta, **new.meta}
            computes(new, old)
        for inner in reversed(self.pattern.inner):
            graph.erase_node(match.nodes_map[inner])
