"""Sub-pixel upsampling: Shi et al. 2016, "Real-Time Single Image and Video Super-Resolution"."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["PixelShuffle"]


class PixelShuffle(Module):
    """(..., C * r * r, H, W) to (..., C, H * r, W * r), r = upscale_factor."""

    _repr_facts = "upscale_factor={0.upscale_factor}"

    def __init__(self, upscale_factor: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(x, self.upscale_factor)
