"""Element-wise functions of quantized inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor.elemwise_modes import function_of, mode_of
from ...core.tensor.quantized import in_dtype, real_values
from ...tensor import Tensor
from ..qat import elemwise as QAT
from .module import QuantizedModule, made_like

__all__ = ["Elemwise"]


class Elemwise(QuantizedModule):
    """The function named ``method`` of the real values; dtype: of the result, quantized."""

    def __init__(self, method: Any, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = mode_of(method)
        function_of(self.method)
        self.output_dtype = dtype

    @classmethod
    def from_qat_module(cls, qat_module: QAT.Elemwise) -> Elemwise:
        return made_like(cls, qat_module, qat_module)

    def forward(self, *inps: Tensor) -> Tensor:
        return in_dtype(function_of(self.method)(*map(real_values, inps)), self.output_dtype)

    def _module_info_string(self) -> str:
        return f"method={self.method}"
