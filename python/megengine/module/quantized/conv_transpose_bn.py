"""Transposed convolution with batch normalization folded into it, of quantized inputs."""

from __future__ import annotations

from ...tensor import Tensor
from .conv import ConvTranspose2d
from .module import Folded

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


class ConvTransposeBn2d(Folded, ConvTranspose2d):
    """BatchNorm2d(ConvTranspose2d(x)) of a quantized input."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp)


class ConvTransposeBnRelu2d(Folded, ConvTranspose2d):
    """relu(BatchNorm2d(ConvTranspose2d(x))) of a quantized input."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp, "relu")
