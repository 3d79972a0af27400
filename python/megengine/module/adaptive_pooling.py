"""Pooling to a given output size."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d"]


class _AdaptivePoolNd(Module):
    """Base of adaptive pooling. oshp: output height and width, one int or two; for lines one int.
    """

    _repr_facts = "oshp={0.oshp}"

    def __init__(self, oshp: int | tuple[int, int] | Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.oshp = oshp


class AdaptiveMaxPool1d(_AdaptivePoolNd):
    """Takes the maximum over windows of a line: (N, C, L) to (N, C, oshp).

    Parameters
    ----------
    oshp : int or Tensor
        Output length. Windows are those of `AdaptiveMaxPool2d`, along one axis.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.AdaptiveMaxPool1d(2)(mge.Tensor([[[1.0, 2.0, 3.0, 4.0]]])).tolist()
    [[[2.0, 4.0]]]
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the maxima of ``inp`` (N, C, L): (N, C, oshp), same dtype.

        Parameters
        ----------
        inp : Tensor
            Sequences of shape (N, C, L).

        Returns
        -------
        Tensor
            (N, C, oshp), same dtype.

        Raises
        ------
        ValueError
            For another number of axes.
        """
        return F.adaptive_max_pool1d(inp, self.oshp)


class AdaptiveMaxPool2d(_AdaptivePoolNd):
    """Takes the maximum over windows of an image: (N, C, H, W) to (N, C, *oshp).

    Parameters
    ----------
    oshp : int, (int, int) or Tensor
        Output height and width, an int for both. The windows of n outputs are H // n rows apart and
        H - (n - 1) * (H // n) rows high: any input size gives the same output size, and windows
        overlap where n does not divide H.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    >>> M.AdaptiveMaxPool2d((1, 2))(x).tolist()
    [[[[2.0, 4.0]]]]
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the maxima of ``inp`` (N, C, H, W): (N, C, *oshp), same dtype.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).

        Returns
        -------
        Tensor
            (N, C, *oshp), same dtype.
        """
        return F.adaptive_max_pool2d(inp, self.oshp)


class AdaptiveAvgPool1d(_AdaptivePoolNd):
    """Takes the mean over windows of a line: (N, C, L) to (N, C, oshp).

    Parameters
    ----------
    oshp : int or Tensor
        Output length. Windows are those of `AdaptiveMaxPool2d`, along one axis.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.AdaptiveAvgPool1d(2)(mge.Tensor([[[1.0, 2.0, 3.0, 4.0]]])).tolist()
    [[[1.5, 3.5]]]
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the means of ``inp`` (N, C, L): (N, C, oshp), same dtype.

        Parameters
        ----------
        inp : Tensor
            Sequences of shape (N, C, L).

        Returns
        -------
        Tensor
            (N, C, oshp), same dtype.

        Raises
        ------
        ValueError
            For another number of axes.
        """
        return F.adaptive_avg_pool1d(inp, self.oshp)


class AdaptiveAvgPool2d(_AdaptivePoolNd):
    """Takes the mean over windows of an image: (N, C, H, W) to (N, C, *oshp).

    Parameters
    ----------
    oshp : int, (int, int) or Tensor
        Output height and width, an int for both; 1 is global average pooling. Windows are those of
        `AdaptiveMaxPool2d`.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    >>> M.AdaptiveAvgPool2d((1, 2))(x).tolist()
    [[[[1.5, 3.5]]]]
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the means of ``inp`` (N, C, H, W): (N, C, *oshp), same dtype.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).

        Returns
        -------
        Tensor
            (N, C, *oshp), same dtype.
        """
        return F.adaptive_avg_pool2d(inp, self.oshp)
