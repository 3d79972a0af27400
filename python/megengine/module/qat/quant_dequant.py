"""Where a quantized model begins and ends, in quantization-aware training."""

from __future__ import annotations

from ...tensor import Tensor
from .. import quant_dequant as Float
from .module import QATModule

__all__ = ["DequantStub", "QuantStub"]


class QuantStub(Float.QuantStub, QATModule):
    """Rounds its input."""

    with_weight = False

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(inp)


class DequantStub(Float.DequantStub, QATModule):
    """Returns its input: values are in float already."""

    with_weight = False
    with_act = False
