"""Convolution with batch normalization folded into it, on integers."""

from __future__ import annotations

from ...tensor import Tensor
from .conv import Conv2d
from .module import Folded

__all__ = ["ConvBn2d", "ConvBnRelu2d"]


class ConvBn2d(Folded, Conv2d):
    """BatchNorm2d(Conv2d(x)) on integers."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp)


class ConvBnRelu2d(Folded, Conv2d):
    """relu(BatchNorm2d(Conv2d(x))) on integers."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp, "relu")
