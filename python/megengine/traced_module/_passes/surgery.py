"""What the passes share: layers that may be changed, and their replacement."""

from __future__ import annotations

from typing import Any

from ...module import Module
from ..expr import CallMethod, Expr, GetAttr, is_call_module
from ..node import Node
from ..traced_module import TracedModule
from ..utils import assign_attr, get_subattr


def only_user(node: Node) -> Expr | None:
    """The expr that alone needs ``node``; None when there are several, or the graph gives it."""
    users: list[Any] = list(node.users)
    graph = node.top_graph
    if graph is None or len(users) != 1 or node in graph.outputs:
        return None
    return users[0]


def calls_of(top: TracedModule, module: Module) -> int:
    """How many exprs call ``module``."""
    return sum(
        expr.args[0].owner is module
        for graph in top._inner_graphs()
        for expr in graph
        if is_call_module(expr)
    )


def take_over(old: Node, new: Node) -> None:
    """Let ``new`` stand for ``old``, under its name: a name goes on to mean one value."""
    graph = old.top_graph
    if graph is None:
        raise AssertionError("graph is not None does not hold")
    name, qualname = old.name, old.qualname
    graph.replace_node({old: new})
    graph.compile()
    if name not in graph._names:
        new.name, new._qualname = name, qualname


def is_called_once(top: TracedModule, call: CallMethod) -> bool:
    """Whether ``call`` alone calls its module, an attribute of another."""
    node = call.args[0]
    return isinstance(node.expr, GetAttr) and calls_of(top, node.owner) == 1


def replace_layer(call: CallMethod, layer: Module) -> None:
    """Put ``layer`` in the place of the module that ``call`` alone calls."""
    node = call.args[0]
    layer.__dict__["_short_name"] = node.owner._short_name
    assign_attr(layer, node.expr.args[0].owner, node.expr.attr_name)


def forget(top: TracedModule, holder: Module, path: str) -> None:
    """Drop the module at ``path`` when nothing calls it any more."""
    parent, _, key = path.rpartition(".")
    owner = get_subattr(holder, parent) if parent else holder
    if isinstance(owner, Module) and calls_of(top, getattr(owner, key)) == 0:
        delattr(owner, key)
