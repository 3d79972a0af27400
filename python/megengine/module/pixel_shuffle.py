"""Sub-pixel upsampling: Shi et al. 2016, "Real-Time Single Image and Video Super-Resolution"."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["PixelShuffle"]


class PixelShuffle(Module):
    """Moves channels into space: (..., C * r * r, H, W) to (..., C, H * r, W * r).

    Parameters
    ----------
    upscale_factor : int
        The factor r; ValueError when called unless its square divides the channels.
    **kwargs : object
        `name`; see `Module`.

    References
    ----------
    Shi et al. 2016, "Real-Time Single Image and Video Super-Resolution".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.PixelShuffle(2)(mge.functional.arange(4.0).reshape(1, 4, 1, 1)).tolist()
    [[[[0.0, 1.0], [2.0, 3.0]]]]
    """

    _repr_facts = "upscale_factor={0.upscale_factor}"

    def __init__(self, upscale_factor: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (..., C * r * r, H, W) as (..., C, H * r, W * r), same dtype.

        Parameters
        ----------
        x : Tensor
            (..., C * r * r, H, W).

        Returns
        -------
        Tensor
            (..., C, H * r, W * r), the same dtype.
        """
        return F.pixel_shuffle(x, self.upscale_factor)
