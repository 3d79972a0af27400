"""Batch normalization with fixed statistics goes into the convolution before it.

A convolution whose result others read, that is called twice, or that trains, stays as it is.
"""

from __future__ import annotations

from ...module import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, SyncBatchNorm
from ...utils.fusion import fuse_conv_bn_eval
from ..expr import CallMethod, is_call_module
from ..traced_module import TracedModule
from .surgery import forget, only_user, replace_layer, take_over

_CONVOLUTIONS = (Conv1d, Conv2d, Conv3d)
_NORMALIZATIONS = (BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm)


def fuse_conv_bn(top: TracedModule) -> None:
    """Fuse every pair in all graphs of ``top``."""
    for graph in top._inner_graphs():
        for expr in list(graph):
            if is_call_module(expr) and type(expr.args[0].owner) in _NORMALIZATIONS:
                _fuse(top, expr)


def _fuse(top: TracedModule, norm_call: CallMethod) -> None:
    conv_call = norm_call.inputs[1].expr
    norm = norm_call.args[0].owner
    if not is_call_module(conv_call) or only_user(conv_call.outputs[0]) is not norm_call:
        return
    conv = conv_call.args[0].owner
    if (
        type(conv) not in _CONVOLUTIONS
        or conv.training
        or norm.training
        or norm.running_mean is None
    ):
        return
    if replace_layer(top, conv_call, fuse_conv_bn_eval(conv, norm)):
        read = norm_call.args[0].expr
        holder, path = read.args[0].owner if read.args else None, getattr(read, "attr_name", "")
        take_over(norm_call.outputs[0], conv_call.outputs[0])
        if holder is not None:
            forget(top, holder, path)
