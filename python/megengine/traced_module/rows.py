"""What pictures show of a graph: a row for each expr, with those of a called graph inside of the call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .._graph.rows import Measured, Row, rows_of, type_text
from ..module._reach import kept_tensors
from ..tensor import Tensor
from .expr import CallMethod, Expr
from .node import Node
from .packing import bind

if TYPE_CHECKING:
    from .internal_graph import InternalGraph

Path = tuple[Expr, ...]  # the calls of graphs around an expr, the outermost first


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
        if isinstance(expr, CallMethod) and expr.called is not None:
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
    given = [Row("input", "", types=type_text(x.dtype, x._tuple_shape)) for x in inputs]
    return rows_of(graph.fx_graph, measured, given=given)[0]
