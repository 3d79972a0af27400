"""Transposed convolution and batch normalization as one layer, for quantization-aware training."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from ._conv_base import Size
from ._weighted import Relu
from .batchnorm import BatchNorm2d
from .conv import ConvTranspose2d
from .module import Module

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


class _ConvTransposeBnActivation2d(Module):
    """Has the children ``conv_transpose2d`` and ``bn``. It takes the arguments of ConvTranspose2d,
    then those of BatchNorm2d.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conv_transpose2d = ConvTranspose2d(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
            conv_mode,
            compute_mode,
        )
        self.bn = BatchNorm2d(out_channels, eps, momentum, affine, track_running_stats)

    def forward(self, inp: Tensor) -> Tensor:
        """Returns ``bn(conv_transpose2d(inp))``.

        Parameters
        ----------
        inp : Tensor
            Images of shape (N, in_channels, H, W).

        Returns
        -------
        Tensor
            Images of shape (N, out_channels, OH, OW).
        """
        return self.bn(self.conv_transpose2d(inp))


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """Computes ``BatchNorm2d(ConvTranspose2d(x))`` as one layer; quantization folds the two.

    Its children are ``conv_transpose2d`` and ``bn``.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, output_padding, dilation : int or sequence of int
        Extent of a kernel, distance of the windows of two neighbouring input pixels, pixels cut off
        on every side of the output, rows and columns added at its end, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.ConvTransposeBn2d(8, 4, kernel_size=2, stride=2)(mge.functional.ones((1, 8, 3, 3))).shape
    (1, 4, 6, 6)
    """


class ConvTransposeBnRelu2d(Relu, _ConvTransposeBnActivation2d):
    """Computes ``relu(BatchNorm2d(ConvTranspose2d(x)))``, which quantization folds into one.

    Its children are those of `ConvTransposeBn2d`.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, output_padding, dilation : int or sequence of int
        Extent of a kernel, distance of the windows of two neighbouring input pixels, pixels cut off
        on every side of the output, rows and columns added at its end, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> layer = M.ConvTransposeBnRelu2d(8, 4, kernel_size=2, stride=2)
    >>> layer(mge.functional.ones((1, 8, 3, 3))).shape
    (1, 4, 6, 6)
    """
