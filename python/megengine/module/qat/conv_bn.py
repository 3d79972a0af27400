"""Convolution and batch normalization as one layer for quantization-aware training."""

from __future__ import annotations

from ...tensor import Tensor
from .. import conv_bn as Float
from ._folding import FoldedQAT, folded
from .module import ReluQAT

__all__ = ["ConvBn2d", "ConvBnRelu2d"]


class _ConvBnActivation2d(Float._ConvBnActivation2d, FoldedQAT):
    _layer = "conv"
    _calc = "calc_conv"
    calc_conv_bn_qat = FoldedQAT._calculated
    forward = FoldedQAT.forward

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias (1, out_channels, 1, 1), of the convolution that also normalizes."""
        weight, bias = folded(self.conv, self.bn, bn_mean, bn_var)
        return self.apply_quant_weight(weight), bias.reshape(1, -1, 1, 1)


class ConvBn2d(_ConvBnActivation2d):
    """BatchNorm2d(Conv2d(x)) with rounded weight, bias and result."""


class ConvBnRelu2d(ReluQAT, _ConvBnActivation2d):
    """relu(BatchNorm2d(Conv2d(x))), rounded after the relu."""
