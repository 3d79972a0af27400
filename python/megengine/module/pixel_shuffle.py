"""Sub-pixel upsampling: Shi et al. 2016, "Real-Time Single Image and Video Super-Resolution"."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Moves channels into space: (..., C * r * r, H, W) to (..., C, H * r, W * r).

    Parameters
    ----------
    upscale_factor : int
        The factor r; ValueError when called unless its square divides the channels.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

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
        """Returns ``x`` (..., C * r * r, H, W) as (..., C, H * r, W * r), same dtype.

        Parameters
        ----------
        x : Tensor
            Tensor of shape (..., C * r * r, H, W).

        Returns
        -------
        Tensor
            (..., C, H * r, W * r), the same dtype.
        """
        return F.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """Moves space into channels, the inverse of `PixelShuffle`: (..., C, H * r, W * r) to (..., C * r * r, H, W).

    Parameters
    ----------
    downscale_factor : int
        The factor r; ValueError when called unless it divides height and width.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.PixelUnshuffle(2)(mge.functional.ones((1, 3, 8, 6))).shape
    (1, 12, 4, 3)
    """

    _repr_facts = "downscale_factor={0.downscale_factor}"

    def __init__(self, downscale_factor: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x`` (..., C, H * r, W * r) as (..., C * r * r, H, W), same dtype.

        Parameters
        ----------
        x : Tensor
            Tensor of shape (..., C, H * r, W * r).

        Returns
        -------
        Tensor
            (..., C * r * r, H, W), the same dtype.
        """
        return F.pixel_unshuffle(x, self.downscale_factor)
