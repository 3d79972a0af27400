"""Transposed convolution and batch normalization as one layer for quantization-aware training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functional as F
from ...tensor import Tensor
from .. import conv_transpose_bn as Float
from ._folding import FoldedQAT, folded

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


def _weight_channels(conv: Any) -> tuple[int, ...]:
    return (1, -1, 1, 1) if conv.groups == 1 else (conv.groups, 1, -1, 1, 1)


class _ConvTransposeBnActivation2d(Float._ConvTransposeBnActivation2d, FoldedQAT):
    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias (1, out_channels, 1, 1), of the convolution that also normalizes."""
        conv, statistics = self.conv_transpose, (bn_mean, bn_var)
        weight, bias = folded(conv.weight, conv.bias, self.bn, statistics, _weight_channels(conv), (1, -1, 1, 1))
        return self.apply_quant_weight(weight), bias

    def _parts(self) -> tuple[Any, Callable[..., Tensor], tuple[int, ...]]:
        return self.conv_transpose, self.conv_transpose.calc_conv_transpose2d, _weight_channels(self.conv_transpose)

    def calc_conv_transpose2d_bn_qat(self, inp: Tensor) -> Tensor:
        """The normalized transposed convolution; the result is not rounded."""
        return self._normalized(inp)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """BatchNorm2d(ConvTranspose2d(x)) with rounded weight, bias and result."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_transpose2d_bn_qat(inp))


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """relu(BatchNorm2d(ConvTranspose2d(x))), rounded after the relu."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(F.nn.relu(self.calc_conv_transpose2d_bn_qat(inp)))
