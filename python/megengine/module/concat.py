"""Concatenation as a module, so that quantization can see it."""

from __future__ import annotations

from collections.abc import Iterable

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["Concat"]


class Concat(Module):
    """forward(inps, axis=0): the tensors joined along an axis."""

    def forward(self, inps: Iterable[Tensor], axis: int = 0) -> Tensor:
        return F.concat(inps, axis)
