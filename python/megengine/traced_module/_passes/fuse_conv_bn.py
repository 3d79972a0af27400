"""Batch normalization with fixed statistics goes into the convolution before it.

A convolution that has another use, or that trains, stays as it is.
"""

from __future__ import annotations

from typing import Any

from ... import functional as F
from ...utils.fusion import fuse_conv_bn_weights
from ..expr import GetAttr, is_call_module
from ..node import TensorNode
from ..traced_module import TracedModule
from .layers import Norm, forget, layer_of, norm_of, only_user, take_over


def fuse_conv_bn(top: TracedModule) -> None:
    """Fuse every pair in all graphs of ``top``."""
    for graph in top._inner_graphs():
        for expr in list(graph):
            norm = norm_of(expr)
            if norm is not None:
                _fuse(top, expr, norm)


def _fuse(top: TracedModule, norm_call: Any, norm: Norm) -> None:
    user: Any = only_user(norm.inp) if isinstance(norm.inp, TensorNode) else None
    layer = layer_of(top, norm.inp.expr) if user == norm_call else None
    if layer is None or layer.axes == 0:
        return
    bias = layer.bias
    if bias is None:
        bias = F.zeros((1, norm.mean.size, *[1] * layer.axes))
    layer.put(*fuse_conv_bn_weights(layer.weight, bias, norm.mean, norm.var, norm.eps, norm.weight, norm.bias))
    read: Any = norm_call.args[0].expr if is_call_module(norm_call) else None
    held = (read.args[0].owner, read.attr_name) if isinstance(read, GetAttr) else None
    take_over(norm_call.outputs[0], norm.inp)
    if held is not None:
        forget(top, *held)
