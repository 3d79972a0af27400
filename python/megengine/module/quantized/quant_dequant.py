"""Where a model of integers begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor.quantized import in_dtype, real_values
from ...tensor import Tensor
from ..qat import quant_dequant as QAT
from .module import QuantizedModule, made_like

__all__ = ["DequantStub", "QuantStub"]


class QuantStub(QuantizedModule):
    """Real numbers to integers of ``dtype``."""

    def __init__(self, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    @classmethod
    def from_qat_module(cls, qat_module: QAT.QuantStub) -> QuantStub:
        return made_like(cls, qat_module, qat_module)

    def forward(self, inp: Tensor) -> Tensor:
        return in_dtype(inp, self.output_dtype)


class DequantStub(QuantizedModule):
    """Integers to real numbers."""

    @classmethod
    def from_qat_module(cls, qat_module: QAT.DequantStub) -> DequantStub:
        return made_like(cls, qat_module, qat_module)

    def forward(self, inp: Tensor) -> Tensor:
        return real_values(inp)
