"""Calls of functions that are layers: a convolution, product or batch normalization with tensors of the model."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ... import functional as F
from ... import module as M
from ... import random
from ...tensor import Parameter, Tensor
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, attribute_at
from ..tracer import Tracer
from ..verify import computes
from ._aliases import may_be_written

_CONVOLUTIONS: dict[Any, Any] = {F.conv1d: M.Conv1d, F.conv2d: M.Conv2d, F.conv3d: M.Conv3d}
_NORMALIZATIONS: dict[Any, Any] = {M.Conv1d: M.BatchNorm1d, M.Conv2d: M.BatchNorm2d, M.Conv3d: M.BatchNorm3d}
_WINDOWS = ("stride", "padding", "dilation", "groups")


def functions_to_layers(model: M.Module, tracer: type[Tracer]) -> GraphModule:
    """Replaces functions by layers in the graph of ``model``, a copy of the caller's, if no node
    writes their tensors. Imported models have such functions. Other readers of the tensors stay.
    """
    at_work = tracer()
    graph = at_work.trace(model)
    gm = GraphModule(at_work.root, graph, getattr(model, "_class_name", type(model).__name__))
    state = random.get_state()  # layers draw initial weights
    written = may_be_written(gm.graph, dict(gm.named_modules()))
    made: dict[Node, M.Module] = {}
    for node in list(gm.graph.nodes):
        layer = _layer(gm, node, written, made)
        if layer is not None:
            made[_call(gm, node, layer)] = layer
        elif node.target in (F.add, operator.add):
            _take_bias(gm, node, written, made)
    random.set_state(state)
    gm.graph.eliminate_dead_code()
    return GraphModule(gm, gm.graph, gm._class_name)


def _layer(gm: GraphModule, node: Node, written: set[Node], made: dict[Node, M.Module]) -> M.Module | None:
    """Returns the layer that a node computes, or None."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    tensors = _tensors(gm, node, written)
    if node.target in _CONVOLUTIONS and tensors is not None:
        return _convolution(node, tensors)
    if node.target in (F.linear, F.matmul) and tensors is not None and not node.kwargs:
        return _product(node, tensors)
    if node.target is F.nn.batch_norm and tensors is not None:
        return _normalization(node, tensors, made)
    return None


def _tensors(gm: GraphModule, node: Node, written: set[Node]) -> list[Tensor | None] | None:
    """Returns the tensors after the first operand; None unless they belong to the model, are
    float32 on the CPU, and never change.
    """
    found: list[Tensor | None] = []
    for value in node.args[1:]:
        if value is None:
            found.append(None)
        elif isinstance(value, Node):
            tensor = attribute_at(gm, value.target) if value.op == "get_attr" and value not in written else None
            if not isinstance(tensor, Tensor) or tensor.dtype != np.float32 or not tensor.device.physical_name.startswith("cpu"):
                return None
            found.append(tensor)
        else:
            break
    return found


def _take_bias(gm: GraphModule, node: Node, written: set[Node], made: dict[Node, Any]) -> None:
    """Makes a vector that is added to a product its bias."""
    for product, other in (node.args, node.args[::-1]):
        layer = made.get(product) if isinstance(product, Node) and len(product.users) == 1 else None
        tensor = attribute_at(gm, other.target) if isinstance(other, Node) and other.op == "get_attr" and other not in written else None
        if type(layer) is M.Linear and layer.bias is None and isinstance(tensor, Tensor):
            if tensor._tuple_shape == (layer.out_features,) and tensor.dtype == np.float32:
                layer.bias = Parameter(tensor)
                node.replace_all_uses_with(product)
                computes(product, node)
                node._maker.erase_node(node)
                return


def _convolution(node: Node, tensors: list[Tensor | None]) -> M.Module | None:
    kind = _CONVOLUTIONS[node.target]
    windows = dict(zip(_WINDOWS, node.args[3:], strict=False)) | node.kwargs
    rank = kind._rank
    if not tensors or tensors[0] is None or len(tensors) > 2 or not windows.keys() <= set(_WINDOWS) or isinstance(windows.get("padding"), str):
        return None
    weight, bias, groups = tensors[0], tensors[1] if len(tensors) > 1 else None, windows.get("groups", 1)
    shape = weight._tuple_shape
    if weight.ndim != rank + 2 + (groups > 1) or not all(_is_plain(value) for value in windows.values()):
        return None
    outs, ins = (shape[0] * shape[1], shape[0] * shape[2]) if groups > 1 else shape[:2]
    if bias is not None and bias._tuple_shape != (1, outs) + (1,) * rank:
        return None
    return _holding(kind(ins, outs, shape[-rank:], bias=bias is not None, **windows), weight, bias)


def _is_plain(value: Any) -> bool:
    """Whether an argument is a number, or numbers, and not a value of the graph."""
    return isinstance(value, int) or (isinstance(value, (tuple, list)) and all(isinstance(part, int) for part in value))


def _product(node: Node, tensors: list[Tensor | None]) -> M.Module | None:
    """Returns the product of a layer: matmul takes the matrix as it is, linear transposed; each has
    at most a bias.
    """
    weight, bias = (*tensors, None, None)[:2]
    if weight is None or weight.ndim != 2 or len(node.args) > (3 if node.target is F.linear else 2):
        return None
    weight = weight if node.target is F.linear else F.transpose(weight, (1, 0))
    outs, ins = weight._tuple_shape
    if bias is not None and bias._tuple_shape != (outs,):
        return None
    return _holding(M.Linear(ins, outs, bias=bias is not None), weight, bias)


def _normalization(node: Node, tensors: list[Tensor | None], made: dict[Node, M.Module]) -> M.Module | None:
    """Returns a normalization that follows a convolution and may be folded into it."""
    before: Any = made.get(node.args[0])
    if type(before) not in _NORMALIZATIONS or len(tensors) != 4 or not node.kwargs.keys() <= {"eps"} or any(tensor is None for tensor in tensors):
        return None
    layer = _NORMALIZATIONS[type(before)](before.out_channels, eps=node.kwargs.get("eps", 1e-5))
    shape = layer.running_mean._tuple_shape
    mean, var, weight, bias = (F.reshape(tensor, shape) for tensor in tensors if tensor is not None)
    layer.running_mean, layer.running_var = mean, var
    return _holding(layer, weight, bias)


def _holding(layer: Any, weight: Tensor, bias: Tensor | None) -> M.Module:
    layer.weight, layer.bias = Parameter(weight), None if bias is None else Parameter(bias)
    return layer.eval()


def _call(gm: GraphModule, node: Node, layer: M.Module) -> Node:
    """The node that calls the layer in place of ``node``."""
    path, number = node.name, 0
    while hasattr(gm, path):
        number += 1
        path = f"{node.name}_{number}"
    setattr(gm, path, layer)
    graph: Graph = node._maker
    with graph.inserting_before(node):
        call = graph.call_module(path, (node.args[0],))
    node.replace_all_uses_with(call)
    computes(call, node)
    graph.erase_node(node)
    return call
