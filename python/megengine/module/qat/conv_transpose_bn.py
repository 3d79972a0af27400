"""Transposed convolution and batch normalization as one layer for quantization-aware training."""

from __future__ import annotations

from ...tensor import Tensor
from .. import conv_transpose_bn as Float
from ._folding import FoldedQAT, folded
from .module import ReluQAT

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


class _ConvTransposeBnActivation2d(Float._ConvTransposeBnActivation2d, FoldedQAT):
    _layer = "conv_transpose2d"
    _calc = "calc_conv_transpose2d"
    _transposed = True
    calc_conv_transpose2d_bn_qat = FoldedQAT._calculated
    forward = FoldedQAT.forward

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias (1, out_channels, 1, 1), of the convolution that also normalizes."""
        weight, bias = folded(self.conv_transpose2d, self.bn, bn_mean, bn_var, transposed=True)
        return self.apply_quant_weight(weight), bias.reshape(1, -1, 1, 1)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """BatchNorm2d(ConvTranspose2d(x)) with rounded weight, bias and result."""


class ConvTransposeBnRelu2d(ReluQAT, _ConvTransposeBnActivation2d):
    """relu(BatchNorm2d(ConvTranspose2d(x))), rounded after the relu."""
