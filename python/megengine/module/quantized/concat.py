"""Concatenation of quantized inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import functional as F
from ...core.tensor.quantized import in_dtype, real_values
from ...tensor import Tensor
from .module import Plain

__all__ = ["Concat"]


class Concat(Plain):
    """The parts, brought to one dtype and joined; dtype: of the result, quantized."""

    def __init__(self, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inps: Iterable[Tensor], axis: int = 0) -> Tensor:
        return in_dtype(F.concat([real_values(inp) for inp in inps], axis), self.output_dtype)
