"""Concatenation of quantized inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import functional as F
from ...core.tensor.quantized import in_dtype, real_values
from ...tensor import Tensor
from ..qat import concat as QAT
from .module import QuantizedModule, made_like

__all__ = ["Concat"]


class Concat(QuantizedModule):
    """The parts, brought to one dtype and joined; dtype: of the result, quantized."""

    def __init__(self, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    @classmethod
    def from_qat_module(cls, qat_module: QAT.Concat) -> Concat:
        return made_like(cls, qat_module, qat_module)

    def forward(self, inps: Iterable[Tensor], axis: int = 0) -> Tensor:
        return in_dtype(F.concat([real_values(inp) for inp in inps], axis), self.output_dtype)
