"""What pictures show of a graph: a row for each expr, with those of a called graph inside of the call."""

from __future__ import annotations

import time
from typing import Any

from .._graph import Measured, Row, link, type_text
from ..module import Module
from ..tensor import Tensor
from ..utils.module_utils import kept_tensors
from .expr import Apply, CallFunction, CallMethod, Constant, Expr, GetAttr, Input, is_call_module
from .internal_graph import InternalGraph
from .node import ModuleNode, Node, TensorNode
from .packing import bind, show, unpack
from .pytree import tree_flatten

Path = tuple[CallMethod, ...]  # the calls of graphs around an expr, the outermost first


class _Stopwatch:
    """Runs a graph and the graphs that it calls, and notes how long each expr took and the types of its results."""

    def __init__(self) -> None:
        self.measured = Measured()
        self._path: Path = ()

    def run(self, graph: InternalGraph, inputs: list[Any]) -> Any:
        return graph._run(inputs, self._run_expr)

    def _run_expr(self, expr: Expr, env: dict[Node, Any]) -> None:
        path = self._path
        start = time.perf_counter()
        if isinstance(expr, CallMethod) and expr.graph is not None:
            self._path = (*path, expr)
            bind(expr._result, self._called(expr, env), env, expr)
            self._path = path
        else:
            expr.run(env)
        seconds = time.perf_counter() - start
        made = [env[node] for node in expr.outputs if isinstance(env[node], Tensor)]
        types = ", ".join(type_text(x.dtype, x._tuple_shape) for x in made)
        self.measured.add((path, expr), types, seconds)

    def _called(self, expr: CallMethod, env: dict[Node, Any]) -> Any:
        (module, *args), kwargs = expr.unflatten_args([env[node] for node in expr.inputs])
        graph, leaves = module._graph_for(tuple(args), kwargs)
        return self.run(graph, [module, *leaves])


def _measure(graph: InternalGraph, inputs: tuple[Any, ...], runs: int) -> Measured:
    for value in inputs:
        if not isinstance(value, Tensor):
            raise TypeError(f"html: {graph.name} takes tensors, got {value!r}")
    stopwatch = _Stopwatch()
    module = graph._module
    with kept_tensors([*module.tensors(), *inputs]):
        for _ in range(runs):
            stopwatch.run(graph, [module, *inputs])
    return stopwatch.measured


def graph_rows(graph: InternalGraph, inputs: tuple[Any, ...] = (), runs: int = 0) -> list[Row]:
    """The rows of a graph; with values of ``inputs[1:]`` it is run on them for types and times."""
    measured = _measure(graph, inputs, runs) if inputs else Measured()
    types = [type_text(x.dtype, x._tuple_shape) for x in inputs]
    rows, results = _rows_of(graph, (), [Row("input", "", types=text) for text in types], measured)
    given = show(unpack(graph._result))
    result = Row(
        "output", "return", "", f"return {given}", types=", ".join(row.types for row in results)
    )
    link(result, results)
    return [*rows, result]


def _rows_of(
    graph: InternalGraph, path: Path, given: list[Row], measured: Measured
) -> tuple[list[Row], list[Row]]:
    """Rows of the exprs, and those of them that make the result. given: where the inputs come from."""
    made: dict[Node, Row] = {}
    rows: list[Row] = []
    arguments = iter(given)
    for expr in graph:
        row = _row(expr)
        row.types = measured.types((path, expr)) or _noted_types(expr)
        if isinstance(expr, CallMethod | CallFunction | Apply):
            row.seconds = measured.seconds((path, expr))
        link(row, [made[node] for node in expr.inputs if node in made])
        if isinstance(expr, Input) and isinstance(expr.outputs[0], TensorNode):
            _take(row, next(arguments, None))
        inner = _called_graph(expr)
        if inner is not None:
            args, kwargs = unpack(expr.args[1:]), unpack(dict(expr.kwargs))
            leaves, _ = tree_flatten(expr.args[0].owner._canonical(args, kwargs))
            sources = [made[leaf] for leaf in leaves]
            row.children, row.results = _rows_of(inner, (*path, expr), sources, measured)
            for result in row.results:
                result.users.append(row)
        made.update(dict.fromkeys(expr.outputs, row))
        rows.append(row)
    return rows, [made[node] for node in graph.outputs if node in made]


def _take(row: Row, source: Row | None) -> None:
    """An input comes from a row of the calling graph, or from outside, where its type alone is known."""
    if source is not None:
        row.types = source.types or row.types
        if source.name:
            link(row, [source])


def _row(expr: Expr) -> Row:
    name = ", ".join(node.name for node in expr.outputs)
    call = expr._called("")
    if call.endswith(", )"):
        call = f"{call.removesuffix(', )')})"
    kind, callee, about = "method", type(expr).__name__, ""
    if is_call_module(expr):
        kind, about = "module", _module_text(expr.args[0])
        callee = about.partition("(")[0]
    elif isinstance(expr, CallMethod):
        callee = expr.method
    elif isinstance(expr, CallFunction):
        kind, callee = "function", f"{expr.func.__module__}.{expr.func.__qualname__}"
    elif isinstance(expr, Apply):
        kind, callee = "function", type(expr.opdef).__name__
    elif isinstance(expr, GetAttr):
        kind, callee = "attribute", expr.attr_name
    elif isinstance(expr, Constant):
        kind = "constant"
    elif isinstance(expr, Input):
        kind, call = ("input" if isinstance(expr.outputs[0], TensorNode) else "attribute"), ""
    return Row(kind, name, callee, call, about, source=expr.source)


def _called_graph(expr: Expr) -> InternalGraph | None:
    """None also where the module that is called is gone: broken graphs are looked at, too."""
    try:
        return expr.graph if isinstance(expr, CallMethod) else None
    except (AttributeError, KeyError, IndexError):
        return None


def _module_text(node: ModuleNode) -> str:
    """Class and settings of a module."""
    try:
        module: Any = node.owner
    except (AttributeError, KeyError, IndexError):
        return "missing"
    if not isinstance(module, Module):
        return type(module).__name__
    if hasattr(module, "argdef_graph_map"):
        return module._class_name  # type: ignore[attr-defined]  # a TracedModule
    return f"{type(module).__name__}({module._module_info_string()})"


def _noted_types(expr: Expr) -> str:
    """Types as they were while tracing."""
    known = [
        node for node in expr.outputs if isinstance(node, TensorNode) and node.shape is not None
    ]
    return ", ".join(type_text(node.dtype, node.shape or ()) for node in known)
