"""GraphModules in model files (`megengine._files`): nodes as records, functions by name."""

from __future__ import annotations

import os
from typing import IO, Any

from .._files import admitted, graphs, modules
from .._files.container import Damaged
from .._files.values import ValueReader, ValueWriter, expect, record
from .graph import Graph
from .graph_module import GraphModule
from .node import Node

__all__ = ["load"]


def load(f: str | os.PathLike[str] | IO[bytes], trusted: admitted.Trusted = (), map_location: Any = None) -> GraphModule:
    """Reads the GraphModule that `GraphModule.save` wrote. Reading runs no code that the file
    chose.

    f: a path or an open binary file.
    trusted: functions and classes of yours that the graph calls: a list, or a mapping from the
        names in the file.
    map_location: as in `megengine.load`.

    Raises `ModelFileError`, a ValueError, for a file that cannot be read.

    >>> import io, megengine as mge, megengine.module as M
    >>> from megengine import fx
    >>> file = io.BytesIO()
    >>> fx.symbolic_trace(M.Sequential(M.Linear(3, 2), M.ReLU())).save(file)
    >>> _ = file.seek(0)
    >>> fx.load(file)(mge.functional.ones((1, 3))).shape
    (1, 2)
    """
    return modules.load(f, GraphModule, trusted, map_location)


# -- nodes ---------------------------------------------------------------------------------------


def check_node(node: Node, owner: GraphModule | None) -> None:
    """Damaged unless the node only computes; the same when it is written and when it is read."""
    what = f"the node {node.name!r}"
    if not graphs.is_name(node.name):
        raise Damaged(f"{node.name!r} cannot be the name of a node")
    if node.op == "call_function":
        graphs.check_function(node, node.target, what)
    elif node.op == "call_method":
        graphs.check_method(node.target, what)
    elif node.op in ("get_attr", "call_module"):
        graphs.at_path(owner, node.target, what)


def _write(owner: GraphModule, writer: ValueWriter) -> Any:
    outer, writer.nodes = writer.nodes, {}
    try:
        written = []
        for node in owner.graph.nodes:
            check_node(node, owner)
            written.append(_write_node(node, writer))
            writer.nodes[node] = len(written) - 1
        return written
    finally:
        writer.nodes = outer


def _write_node(node: Node, writer: ValueWriter) -> dict[str, Any]:
    target = node.target if isinstance(node.target, str) else admitted.name_of(node.target)
    written: dict[str, Any] = {"op": node.op, "name": node.name, "target": target}
    written |= writer.call(node.args, node.kwargs, node.source)
    meta = {}
    for key, value in node.meta.items():
        try:
            meta[key] = writer(value)
        except (Damaged, ValueError):
            pass  # a pass's own notes: only data goes into files
    if meta and all(isinstance(key, str) for key in meta):
        written["meta"] = meta
    return written


def _read(owner: GraphModule, data: Any, reader: ValueReader) -> None:
    graph = Graph()
    outer, reader.nodes = reader.nodes, []
    try:
        for item in expect(data, list):
            node = _read_node(graph, item, reader)
            check_node(node, owner)
            reader.nodes.append(node)
    finally:
        reader.nodes = outer
    owner.__dict__["_graph"] = graph
    graph.owning_module = owner


def _read_node(graph: Graph, item: Any, reader: ValueReader) -> Node:
    record(item, "op name target", "args kwargs source meta")
    op, name, target = (expect(item[key], str) for key in ("op", "name", "target"))
    if op == "call_function":
        target = reader.admission.function(target)
    args, kwargs, source = reader.call(item)
    node = graph.create_node(op, target, args, kwargs, name)
    node.name = name  # also one that a graph would not give by itself
    node.meta = reader.by_name(item.get("meta", {}))
    node.source = source
    return node


def _finish(owner: GraphModule, version: str) -> None:
    owner.graph.lint()
    parameters = ["self", *(node.name for node in owner.graph.nodes if node.op == "placeholder")]
    if len(set(parameters)) < len(parameters):  # Python would look for the line of its error in a file
        raise Damaged(f"two parameters of a graph have one name: {', '.join(parameters)}")
    owner.recompile()


modules.FORMS[GraphModule] = modules.Form(frozenset({"_graph", "_code", "forward"}), _write, _read, _finish)
