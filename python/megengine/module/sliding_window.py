"""Windows of an image and their sum back into one."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from ._conv_base import Size
from .module import Module

__all__ = ["Fold", "SlidingWindow", "SlidingWindowTranspose", "Unfold"]


class SlidingWindow(Module):
    """Cuts images into the windows that a convolution sees: (N, C, H, W) to (N, C, OH, OW, kh, kw).

    Parameters
    ----------
    kernel_size, padding, stride, dilation : int or sequence of int
        Sizes in pixels: each an int, or (height, width). OH and OW are those of `Conv2d`; padding
        holds zeros.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.functional.arange(4.0).reshape(1, 1, 1, 4)
    >>> M.SlidingWindow((1, 2), stride=2)(x).reshape(2, 2).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """

    _repr_facts = "kernel_size={0.kernel_size}, padding={0.padding}, stride={0.stride}, dilation={0.dilation}"

    def __init__(
        self,
        kernel_size: Size,
        padding: Size = 0,
        stride: Size = 1,
        dilation: Size = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the windows of ``inp`` (N, C, H, W).

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).

        Returns
        -------
        Tensor
            (N, C, OH, OW, kh, kw).

        Raises
        ------
        ValueError
            For another rank.
        """
        return F.sliding_window(inp, self.kernel_size, self.padding, self.stride, self.dilation)


class SlidingWindowTranspose(Module):
    """Adds windows up to images: (N, C, OH, OW, kh, kw) to (N, C, *output_size).

    It is the adjoint of `SlidingWindow`: where windows overlap, their elements are summed.

    Parameters
    ----------
    output_size : int or sequence of int
        (height, width) of the images.
    kernel_size, padding, stride, dilation : int or sequence of int
        Sizes that cut the windows, as in `SlidingWindow`: each an int, or (height, width).
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> windows = mge.functional.ones((1, 1, 1, 3, 1, 2))
    >>> M.SlidingWindowTranspose((1, 4), kernel_size=(1, 2))(windows).tolist()
    [[[[1.0, 2.0, 2.0, 1.0]]]]
    """

    _repr_facts = (
        "output_size={0.output_size}, kernel_size={0.kernel_size}, padding={0.padding}, stride={0.stride}, "
        "dilation={0.dilation}"
    )

    def __init__(
        self,
        output_size: Size,
        kernel_size: Size,
        padding: Size = 0,
        stride: Size = 1,
        dilation: Size = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, OH, OW, kh, kw).

        Returns
        -------
        Tensor
            (N, C, *output_size).

        Raises
        ------
        ValueError
            Unless these are the windows of ``output_size``.
        """
        return F.sliding_window_transpose(
            inp, self.output_size, self.kernel_size, self.padding, self.stride, self.dilation
        )


class Unfold(Module):
    """Cuts images into windows, as the columns of a matrix: (N, C, H, W) to (N, C * kh * kw, OH * OW).

    Parameters
    ----------
    kernel_size, dilation, padding, stride : int or sequence of int
        Sizes in pixels: each an int, or (height, width). OH and OW are those of `Conv2d`; padding
        holds zeros.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Unfold((2, 3))(mge.functional.ones((2, 5, 3, 4))).shape
    (2, 30, 4)
    """

    _repr_facts = "kernel_size={0.kernel_size}, dilation={0.dilation}, padding={0.padding}, stride={0.stride}"

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the columns of ``inp`` (N, C, H, W).

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).

        Returns
        -------
        Tensor
            (N, C * kh * kw, OH * OW).

        Raises
        ------
        ValueError
            For another rank.
        """
        return F.unfold(inp, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """Adds columns up to images, the adjoint of `Unfold`: (N, C * kh * kw, OH * OW) to (N, C, *output_size).

    Parameters
    ----------
    output_size : int or sequence of int
        (height, width) of the images.
    kernel_size, dilation, padding, stride : int or sequence of int
        Sizes that cut the windows, as in `Unfold`: each an int, or (height, width).
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Fold((1, 4), kernel_size=(1, 2))(mge.functional.ones((1, 2, 3))).tolist()
    [[[[1.0, 2.0, 2.0, 1.0]]]]
    """

    _repr_facts = "output_size={0.output_size}, kernel_size={0.kernel_size}, dilation={0.dilation}, padding={0.padding}, stride={0.stride}"

    def __init__(
        self, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C * kh * kw, OH * OW).

        Returns
        -------
        Tensor
            (N, C, *output_size).

        Raises
        ------
        ValueError
            Unless these are the columns of ``output_size``.
        """
        return F.fold(inp, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)
