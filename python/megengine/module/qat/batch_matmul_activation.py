"""Batched matrix product with an activation, for quantization-aware training."""

from __future__ import annotations

from ...tensor import Tensor
from .. import batch_matmul_activation as Float
from .module import QATModule

__all__ = ["BatchMatMulActivation"]


class BatchMatMulActivation(Float.BatchMatMulActivation, QATModule):
    """BatchMatMulActivation with rounded weight, bias and result."""

    def forward(self, inp: Tensor) -> Tensor:
        weight = self.apply_quant_weight(self.weight)
        bias = self.apply_quant_bias(self.bias, inp, weight)
        return self.apply_quant_activation(self._calc_linear(inp, weight, bias))
