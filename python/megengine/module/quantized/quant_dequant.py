"""Where a model of integers begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor.quantized import in_dtype, real_values
from ...tensor import Tensor
from .module import Plain

__all__ = ["DequantStub", "QuantStub"]


class QuantStub(Plain):
    """Real numbers to integers of ``dtype``."""

    def __init__(self, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inp: Tensor) -> Tensor:
        return in_dtype(inp, self.output_dtype)


class DequantStub(Plain):
    """Integers to real numbers."""

    def forward(self, inp: Tensor) -> Tensor:
        return real_values(inp)
