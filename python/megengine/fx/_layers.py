"""Layers with weights and normalizations with fixed statistics, as module graphs call them, and folding the latter into the former.

A graph may be one of `fx` or of a traced module, and a layer a module, or a function of tensors
that are the same in each call.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import functional as F
from .. import module as M
from .._graph.core import Graph
from .._graph.tree import Value
from ..tensor import Parameter, Tensor
from ..utils.fusion import fuse_conv_bn_weights

# Class or function -> axes of its kernels, 0 for a product of matrices.
_LAYERS: dict[Callable[..., Any], int] = {
    M.Conv1d: 1, M.Conv2d: 2, M.Conv3d: 3, M.Linear: 0, F.conv1d: 1, F.conv2d: 2, F.conv3d: 3, F.linear: 0,
}  # fmt: skip
_NORMALIZATIONS = (M.BatchNorm1d, M.BatchNorm2d, M.BatchNorm3d, M.SyncBatchNorm)


def maker_of(value: Any) -> Any:
    """Returns the call that makes a value; a node of fx is its own."""
    return getattr(value, "expr", value)


def known_value(arg: Any) -> Any:
    """Returns an argument that is the same in each call: an attribute, a constant, or an element of
    one; None for other values.
    """
    if not isinstance(arg, Value):
        return arg
    call = maker_of(arg)
    if call.op == "constant":
        return call.target
    if call.op == "get_attr":
        return call.reached()
    if call.op in ("call_method", "call_function") and call.target in ("__getitem__", operator.getitem) and len(call.inputs) == 1:
        whole = known_value(call.args[0])
        return whole[call.args[1]] if isinstance(whole, Tensor) else None
    return None


class Layer(NamedTuple):
    """A call of a convolution or a linear layer, with the parameters that it has in each call."""

    call: Any
    axes: int  # the number of axes of its kernels
    weight: Tensor
    bias: Tensor | None
    trains: bool


def layer_of(call: Any) -> Layer | None:
    """Returns the layer of a call; None for other calls, or if its parameters are computed."""
    if call.op == "call_module":
        module = call.reached()
        axes = _LAYERS.get(type(module))
        return None if axes is None else Layer(call, axes, module.weight, module.bias, module.training)
    axes = _LAYERS.get(call.target) if call.op == "call_function" else None
    named = call.arguments_by_name() if axes is not None else None
    if named is None or axes is None:
        return None
    weight, bias = known_value(named["weight"]), known_value(named["bias"])
    if not isinstance(weight, Tensor) or (bias is None and named["bias"] is not None):
        return None
    return Layer(call, axes, weight, bias, getattr(call._holder.owner, "training", False))


class Norm(NamedTuple):
    """Batch normalization with fixed statistics."""

    inp: Any
    mean: Tensor
    var: Tensor
    eps: float
    weight: Tensor | None
    bias: Tensor | None
    trains: bool


def norm_of(call: Any) -> Norm | None:
    """Returns the normalization of a call; None for other calls, or if each batch has its own
    statistics.
    """
    is_module = call.op == "call_module" and type(call.reached()) in _NORMALIZATIONS
    named = call.arguments_by_name() if is_module or call.target is F.batch_norm else None
    if named is None:
        return None
    if is_module:
        norm = call.reached()
        if norm.running_mean is None:
            return None
        return Norm(named["inp"], norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias, norm.training)
    known = {name: known_value(named[name]) for name in ("running_mean", "running_var", "weight", "bias")}
    if named["training"] is not False or any(known[name] is None and named[name] is not None for name in known):
        return None
    mean, var, weight, bias = known.values()
    if mean is None or var is None or type(named["eps"]) is not float:
        return None
    return Norm(named["inp"], mean, var, named["eps"], weight, bias, False)


class Folding(abc.ABC):
    """Folds normalizations into the convolutions before them, if these have no other reader;
    subclasses edit the graph.
    """

    @abc.abstractmethod
    def admits(self, layer: Layer, norm: Norm) -> bool:
        """Whether a pair may be folded."""

    @abc.abstractmethod
    def put(self, layer: Layer, weight: Parameter, bias: Parameter) -> None:
        """Let the call of a layer have other parameters."""

    @abc.abstractmethod
    def drop(self, call: Any, inp: Any) -> None:
        """Replaces a call's result by its input ``inp``, and takes the call out."""

    def run(self, graph: Graph) -> None:
        """Fold all pairs of a graph."""
        for call in list(graph):
            norm = norm_of(call)
            if norm is None or not isinstance(norm.inp, Value) or list(norm.inp.readers) != [call]:
                continue
            layer = layer_of(maker_of(norm.inp))
            if layer is None or layer.axes == 0 or not self.admits(layer, norm):
                continue
            bias = F.zeros((1, norm.mean.size, *[1] * layer.axes)) if layer.bias is None else layer.bias
            self.put(layer, *fuse_conv_bn_weights(layer.weight, bias, norm.mean, norm.var, norm.eps, norm.weight, norm.bias))
            self.drop(call, norm.inp)
