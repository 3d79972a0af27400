"""Batch normalization with fixed statistics goes into the convolution before it.

A convolution that has another use, or that trains, stays as it is.
"""

from __future__ import annotations

from typing import Any

from ...fx._layers import Folding, Layer, Norm
from ...tensor import Parameter
from ..expr import GetAttr, is_call_module
from ..traced_module import TracedModule
from .layers import forget, is_free, put, take_over


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
        read: Any = call.args[0].expr if is_call_module(call) else None
        held = (read.args[0].owner, read.attr_name) if isinstance(read, GetAttr) else None
        take_over(call.outputs[0], inp)
        if held is not None:
            forget(self._top, *held)
