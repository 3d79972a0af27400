"""Batched matrix product with an activation, of quantized inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor.quantized import in_dtype, real_values
from ...tensor import Tensor
from .. import batch_matmul_activation as Float
from .module import Plain

__all__ = ["BatchMatMulActivation"]


class BatchMatMulActivation(Float.BatchMatMulActivation, Plain):
    """BatchMatMulActivation of a quantized input, in float32 between the roundings; dtype: of the result, quantized."""

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        dtype: np.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch, in_features, out_features, bias, nonlinear_mode, **kwargs)
        self.output_dtype = dtype

    def calc_bmm_quantized(self, inp: Tensor) -> Tensor:
        """The product, bias and activation."""
        y = self._calc_linear(real_values(inp), real_values(self.weight), self.bias)
        return in_dtype(y, self.output_dtype)

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_bmm_quantized(inp)
