"""Transposed convolution and batch normalization as one layer for quantization-aware training."""

from __future__ import annotations

from ... import functional as F
from ...tensor import Tensor
from .. import conv_transpose_bn as Float
from ..conv import ConvTranspose2d
from ._folding import folded, running_statistics, training_factor, uses_running_statistics
from .module import QATModule

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


def _weight_channels(conv: ConvTranspose2d) -> tuple[int, ...]:
    return (1, -1, 1, 1) if conv.groups == 1 else (conv.groups, 1, -1, 1, 1)


class _ConvTransposeBnActivation2d(Float._ConvTransposeBnActivation2d, QATModule):
    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias (1, out_channels, 1, 1), of the convolution that also normalizes."""
        conv, channels = self.conv_transpose, _weight_channels(self.conv_transpose)
        weight, bias = folded(
            conv.weight, conv.bias, self.bn, (bn_mean, bn_var), channels, (1, -1, 1, 1)
        )
        return self.apply_quant_weight(weight), bias

    def calc_conv_transpose2d_bn_qat(self, inp: Tensor) -> Tensor:
        """The normalized transposed convolution; the result is not rounded. Training as in ConvBn2d."""
        conv, bn = self.conv_transpose, self.bn
        if uses_running_statistics(bn, bn.training):
            weight, bias = self.fold_weight_bias(*running_statistics(bn))
            return conv.calc_conv_transpose2d(inp, weight, self.apply_quant_bias(bias, inp, weight))
        factor = training_factor(bn)
        weight = self.apply_quant_weight(conv.weight * factor.reshape(_weight_channels(conv)))
        out = conv.calc_conv_transpose2d(inp, weight, None) / factor.reshape(1, -1, 1, 1)
        return bn(out if conv.bias is None else out + conv.bias)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """BatchNorm2d(ConvTranspose2d(x)) with rounded weight, bias and result."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_transpose2d_bn_qat(inp))


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """relu(BatchNorm2d(ConvTranspose2d(x))), rounded after the relu."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(F.nn.relu(self.calc_conv_transpose2d_bn_qat(inp)))
