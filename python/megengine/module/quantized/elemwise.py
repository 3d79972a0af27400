"""Element-wise functions of quantized inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor.elemwise_modes import function_of, mode_of
from ...core.tensor.quantized import in_dtype, real_values
from ...tensor import Tensor
from .module import Plain

__all__ = ["Elemwise"]


class Elemwise(Plain):
    """The function named ``method`` of the real values; dtype: of the result, quantized."""

    def __init__(self, method: Any, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = mode_of(method)
        function_of(self.method)
        self.output_dtype = dtype

    def forward(self, *inps: Tensor) -> Tensor:
        return in_dtype(function_of(self.method)(*map(real_values, inps)), self.output_dtype)
