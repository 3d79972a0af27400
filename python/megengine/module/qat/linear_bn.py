"""Linear and batch normalization as one layer for quantization-aware training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functional as F
from ...tensor import Tensor
from .. import linear_bn as Float
from ._folding import FoldedQAT, folded

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class _LinearBnActivation1d(Float._LinearBnActivation1d, FoldedQAT):
    _bias_shape = (-1,)

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias (out_features,), of the linear layer that also normalizes."""
        linear = self.linear
        weight, bias = folded(linear.weight, linear.bias, self.bn, (bn_mean, bn_var), (-1, 1), (-1,))
        return self.apply_quant_weight(weight), bias

    def _parts(self) -> tuple[Any, Callable[..., Tensor], tuple[int, ...]]:
        return self.linear, self.linear.calc_linear, (-1, 1)

    def calc_linear_bn_qat(self, inp: Tensor) -> Tensor:
        """The normalized map; the result is not rounded."""
        return self._normalized(inp)


class LinearBn1d(_LinearBnActivation1d):
    """BatchNorm1d(Linear(x)) with rounded weight, bias and result."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_linear_bn_qat(inp))


class LinearBnRelu1d(_LinearBnActivation1d):
    """relu(BatchNorm1d(Linear(x))), rounded after the relu."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(F.nn.relu(self.calc_linear_bn_qat(inp)))
