"""Concatenation for quantization-aware training."""

from __future__ import annotations

from collections.abc import Iterable

from ...tensor import Tensor
from .. import concat as Float
from .module import QATModule

__all__ = ["Concat"]


class Concat(Float.Concat, QATModule):
    """Concat with a rounded result: the parts, which may have other scales, get one."""


    def forward(self, inps: Iterable[Tensor], axis: int = 0) -> Tensor:
        return self.apply_quant_activation(super().forward(inps, axis))
