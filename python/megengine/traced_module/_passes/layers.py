"""Edits of layers in traced modules, and the pass that folds batch normalization with fixed statistics into the convolution before it.

A layer that has another use, or that trains, stays as it is.
"""

from __future__ import annotations

import copy
from typing import Any

from ...fx._layers import Folding, Layer, Norm
from ...module import Module
from ...tensor import Parameter, Tensor
from ..expr import Constant, Expr, GetAttr, is_call_module
from ..node import Node, TensorNode
from ..traced_module import TracedModule
from ..utils import assign_attr, get_subattr


def fuse_conv_bn(top: TracedModule) -> None:
    """Fuse every pair in all graphs of ``top``."""
    for graph in top._inner_graphs():
        _Fuser(top).run(graph.fx_graph)


class _Fuser(Folding):
    def __init__(self, top: TracedModule) -> None:
        self._top = top

    def admits(self, layer: Layer, norm: Norm) -> bool:
        return not norm.trains and is_free(self._top, layer)

    def put(self, layer: Layer, weight: Parameter, bias: Parameter) -> None:
        put(layer, weight, bias)

    def drop(self, call: Any, inp: Any) -> None:
        read = call.args[0].expr if is_call_module(call) else None
        held = (read.args[0].owner, read.attr_name) if isinstance(read, GetAttr) else None
        take_over(call.outputs[0], inp)
        if held is not None:
            forget(self._top, *held)


def constant(expr: Expr, value: Tensor) -> Node:
    """A new node for ``value`` in the graph of ``expr``, before all that computes."""
    graph: Any = expr.top_graph
    node = Constant.make(value, qualname=f"{graph.qualname}.[const]")
    graph._add(node.expr, after=graph.inputs[-1].expr)
    return node


def put(layer: Layer, weight: Tensor, bias: Tensor | None) -> None:
    """Let the call of a layer have other parameters."""
    call = layer.call
    if not is_call_module(call):
        for name, value in (("weight", weight), ("bias", bias)):
            if value is not None:
                call.set_arg(name, constant(call, value))
        return
    node = call.args[0]
    changed: Any = copy.deepcopy(node.owner)
    changed.weight = Parameter(weight)
    changed.bias = None if bias is None else Parameter(bias)
    changed.__dict__["_short_name"] = node.owner._short_name
    assign_attr(changed, node.expr.args[0].owner, node.expr.attr_name)


def is_free(top: TracedModule, layer: Layer) -> bool:
    """Whether a layer may get other parameters: it does not train, and nothing else uses its module, an attribute of another."""
    if layer.trains or not is_call_module(layer.call):
        return not layer.trains
    node = layer.call.args[0]
    return isinstance(node.expr, GetAttr) and uses_of(top, node.owner) == 1


def uses_of(top: TracedModule, module: Module) -> int:
    """How many exprs call ``module`` or read a tensor of it."""
    parts = {id(part) for part in (module, *module.tensors())}
    return sum(
        id(expr.reached()) in parts
        for graph in top._inner_graphs()
        for expr in graph
        if is_call_module(expr) or (isinstance(expr, GetAttr) and isinstance(expr.outputs[0], TensorNode))
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


def forget(top: TracedModule, holder: Module, path: str) -> None:
    """Drop the module at ``path`` when nothing uses it any more."""
    parent, _, key = path.rpartition(".")
    owner = get_subattr(holder, parent) if parent else holder
    if isinstance(owner, Module) and uses_of(top, getattr(owner, key)) == 0:
        delattr(owner, key)
