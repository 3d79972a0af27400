"""Makes the rows that pictures show: one for each expr, with those of a called graph inside the
call.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .._graph.rows import Measured, Row, rows_of, type_text
from ..module._reach import kept_tensors, tensors_in
from ..tensor import Tensor
from .expr import Expr
from .node import Node

if TYPE_CHECKING:
    from .internal_graph import InternalGraph

Path = tuple[Expr, ...]  # the calls of graphs around an expr, the outermost first


class _Stopwatch:
    """Runs exprs, also of graphs that are called, and notes how long each took and the types of its results."""

    def __init__(self) -> None:
        self.measured = Measured()
        self._path: Path = ()

    def run(self, expr: Expr, env: dict[Node, Any]) -> None:
        path = self._path
        self._path = (*path, expr) if expr.called is not None else path
        start = time.perf_counter()
        expr.run(env)
        seconds = time.perf_counter() - start
        self._path = path
        self.measured.add((path, expr), tensors_in([env[node] for node in expr.outputs]), seconds)


def _measure(graph: InternalGraph, inputs: tuple[Any, ...], runs: int) -> Measured:
    for value in inputs:
        if not isinstance(value, Tensor):
            raise TypeError(f"html: {graph.name} takes tensors, got {value!r}")
    stopwatch = _Stopwatch()
    with graph.run_by(stopwatch.run), kept_tensors([*graph._module.tensors(), *inputs]):
        for _ in range(runs):
            graph.eval(*inputs)
    return stopwatch.measured


def graph_rows(graph: InternalGraph, inputs: tuple[Any, ...] = (), runs: int = 0) -> list[Row]:
    """The rows of a graph; with values of ``inputs[1:]`` it is run on them for types and times."""
    measured = _measure(graph, inputs, runs) if inputs else Measured()
    given = [Row("input", "", types=type_text(x.dtype, x._tuple_shape)) for x in inputs]
    return rows_of(graph.fx_graph, measured, given=given)[0]
