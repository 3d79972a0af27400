"""Pictures of graphs, as Graphviz text."""

from __future__ import annotations

import os
import shutil
import subprocess

from ..._graph import dot
from ..graph_module import GraphModule
from ..node import Node, name_of_function

__all__ = ["DotGraph", "FxGraphDrawer"]

_COLOURS = {
    "placeholder": "#d5e8d4", "get_attr": "#fff2cc", "call_function": "#dae8fc", "call_method": "#dae8fc",
    "call_module": "#e1d5e7", "output": "#f8cecc",
}  # fmt: skip


class DotGraph(str):
    """Graphviz text of a graph."""

    def to_string(self) -> str:
        """The text."""
        return str(self)

    def write(self, path: str | os.PathLike, format: str = "dot") -> None:
        """Write the text, or with another format ("svg", "png", "pdf") the picture that Graphviz makes.

        RuntimeError when a picture is asked for and Graphviz's ``dot`` is not installed.
        """
        if format == "dot":
            with open(path, "w", encoding="utf-8") as file:
                file.write(self)
            return
        program = shutil.which("dot")
        if program is None:
            raise RuntimeError(
                "a picture needs Graphviz, whose program `dot` is not installed\n  fix: write the text (format='dot')"
            )
        command = [program, f"-T{format}", "-o", os.fspath(path)]
        subprocess.run(command, input=self, text=True, check=True)

    def write_svg(self, path: str | os.PathLike) -> None:
        """`write` with format "svg"."""
        self.write(path, "svg")


class FxGraphDrawer:
    """Draws a GraphModule: a box for each node, with its target, and its shape after `ShapeProp`.

    name: of the graph. ignore_getattr: leave reads of attributes out.

    >>> from megengine import fx
    >>> drawer = fx.passes.graph_drawer.FxGraphDrawer(fx.symbolic_trace(lambda x: x + 1), "sum")
    >>> '"x" -> "add"' in drawer.get_dot_graph().to_string()
    True
    """

    def __init__(self, graph_module: GraphModule, name: str, ignore_getattr: bool = False) -> None:
        nodes = [
            node
            for node in graph_module.graph.nodes
            if not (ignore_getattr and node.op == "get_attr")
        ]
        drawn = set(nodes)
        edges = [
            (value.name, node.name)
            for node in nodes
            for value in node.all_input_nodes
            if value in drawn
        ]
        self._dot = DotGraph(dot(name, [(node.name, _attributes(node)) for node in nodes], edges))

    def get_dot_graph(self) -> DotGraph:
        """The picture as Graphviz text."""
        return self._dot


def _attributes(node: Node) -> dict[str, object]:
    target = node.target if isinstance(node.target, str) else name_of_function(node.target)
    lines = [node.name, f"{node.op} {target}"]
    meta = node.meta.get("tensor_meta")
    if meta is not None:
        lines.append(f"{meta.dtype}{list(meta.shape)}" if hasattr(meta, "shape") else str(meta))
    return {"label": "\n".join(lines), "style": "filled", "fillcolor": _COLOURS[node.op]}
