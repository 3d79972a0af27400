"""Pooling with a window."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d"]


class _PoolNd(Module):
    """Base of pooling. kernel_size, stride, padding: one int, or one for height and one for width;
    stride None: that of the kernel.
    """

    _repr_facts = "kernel_size={0.kernel_size}, stride={0.stride}, padding={0.padding}"
    ceil_mode = False  # modules of older files have no such attribute
    _sizes = "an int or (height, width)"

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value, least in (("kernel_size", kernel_size, 1), ("stride", stride, 1), ("padding", padding, 0)):
            if value is not None and np.min(value) < least:
                raise ValueError(f"{type(self).__name__}: {name}={value!r} is below {least}\n  fix: give {self._sizes}, at least {least}")
        self.kernel_size = kernel_size
        self.stride = stride or kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode


class MaxPool1d(_PoolNd):
    """Takes the maximum of each window of lines: (N, C, L) to (N, C, OL).

    OL = (L + 2 * padding - kernel_size) // stride + 1.

    Parameters
    ----------
    kernel_size : int
        Number of elements of a window.
    stride : int or None
        Elements from one window to the next; None takes ``kernel_size``.
    padding : int
        Number of elements added at both ends; they are never the maximum.
    ceil_mode : bool
        Whether OL is rounded up.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For a kernel or stride below 1, or a padding below 0.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.MaxPool1d(2)(mge.Tensor([[[1.0, 4.0, 3.0, 2.0]]])).tolist()
    [[[4.0, 3.0]]]
    """

    _sizes = "an int"

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the maxima of ``inp`` (N, C, L): (N, C, OL), same dtype.

        Parameters
        ----------
        inp : Tensor
            Sequences of shape (N, C, L).

        Returns
        -------
        Tensor
            (N, C, OL), same dtype.

        Raises
        ------
        ValueError
            For another number of axes.
        """
        return F.max_pool1d(inp, self.kernel_size, self.stride, self.padding, self.ceil_mode)


class MaxPool2d(_PoolNd):
    """Takes the maximum of each window: (N, C, H, W) to (N, C, OH, OW).

    OH = (H + 2 * padding - kernel_size) // stride + 1, and OW likewise.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Extent of a window in pixels: an int for both axes, or (height, width).
    stride : int, (int, int) or None
        Pixels from one window to the next: an int or (height, width); None takes ``kernel_size``.
    padding : int or (int, int)
        Pixels added on every side: an int, or (height, width); they are never the maximum.
    ceil_mode : bool
        Whether OH and OW are rounded up.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For a kernel or stride below 1, or a padding below 0.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.functional.arange(16.0).reshape(1, 1, 4, 4)
    >>> M.MaxPool2d(2)(x).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the maxima of ``inp`` (N, C, H, W): (N, C, OH, OW), same dtype.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).

        Returns
        -------
        Tensor
            (N, C, OH, OW), same dtype.
        """
        return F.max_pool2d(inp, self.kernel_size, self.stride, self.padding, self.ceil_mode)


class AvgPool1d(_PoolNd):
    """Takes the mean of each window of lines: (N, C, L) to (N, C, OL), with OL as in `MaxPool1d`.

    Parameters
    ----------
    kernel_size : int
        Number of elements of a window.
    stride : int or None
        Elements from one window to the next; None takes ``kernel_size``.
    padding : int
        Number of elements added at both ends.
    mode : str
        "average_count_exclude_padding" divides by the number of elements inside the sequence,
        "average" by that of the window.
    ceil_mode : bool
        Whether OL is rounded up.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.AvgPool1d(2)(mge.Tensor([[[1.0, 4.0, 3.0, 2.0]]])).tolist()
    [[[2.5, 2.5]]]
    """

    _sizes = "an int"

    def __init__(
        self,
        kernel_size: int,
        stride: int | None = None,
        padding: int = 0,
        mode: str = "average_count_exclude_padding",
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, **kwargs)
        self.mode = mode

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the means of ``inp`` (N, C, L): (N, C, OL), same dtype.

        Parameters
        ----------
        inp : Tensor
            Sequences of shape (N, C, L).

        Returns
        -------
        Tensor
            (N, C, OL), same dtype.

        Raises
        ------
        ValueError
            For another number of axes, or another mode.
        """
        return F.avg_pool1d(inp, self.kernel_size, self.stride, self.padding, self.mode, self.ceil_mode)

    def _module_info_string(self) -> str:
        return super()._module_info_string() + f", mode={self.mode}"


class AvgPool2d(_PoolNd):
    """Takes the mean of each window: (N, C, H, W) to (N, C, OH, OW), sizes as in `MaxPool2d`.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Extent of a window in pixels: an int for both axes, or (height, width).
    stride : int, (int, int) or None
        Pixels from one window to the next: an int or (height, width); None takes ``kernel_size``.
    padding : int or (int, int)
        Pixels added on every side: an int, or (height, width).
    mode : str
        "average_count_exclude_padding" divides by the number of pixels inside the image, "average"
        by that of the window; ValueError for any other when called.
    ceil_mode : bool
        Whether OH and OW are rounded up.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.functional.ones((1, 1, 2, 2))
    >>> M.AvgPool2d(2, padding=1)(x).reshape(-1).tolist()
    [1.0, 1.0, 1.0, 1.0]
    >>> M.AvgPool2d(2, padding=1, mode="average")(x).reshape(-1).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        mode: str = "average_count_exclude_padding",
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, **kwargs)
        self.mode = mode

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the means of ``inp`` (N, C, H, W): (N, C, OH, OW), same dtype.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).

        Returns
        -------
        Tensor
            (N, C, OH, OW), same dtype.
        """
        return F.avg_pool2d(inp, self.kernel_size, self.stride, self.padding, self.mode, self.ceil_mode)

    def _module_info_string(self) -> str:
        return super()._module_info_string() + f", mode={self.mode}"
