"""Element-wise functions for quantization-aware training."""

from __future__ import annotations

from ...tensor import Tensor
from .. import elemwise as Float
from .module import QATModule

__all__ = ["Elemwise"]


class Elemwise(Float.Elemwise, QATModule):
    """Elemwise with a rounded result."""

    with_weight = False

    def forward(self, *inps: Tensor) -> Tensor:
        return self.apply_quant_activation(super().forward(*inps))
