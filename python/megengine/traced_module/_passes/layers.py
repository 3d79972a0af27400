"""What passes change: layers with weights, called as modules or as functions, the values that a graph reads, and names of both."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from ... import functional as F
from ...module import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Linear,
    Module,
    SyncBatchNorm,
)
from ...tensor import Parameter, Tensor
from ..expr import (
    CallMethod,
    Constant,
    Expr,
    GetAttr,
    is_call_function,
    is_call_module,
    is_call_tensor_method,
)
from ..node import Node, TensorNode
from ..traced_module import TracedModule
from ..utils import assign_attr, get_subattr

# Class or function -> axes of its kernels, 0 for a product of matrices.
_MODULES = {Conv1d: 1, Conv2d: 2, Conv3d: 3, Linear: 0}
_FUNCTIONS: dict[Callable[..., Any], int] = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3, F.linear: 0}
_NORMALIZATIONS = (BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm)


def value_of(arg: Any) -> Any:
    """The tensor that ``arg`` is in each call: an attribute, a constant, or an element of one; None for another node.

    What is no node is itself.
    """
    if not isinstance(arg, Node):
        return arg
    expr = arg.expr
    if isinstance(expr, Constant):
        return expr.value
    if isinstance(expr, GetAttr):
        return get_subattr(expr.args[0].owner, expr.attr_name)
    if is_call_tensor_method(expr, "__getitem__") and len(expr.inputs) == 1:
        whole = value_of(expr.inputs[0])
        return whole[expr.args[1]] if isinstance(whole, Tensor) else None
    return None


def constant(expr: Expr, value: Tensor) -> Node:
    """A new node for ``value`` in the graph of ``expr``, before all that computes."""
    graph: Any = expr.top_graph
    node = Constant.make(value, qualname=f"{graph.qualname}.[const]")
    graph._add(node.expr, after=graph.inputs[-1].expr)
    return node


class Layer(NamedTuple):
    """A call of a convolution or a linear layer, with the parameters that it has in each call."""

    call: Any
    axes: int  # of its kernels
    weight: Tensor
    bias: Tensor | None

    def put(self, weight: Tensor, bias: Tensor | None) -> None:
        """Let the call have other parameters."""
        if is_call_module(self.call):
            layer: Any = copy.deepcopy(self.call.args[0].owner)
            layer.weight = Parameter(weight)
            layer.bias = None if bias is None else Parameter(bias)
            replace_layer(self.call, layer)
            return
        for name, value in (("weight", weight), ("bias", bias)):
            if value is not None:
                self.call.set_arg(name, constant(self.call, value))


def layer_of(top: TracedModule, expr: Any) -> Layer | None:
    """The layer that ``expr`` calls; None for another expr, in training mode, and where others use the module too."""
    if is_call_module(expr):
        module = expr.args[0].owner
        if type(module) not in _MODULES or module.training or not is_used_once(top, expr):
            return None
        return Layer(expr, _MODULES[type(module)], module.weight, module.bias)
    if top.training or not is_call_function(expr, list(_FUNCTIONS)):
        return None
    named = expr.named_args
    weight, bias = value_of(named["weight"]), value_of(named["bias"])
    if not isinstance(weight, Tensor) or (bias is None and named["bias"] is not None):
        return None
    return Layer(expr, _FUNCTIONS[expr.func], weight, bias)


class Norm(NamedTuple):
    """Batch normalization with fixed statistics."""

    inp: Any
    mean: Tensor
    var: Tensor
    eps: float
    weight: Tensor | None
    bias: Tensor | None


def norm_of(expr: Any) -> Norm | None:
    """The normalization that ``expr`` applies; None for another expr, and where each batch has its own statistics."""
    if is_call_module(expr):
        norm = expr.args[0].owner
        if type(norm) not in _NORMALIZATIONS or norm.training or norm.running_mean is None:
            return None
        return Norm(expr.inputs[1], norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    if not is_call_function(expr, F.batch_norm):
        return None
    named = expr.named_args
    known = {name: value_of(named[name]) for name in ("running_mean", "running_var", "weight", "bias")}
    if named["training"] is not False or any(known[name] is None and named[name] is not None for name in known):
        return None
    mean, var, weight, bias = known.values()
    if mean is None or var is None or type(named["eps"]) is not float:
        return None
    return Norm(named["inp"], mean, var, named["eps"], weight, bias)


# -- replacement ---------------------------------------------------------------------------------


def only_user(node: Node) -> Expr | None:
    """The expr that alone needs ``node``; None when there are several, or the graph gives it."""
    users: list[Any] = list(node.users)
    graph = node.top_graph
    if graph is None or len(users) != 1 or node in graph.outputs:
        return None
    return users[0]


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


def is_used_once(top: TracedModule, call: CallMethod) -> bool:
    """Whether ``call`` alone uses its module, an attribute of another."""
    node = call.args[0]
    return isinstance(node.expr, GetAttr) and uses_of(top, node.owner) == 1


def replace_layer(call: CallMethod, layer: Module) -> None:
    """Put ``layer`` in the place of the module that ``call`` alone calls."""
    node = call.args[0]
    layer.__dict__["_short_name"] = node.owner._short_name
    assign_attr(layer, node.expr.args[0].owner, node.expr.attr_name)


def forget(top: TracedModule, holder: Module, path: str) -> None:
    """Drop the module at ``path`` when nothing uses it any more."""
    parent, _, key = path.rpartition(".")
    owner = get_subattr(holder, parent) if parent else holder
    if isinstance(owner, Module) and uses_of(top, getattr(owner, key)) == 0:
        delattr(owner, key)
