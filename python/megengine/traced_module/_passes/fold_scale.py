"""Numbers that a value is multiplied by, or that are added: several become one, factors go into weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ... import functional as F
from ...module import Conv1d, Conv2d, Conv3d, Linear, ReLU
from ...tensor import Parameter
from ..expr import CallMethod, Expr, is_call_function, is_call_module, is_call_tensor_method
from ..node import Node, TensorNode
from ..traced_module import TracedModule
from .surgery import only_user, replace_layer, take_over

_LAYERS = (Conv1d, Conv2d, Conv3d, Linear)


def _number(expr: Any, methods: dict[str, int]) -> tuple[Node, float, int] | None:
    """(tensor, number, sign) of ``tensor op number``; the sign is that of the op in ``methods``."""
    if not is_call_tensor_method(expr, list(methods)) or len(expr.args) != 2:
        return None
    node, number = expr.args
    if not isinstance(node, TensorNode) or type(number) not in (int, float):
        return None
    if node.dtype is None or node.dtype.kind != "f" or number == 0:
        return None
    return node, float(number), methods[expr.method]


_Parts = Callable[[Expr], tuple[Node, float] | None]
_FACTORS = {"__mul__": 1, "__rmul__": 1, "__truediv__": -1}
_TERMS = {"__add__": 1, "__radd__": 1, "__sub__": -1}


def factor_of(expr: Expr) -> tuple[Node, float] | None:
    """(tensor, c) when ``expr`` is tensor * c."""
    found = _number(expr, _FACTORS)
    return None if found is None else (found[0], found[1] ** found[2])


def term_of(expr: Expr) -> tuple[Node, float] | None:
    """(tensor, c) when ``expr`` is tensor + c."""
    found = _number(expr, _TERMS)
    return None if found is None else (found[0], found[1] * found[2])


def fuse_add_mul(top: TracedModule) -> None:
    """x * a * b becomes x * (a * b), x + a + b becomes x + (a + b)."""
    for graph in top._inner_graphs():
        for expr in list(graph):
            _fuse(expr, factor_of, "__mul__", lambda a, b: a * b)
            _fuse(expr, term_of, "__add__", lambda a, b: a + b)


def _fuse(expr: Any, parts: _Parts, method: str, join: Callable[[float, float], float]) -> None:
    graph = expr.top_graph
    outer = parts(expr) if graph is not None else None
    inner = parts(outer[0].expr) if outer is not None else None
    is_read_elsewhere = outer is not None and only_user(outer[0]) is not expr
    if outer is None or inner is None or is_read_elsewhere:
        return
    expr.method = expr.name = method
    expr.args = (inner[0], join(inner[1], outer[1]))
    graph.compile()


def backward_fold_scale(top: TracedModule) -> None:
    """layer(x) * c becomes a layer with c times the weights, also with relu or a new shape between them."""
    for graph in top._inner_graphs():
        for expr in list(graph):
            found = factor_of(expr) if expr.top_graph is not None else None
            if found is not None:
                _fold(top, expr, *found)


def _fold(top: TracedModule, scaling: Expr, node: Node, factor: float) -> None:
    user: Any = scaling
    layer_call: Any = node.expr
    between = []
    while only_user(layer_call.outputs[0]) is user and _passes_scale(layer_call, factor):
        user, layer_call = layer_call, layer_call.inputs[-1].expr
        between.append(layer_call.outputs[0])
    if not is_call_module(layer_call) or only_user(layer_call.outputs[0]) is not user:
        return
    layer = layer_call.args[0].owner
    if type(layer) not in _LAYERS or layer.training:
        return
    if replace_layer(top, layer_call, _scaled(layer, factor)):
        take_over(scaling.outputs[0], node)
        for changed in between:  # not the value any more that had the name
            changed.name = f"{changed.name}_scaled_{changed._id}"


def _passes_scale(expr: CallMethod | Expr, factor: float) -> bool:
    """Whether f(x * factor) = f(x) * factor; f's only tensor is its last input."""
    if is_call_function(expr, F.relu) or is_call_module(expr, ReLU):
        return factor > 0
    return (
        is_call_tensor_method(expr, ("reshape", "flatten", "transpose")) and len(expr.inputs) == 1
    )


def _scaled(layer: Any, factor: float) -> Any:
    scaled = copy.deepcopy(layer)
    scaled.weight = Parameter(layer.weight * factor)
    if layer.bias is not None:
        scaled.bias = Parameter(layer.bias * factor)
    return scaled
