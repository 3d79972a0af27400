"""Linear and batch normalization as one layer for quantization-aware training."""

from __future__ import annotations

from ... import functional as F
from ...tensor import Tensor
from .. import linear_bn as Float
from ._folding import folded, running_statistics, training_factor, uses_running_statistics
from .module import QATModule

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class _LinearBnActivation1d(Float._LinearBnActivation1d, QATModule):
    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias (out_features,), of the linear layer that also normalizes."""
        linear = self.linear
        weight, bias = folded(
            linear.weight, linear.bias, self.bn, (bn_mean, bn_var), (-1, 1), (-1,)
        )
        return self.apply_quant_weight(weight), bias

    def calc_linear_bn_qat(self, inp: Tensor) -> Tensor:
        """The normalized map; the result is not rounded. Training as in ConvBn2d."""
        linear, bn = self.linear, self.bn
        if uses_running_statistics(bn, bn.training):
            weight, bias = self.fold_weight_bias(*running_statistics(bn))
            return linear.calc_linear(inp, weight, self.apply_quant_bias(bias, inp, weight))
        factor = training_factor(bn)
        weight = self.apply_quant_weight(linear.weight * factor.reshape(-1, 1))
        out = linear.calc_linear(inp, weight, None) / factor.reshape(-1)
        return bn(out if linear.bias is None else out + linear.bias)


class LinearBn1d(_LinearBnActivation1d):
    """BatchNorm1d(Linear(x)) with rounded weight, bias and result."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_linear_bn_qat(inp))


class LinearBnRelu1d(_LinearBnActivation1d):
    """relu(BatchNorm1d(Linear(x))), rounded after the relu."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(F.nn.relu(self.calc_linear_bn_qat(inp)))
