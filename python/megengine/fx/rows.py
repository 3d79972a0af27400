"""Makes the rows that pictures show of a graph: one for each node, within the modules whose forward
made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from .. import module as M
from .._graph.core import Graph
from .._graph.rows import Measured, Row, nested, rows_of
from .node import MODULE, Node, attribute_at


def graph_rows(graph: Graph, measured: Measured) -> list[Row]:
    """The rows of a graph, with types and times as far as they were measured."""
    rows, _ = rows_of(graph, measured)
    places, classes = _places(graph)
    return nested(list(zip(places, rows, strict=True)), classes)


def _places(graph: Graph) -> tuple[list[tuple[str, ...]], dict[tuple[str, ...], str]]:
    """Returns the modules around each node, the outermost first, and the classes of these modules.
    """
    classes: dict[tuple[str, ...], str] = {}
    paths = _paths(graph)
    modules = {path: _modules_on(graph.owner, path, classes) for path in set(paths)}
    return [modules[path] for path in paths], classes


def _paths(graph: Graph) -> list[str]:
    """Returns for each node the path of the module whose forward contains it.

    A node that an edit put in stands in the innermost module that its neighbours both stand in.
    """
    noted = [_noted_path(node) for node in graph]
    before, after = _filled(noted), _filled(noted[::-1])[::-1]
    return [
        _common(earlier, later) if path is None else path
        for path, earlier, later in zip(noted, before, after, strict=True)
    ]


def _noted_path(node: Node) -> str | None:
    if MODULE in node.meta:
        return node.meta[MODULE]
    if node.op in ("call_module", "get_attr"):
        return node.target.rpartition(".")[0]
    return "" if node.op in ("placeholder", "output") else None


def _filled(paths: Sequence[str | None]) -> list[str]:
    """Replaces each None by the path before it."""
    return list(accumulate(paths, lambda known, path: known if path is None else path, initial=""))[
        1:
    ]


def _common(one: str, other: str) -> str:
    """The longest path that both begin with."""
    steps = []
    for step, same in zip(one.split("."), other.split("."), strict=False):
        if step != same:
            break
        steps.append(step)
    return ".".join(steps)


def _modules_on(
    root: M.Module | None, path: str, classes: dict[tuple[str, ...], str]
) -> tuple[str, ...]:
    """The names of the modules on the way; a list or dict goes with the module that it holds."""
    modules: tuple[str, ...] = ()
    name = ""
    steps = path.split(".") if path else []
    for depth, step in enumerate(steps, 1):
        name = f"{name}.{step}" if name else step
        found = attribute_at(root, ".".join(steps[:depth]), default=None)
        if isinstance(found, M.Module) or depth == len(steps):
            modules, name = (*modules, name), ""
            # A GraphModule has plain modules in the places of those whose forward was traced into.
            is_known = isinstance(found, M.Module) and type(found) is not M.Module
            classes[modules] = type(found).__name__ if is_known else ""
    return modules
