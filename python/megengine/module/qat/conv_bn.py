"""Convolution and batch normalization as one layer for quantization-aware training."""

from __future__ import annotations

from ... import functional as F
from ...tensor import Tensor
from .. import conv_bn as Float
from ..conv import Conv2d
from ._folding import folded, running_statistics, training_factor, uses_running_statistics
from .module import QATModule

__all__ = ["ConvBn2d", "ConvBnRelu2d"]


def _weight_channels(conv: Conv2d) -> tuple[int, ...]:
    return (-1, 1, 1, 1) if conv.groups == 1 else (conv.groups, -1, 1, 1, 1)


class _ConvBnActivation2d(Float._ConvBnActivation2d, QATModule):
    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias (1, out_channels, 1, 1), of the convolution that also normalizes."""
        conv, channels = self.conv, _weight_channels(self.conv)
        weight, bias = folded(
            conv.weight, conv.bias, self.bn, (bn_mean, bn_var), channels, (1, -1, 1, 1)
        )
        return self.apply_quant_weight(weight), bias

    def calc_conv_bn_qat(self, inp: Tensor) -> Tensor:
        """The normalized convolution; the result is not rounded.

        In training the weight is rounded as folded with the running statistics, and the batch normalizes.
        """
        conv, bn = self.conv, self.bn
        if uses_running_statistics(bn, bn.training):
            weight, bias = self.fold_weight_bias(*running_statistics(bn))
            return conv.calc_conv(inp, weight, self.apply_quant_bias(bias, inp, weight))
        factor = training_factor(bn)
        weight = self.apply_quant_weight(conv.weight * factor.reshape(_weight_channels(conv)))
        out = conv.calc_conv(inp, weight, None) / factor.reshape(1, -1, 1, 1)
        return bn(out if conv.bias is None else out + conv.bias)


class ConvBn2d(_ConvBnActivation2d):
    """BatchNorm2d(Conv2d(x)) with rounded weight, bias and result."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_bn_qat(inp))


class ConvBnRelu2d(_ConvBnActivation2d):
    """relu(BatchNorm2d(Conv2d(x))), rounded after the relu."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(F.nn.relu(self.calc_conv_bn_qat(inp)))
