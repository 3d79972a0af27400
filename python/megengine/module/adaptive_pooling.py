"""Pooling to a given output size."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d"]


class _AdaptivePoolNd(Module):
    """oshp: output height and width, an int or two; each output covers an equal share of the input."""

    _repr_facts = "oshp={0.oshp}"

    def __init__(self, oshp: int | tuple[int, int] | Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.oshp = oshp


class AdaptiveMaxPool2d(_AdaptivePoolNd):
    """Maximum of each share: (N, C, H, W) to (N, C, *oshp)."""

    def forward(self, inp: Tensor) -> Tensor:
        return F.adaptive_max_pool2d(inp, self.oshp)


class AdaptiveAvgPool2d(_AdaptivePoolNd):
    """Mean of each share: (N, C, H, W) to (N, C, *oshp)."""

    def forward(self, inp: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(inp, self.oshp)
