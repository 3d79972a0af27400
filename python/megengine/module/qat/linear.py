"""Affine maps for quantization-aware training."""

from __future__ import annotations

from ... import functional as F
from ...tensor import Tensor
from .. import linear as Float
from .module import QATModule

__all__ = ["Linear", "LinearRelu"]


class Linear(Float.Linear, QATModule):
    """Linear with rounded weight, bias and result."""

    def calc_linear_qat(self, inp: Tensor) -> Tensor:
        """The map with rounded weight and bias; the result is not rounded."""
        weight = self.apply_quant_weight(self.weight)
        bias = self.apply_quant_bias(self.bias, inp, weight)
        return self.calc_linear(inp, weight, bias)

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_linear_qat(inp))


class LinearRelu(Linear):
    """relu(Linear(x)), rounded after the relu."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(F.nn.relu(self.calc_linear_qat(inp)))
