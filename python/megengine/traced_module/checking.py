"""Traces, then runs the graph on the same arguments and compares the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..fx.node import is_public_random
from ..fx.verify import difference
from ..module import Dropout, Module
from ..module._reach import kept_tensors
from ..tensor import Tensor
from . import tm_config
from .expr import CallFunction, Expr
from .node import Node
from .packing import unpack
from .pytree import tree_flatten
from .tracing import Tracer

if TYPE_CHECKING:
    from .traced_module import TracedModule


class TraceMismatch(RuntimeError):
    """The graph does not compute what the program did."""


def traced_and_checked(made: type[TracedModule], mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedModule:
    """Traces ``mod`` into a module of class ``made``. Tensors that its forward writes are
    afterwards as after one run.
    """
    check = tm_config.check_result or tm_config.check_exprs
    tracer = Tracer(made, keep_values=tm_config.check_exprs)
    written = [*mod.tensors(), *(x for x in tree_flatten((args, kwargs))[0])] if check else []
    before = [tensor.detach() for tensor in written]
    traced, expected = tracer.trace(mod, type(mod).__name__, args, kwargs)
    traced._is_top = True
    traced._adopt_graphs()
    if check and not _is_random(traced):
        with kept_tensors(written):
            _put(written, before)
            _compare(traced, tracer, expected, args, kwargs)
    return traced


def _put(tensors: list[Tensor], values: list[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        if tensor.value_id() != value.value_id():
            tensor._reset(value)


def _is_random(traced: TracedModule) -> bool:
    """Whether running it again gives something else."""
    return any(_draws(expr) for graph in traced._inner_graphs() for expr in graph)


def _draws(expr: Expr) -> bool:
    if expr.op == "call_module":
        return expr.called is None and any(isinstance(m, Dropout) and m.training for m in expr.reached().modules())
    if not isinstance(expr, CallFunction):
        return False
    return is_public_random(expr.func) or expr.func.__name__ == "dropout" or expr.func.__qualname__.startswith("RNG.")


def _compare(traced: TracedModule, tracer: Tracer, expected: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def run_and_compare(expr: Expr, env: dict[Node, Any]) -> None:
        expr.run(env)
        for node, value in zip(expr.outputs, (tracer.values or {}).get(expr, ()), strict=False):
            _same(env[node], value, expr)

    graph, leaves = traced._graph_for(args, kwargs)
    with graph.run_by(run_and_compare):
        result = graph._run([traced, *leaves])
    trees = (unpack(graph._result), result, expected)
    for node, actual, wanted in zip(*(tree_flatten(tree)[0] for tree in trees), strict=True):
        _same(actual, wanted, node.expr)


def _same(actual: Any, wanted: Any, expr: Expr) -> None:
    if difference(wanted, actual, 1e-4, least_scale=0.1) is not None:
        raise TraceMismatch(
            f"{expr.describe()} gives another result than the module that was traced\n"
            "  why: its forward depends on more than its arguments, parameters and buffers\n"
            "  fix: pass what changes as an argument; or trace with disable_default_checker()"
        )
