"""Whether graphs are in order, and what edits have to mind in them."""

from __future__ import annotations

from .._graph import GraphError, remarks_on_sharing
from ..module import Module
from ..module._structure import all_paths
from ..module._training import training_part, trains
from ..tensor import Tensor
from .expr import CallFunction, CallMethod, Expr, GetAttr, is_call_module
from .internal_graph import InternalGraph
from .node import ModuleNode, TensorNode
from .traced_module import TracedModule


def lint(top: InternalGraph, for_inference: bool = False) -> list[str]:
    """GraphError for ``top``, or a graph that it calls, when

    an expr reads what is not made before it, or is not listed by it as a user; a node belongs to another expr; two
    nodes have one name; a result of the graph, an attribute or a module is gone; a module is called with arguments for
    which it has no graph; a module holds another graph than the one that says it is its own;
    for_inference: something that is called is in training mode.

    Returns a sentence for each module or tensor that has two names, module that several exprs call, and tensor read
    from a module that is called.
    """
    exprs: list[Expr] = []
    graphs = [top]
    for graph in graphs:
        _check(graph)
        exprs += graph
        called = (expr.graph for expr in graph if isinstance(expr, CallMethod))
        graphs += {inner: None for inner in called if inner is not None and inner not in graphs}
    if for_inference:
        for expr in exprs:
            _check_mode(expr)
    if top._module is None:
        return []
    return remarks_on_sharing(
        all_paths(top._module),
        [(expr, expr.args[0].owner) for expr in exprs if is_call_module(expr)],
        [(expr, expr.interpret(expr.args[0].owner)[0]) for expr in exprs if _reads_tensor(expr)],
    )


def _reads_tensor(expr: Expr) -> bool:
    return isinstance(expr, GetAttr) and isinstance(expr.outputs[0], TensorNode)


def _check(graph: InternalGraph) -> None:
    module = graph._module
    if isinstance(module, TracedModule) and graph not in module.argdef_graph_map.values():
        raise GraphError(f"{graph.name}: the module that it belongs to has other graphs")
    graph.check()
    names: set[str] = set()
    for expr in graph:
        for node in expr.outputs:
            if node.expr is not expr:
                raise GraphError(f"{expr.describe()} lists {node!r}, which another expr makes")
            if node.name in names:
                raise GraphError(f"two nodes are called {node!r}: {expr.describe()}")
            names.add(node.name)
        _check_module(expr)
    for node in graph.outputs:
        if node.top_graph is not graph:
            raise GraphError(f"{graph.name} gives {node!r}, which is not in it (any more)")


def _check_module(expr: Expr) -> None:
    """What the expr reads or calls is there."""
    for node in expr.inputs:
        if isinstance(node, ModuleNode) and isinstance(node.expr, GetAttr):
            _check_attribute(node.expr)
    if isinstance(expr, GetAttr):
        _check_attribute(expr)
    elif isinstance(expr, CallMethod) and isinstance(expr.args[0], TensorNode):
        if not hasattr(Tensor, expr.method):
            raise GraphError(f"{expr.describe()}: a Tensor has no method {expr.method!r}")
    elif is_call_module(expr):
        if isinstance(expr.args[0].owner, TracedModule) and expr.graph is None:
            raise GraphError(f"{expr.describe()}: the module was not traced for such arguments")


def _check_attribute(read: GetAttr) -> None:
    kind = Module if isinstance(read.outputs[0], ModuleNode) else Tensor
    try:
        (found,) = read.interpret(read.args[0].owner)
    except (AttributeError, KeyError, IndexError) as error:
        raise GraphError(f"{read.describe()}: the module has no such attribute") from error
    if not isinstance(found, kind):
        raise GraphError(
            f"{read.describe()}: the attribute is of type {type(found).__name__}, not a {kind.__name__}"
        )


def _check_mode(expr: Expr) -> None:
    part = None
    if is_call_module(expr) and expr.graph is None:
        part = training_part(expr.args[0].owner)
    if part is not None or (
        isinstance(expr, CallFunction) and trains(expr.func, expr.args, expr.kwargs)
    ):
        what = f": {type(part[1]).__name__} {part[0]!r}" if part else ""
        raise GraphError(
            f"{expr.describe()} is in training mode{what}\n"
            "  fix: call eval() of the module before it is traced or optimized"
        )
