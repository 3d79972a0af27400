"""Linear and batch normalization as one layer for quantization-aware training."""

from __future__ import annotations

from ...tensor import Tensor
from .. import linear_bn as Float
from ._folding import FoldedQAT, folded
from .module import ReluQAT

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class _LinearBnActivation1d(Float._LinearBnActivation1d, FoldedQAT):
    _layer = "linear"
    _calc = "calc_linear"
    _bias_shape = (-1,)
    calc_linear_bn_qat = FoldedQAT._calculated
    forward = FoldedQAT.forward

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias (out_features,), of the linear layer that also normalizes."""
        weight, bias = folded(self.linear, self.bn, bn_mean, bn_var)
        return self.apply_quant_weight(weight), bias


class LinearBn1d(_LinearBnActivation1d):
    """BatchNorm1d(Linear(x)) with rounded weight, bias and result."""


class LinearBnRelu1d(ReluQAT, _LinearBnActivation1d):
    """relu(BatchNorm1d(Linear(x))), rounded after the relu."""
