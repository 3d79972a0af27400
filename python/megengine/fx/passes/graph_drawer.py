"""Pictures of graphs, as Graphviz text."""

from __future__ import annotations

import os
import shutil
import subprocess

from ..._files.disk import write_text
from ..graph_module import GraphModule

__all__ = ["DotGraph", "FxGraphDrawer"]

class DotGraph(str):
    """Graphviz text of a graph."""

    def to_string(self) -> str:
        """The text."""
        return str(self)

    def write(self, path: str | os.PathLike[str], format: str = "dot") -> None:
        """Write the text, or with another format ("svg", "png", "pdf") the picture that Graphviz makes.

        RuntimeError when a picture is asked for and Graphviz's ``dot`` is not installed.
        """
        if format == "dot":
            write_text(path, self)
            return
        program = shutil.which("dot")
        if program is None:
            raise RuntimeError(
                "a picture needs Graphviz, whose program `dot` is not installed\n  fix: write the text (format='dot')"
            )
        command = [program, f"-T{format}", "-o", os.fspath(path)]
        subprocess.run(command, input=self, text=True, check=True)

    def write_svg(self, path: str | os.PathLike[str]) -> None:
        """`write` with format "svg"."""
        self.write(path, "svg")


class FxGraphDrawer:
    """Draws a GraphModule: a box for each node, with its target, and its shape after `ShapeProp`.

    name: the name of the graph. ignore_getattr: whether to leave out reads of attributes.

    >>> from megengine import fx
    >>> drawer = fx.passes.graph_drawer.FxGraphDrawer(fx.symbolic_trace(lambda x: x + 1), "sum")
    >>> '"x" -> "add"' in drawer.get_dot_graph().to_string()
    True
    """

    def __init__(self, graph_module: GraphModule, name: str, ignore_getattr: bool = False) -> None:
        self._dot = DotGraph(graph_module.graph.dot(name, ignore_getattr))

    def get_dot_graph(self) -> DotGraph:
        """The picture as Graphviz text."""
        return self._dot

