"""Marks of where a quantized model begins and ends; in float models they do nothing."""

from __future__ import annotations

from ..tensor import Tensor
from .module import Module

__all__ = ["DequantStub", "QuantStub"]


class QuantStub(Module):
    """Returns its input; `quantization.quantize_qat` makes a quantizer of it."""

    def forward(self, inp: Tensor) -> Tensor:
        return inp


class DequantStub(Module):
    """Returns its input; `quantization.quantize_qat` makes a dequantizer of it."""

    def forward(self, inp: Tensor) -> Tensor:
        return inp
