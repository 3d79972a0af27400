"""What pictures show of a graph: a row for each node, in the modules whose forward made it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from .. import module as M
from .._graph import GraphError, Measured, Row, link, map_leaves, nested, type_text
from ..utils.module_utils import kept_tensors, tensors_in
from .graph import Graph, attribute_at
from .interpreter import Interpreter
from .node import MODULE, Argument, Node, name_of_function
from .passes.shape_prop import TensorMetadata

_KINDS = {
    "placeholder": "input", "get_attr": "attribute", "call_function": "function", "call_method": "method",
    "call_module": "module", "output": "output",
}  # fmt: skip


class _Stopwatch(Interpreter):
    """Notes how long each node took, and the types of its value."""

    def __init__(self, module: M.Module, measured: Measured) -> None:
        super().__init__(module)
        self._measured = measured

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        start = time.perf_counter()
        value = getattr(self, n.op)(n.target, args, kwargs)
        seconds = time.perf_counter() - start
        types = ", ".join(type_text(x.dtype, x._tuple_shape) for x in tensors_in(value))
        self._measured.add(n, types, seconds)
        return value


def _measure(graph: Graph, inputs: tuple[Any, ...], runs: int) -> Measured:
    measured, module = Measured(), graph.owning_module
    if module is None:
        raise GraphError("a graph runs in its module\n  fix: fx.GraphModule(root, graph)")
    with kept_tensors([*module.tensors(), *tensors_in(inputs)]):
        for _ in range(runs):
            _Stopwatch(module, measured).run(*inputs)
    return measured


def graph_rows(graph: Graph, inputs: tuple[Any, ...] = (), runs: int = 0) -> list[Row]:
    """The rows of a graph; with inputs it is run on them for types and times."""
    measured = _measure(graph, inputs, runs) if inputs else Measured()
    rows: dict[Node, Row] = {}
    for node in graph:
        row = rows[node] = _row(graph, node)
        row.types = measured.types(node) or _noted_types(node)
        row.seconds = measured.seconds(node) if node.op.startswith("call_") else None
    for node, row in rows.items():
        link(row, [rows[value] for value in node.all_input_nodes if value in rows])
    places, classes = _places(graph)
    return nested(list(zip(places, rows.values(), strict=True)), classes)


def _row(graph: Graph, node: Node) -> Row:
    args = _shown(node.args, node.kwargs)
    callee, call, about = node.target, "", ""
    if node.op == "call_function":
        callee = name_of_function(node.target)
        call = f"{callee.rpartition('.')[2]}({args})"
    elif node.op == "call_method":
        called_on = _shown(node.args[:1])
        call = f"{called_on}.{node.target}({_shown(node.args[1:], node.kwargs)})"
    elif node.op == "call_module":
        call = f"{node.target}({args})"
        about = _module_text(graph.owning_module, node.target)
    elif node.op == "get_attr":
        call = f"self.{node.target}"
    elif node.op == "output":
        call = f"return {args}"
    elif node.args:
        call = f"default {args}"
    return Row(_KINDS[node.op], node.name, callee, call, about, source=node.source)


class _Name(str):
    """Stands for a node or function in a tree whose repr is shown."""

    __repr__ = str.__str__


def _shown(args: tuple[Any, ...], kwargs: dict[str, Argument] | None = None) -> str:
    """Arguments as a program writes them."""

    def named(leaf: Any) -> Any:
        if isinstance(leaf, Node):
            return _Name(leaf.name)
        return (
            _Name(name_of_function(leaf)) if callable(leaf) and hasattr(leaf, "__name__") else leaf
        )

    args, kwargs = map_leaves((args, kwargs or {}), named)
    return ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])


def _module_text(root: M.Module | None, path: str) -> str:
    """Class and settings of the module at ``path``."""
    module = attribute_at(root, path, default=None)
    if not isinstance(module, M.Module):
        return ""
    return f"{type(module).__name__}({module._module_info_string()})"


def _noted_types(node: Node) -> str:
    """What `ShapeProp` noted."""
    found: list[str] = []

    def look(tree: Any) -> None:
        if isinstance(tree, TensorMetadata):
            found.append(type_text(tree.dtype, tree.shape))
        elif isinstance(tree, (tuple, list, dict)):
            for item in tree.values() if isinstance(tree, dict) else tree:
                look(item)

    look(node.meta.get("tensor_meta"))
    return ", ".join(found)


def _places(graph: Graph) -> tuple[list[tuple[str, ...]], dict[tuple[str, ...], str]]:
    """For each node the modules around it, the outermost first; and the classes of these."""
    classes: dict[tuple[str, ...], str] = {}
    paths = _paths(graph)
    modules = {path: _modules_on(graph.owning_module, path, classes) for path in set(paths)}
    return [modules[path] for path in paths], classes


def _paths(graph: Graph) -> list[str]:
    """For each node the path of the module whose forward it is a part of.

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
    """Each None replaced by what stands before it."""
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
