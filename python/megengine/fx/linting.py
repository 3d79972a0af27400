"""Whether graphs are well formed, and what edits have to mind in them; see `Graph.lint`."""

from __future__ import annotations

from typing import Any

from .._graph import GraphError, remarks_on_sharing
from ..module._structure import all_paths
from ..module._training import training_part, trains
from .graph import Graph, attribute_at
from .node import Node


def lint(graph: Graph, for_inference: bool) -> list[str]:
    """See `Graph.lint`."""
    check(graph)
    owner = graph.owning_module
    if for_inference:
        for node in graph:
            _check_mode(node, owner)
    if owner is None:
        return []
    return remarks_on_sharing(
        all_paths(owner), _found(graph, "call_module"), _found(graph, "get_attr")
    )


def _found(graph: Graph, op: str) -> list[tuple[Node, Any]]:
    owner = graph.owning_module
    return [(node, attribute_at(owner, node.target)) for node in graph if node.op == op]


def check(graph: Graph) -> None:
    """GraphError unless the graph is well formed."""
    graph.check()
    names: dict[str, Node] = {}
    body_began = False
    for node in graph:
        if names.setdefault(node.name, node) is not node:
            raise GraphError(f"two nodes are called {node.describe()}")
        if node.op == "placeholder" and body_began:
            raise GraphError(f"the input {node.describe()} stands after other nodes")
        body_began |= node.op not in ("placeholder", "get_attr")
        if node.op == "output" and node is not graph.last:
            raise GraphError(f"node {graph.following(node).describe()} stands after the output")
        _check_target(node, graph.owning_module)
    if getattr(graph.owning_module, "graph", graph) is not graph:
        raise GraphError(
            f"{type(graph.owning_module).__name__} runs another graph than this one\n"
            "  fix: assign this one to its attribute graph"
        )


def _check_target(node: Node, owner: Any) -> None:
    if node.op == "call_function":
        if not callable(node.target):
            raise GraphError(f"{node.describe()} calls {node.target!r}, which is not callable")
        return
    if not isinstance(node.target, str):
        raise GraphError(
            f"{node.describe()}: the target of {node.op} must be a str, is {node.target!r}"
        )
    if node.op == "call_method" and not node.args:
        raise GraphError(f"{node.describe()} calls a method of nothing: args is empty")
    if owner is None or node.op not in ("call_module", "get_attr"):
        return
    try:
        found = attribute_at(owner, node.target)
    except AttributeError:
        raise GraphError(f"{node.describe()}: the module has nothing at {node.target!r}") from None
    if node.op == "call_module" and not callable(found):
        raise GraphError(
            f"{node.describe()}: {node.target!r} is a {type(found).__name__}, not a module"
        )


def _check_mode(node: Node, owner: Any) -> None:
    part = None
    if node.op == "call_module" and owner is not None:
        part = training_part(attribute_at(owner, node.target))
    if part is not None or (
        node.op == "call_function" and trains(node.target, node.args, node.kwargs)
    ):
        what = f": {type(part[1]).__name__} {part[0]!r}" if part else ""
        raise GraphError(
            f"{node.describe()} is in training mode{what}\n"
            "  fix: call eval() of the module before it is traced or optimized"
        )
