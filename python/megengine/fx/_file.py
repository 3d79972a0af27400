"""GraphModules in model files (`megengine._files`): nodes as records, functions by name."""

from __future__ import annotations

import os
from typing import IO, Any

from .._files import admitted, graphs, modules
from .._files.container import Damaged
from .._files.values import ValueReader, ValueWriter
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


def _write(owner: GraphModule, writer: ValueWriter) -> Any:
    return graphs.write_graph(owner.graph, writer)


def _read(owner: GraphModule, data: Any, reader: ValueReader) -> None:
    graph = owner.__dict__["_graph"] = Graph(owner)
    graphs.read_graph(data, reader, reader.admission.function, Node, graph._read)


def _finish(owner: GraphModule, version: str) -> None:
    owner.graph.lint()
    parameters = ["self", *(node.name for node in owner.graph.nodes if node.op == "placeholder")]
    if len(set(parameters)) < len(parameters):  # Python would look for the line of its error in a file
        raise Damaged(f"two parameters of a graph have one name: {', '.join(parameters)}")
    owner.recompile()


modules.FORMS[GraphModule] = modules.Form(frozenset({"_graph", "_code", "forward"}), _write, _read, _finish)
