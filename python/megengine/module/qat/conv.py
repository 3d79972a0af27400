"""Convolutions for quantization-aware training."""

from __future__ import annotations

from ... import functional as F
from ...tensor import Tensor
from .. import conv as Float
from .module import QATModule

__all__ = ["Conv2d", "ConvRelu2d", "ConvTranspose2d", "ConvTransposeRelu2d"]


class Conv2d(Float.Conv2d, QATModule):
    """Conv2d with rounded weight, bias and result."""

    def calc_conv_qat(self, inp: Tensor) -> Tensor:
        """The convolution with rounded weight and bias; the result is not rounded."""
        weight = self.apply_quant_weight(self.weight)
        bias = self.apply_quant_bias(self.bias, inp, weight)
        return self.calc_conv(inp, weight, bias)

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_qat(inp))


class ConvRelu2d(Conv2d):
    """relu(Conv2d(x)), rounded after the relu."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(F.nn.relu(self.calc_conv_qat(inp)))


class ConvTranspose2d(Float.ConvTranspose2d, QATModule):
    """ConvTranspose2d with rounded weight, bias and result."""

    def calc_conv_transpose2d_qat(self, inp: Tensor) -> Tensor:
        """The transposed convolution with rounded weight and bias; the result is not rounded."""
        weight = self.apply_quant_weight(self.weight)
        bias = self.apply_quant_bias(self.bias, inp, weight)
        return self.calc_conv_transpose2d(inp, weight, bias)

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_transpose2d_qat(inp))


class ConvTransposeRelu2d(ConvTranspose2d):
    """relu(ConvTranspose2d(x)), rounded after the relu."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(F.nn.relu(self.calc_conv_transpose2d_qat(inp)))
