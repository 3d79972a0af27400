"""Convolution and batch normalization as one layer, for quantization-aware training."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from ._conv_base import Size
from ._weighted import Relu
from .batchnorm import BatchNorm2d
from .conv import Conv2d
from .module import Module

__all__ = ["ConvBn2d", "ConvBnRelu2d"]


class _ConvBnActivation2d(Module):
    """Has the children ``conv`` and ``bn``. It takes the arguments of Conv2d, then those of
    BatchNorm2d.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conv = Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            conv_mode,
            compute_mode,
            padding_mode,
        )
        self.bn = BatchNorm2d(out_channels, eps, momentum, affine, track_running_stats)

    def forward(self, inp: Tensor) -> Tensor:
        """Returns ``bn(conv(inp))``.

        Parameters
        ----------
        inp : Tensor
            Images of shape (N, in_channels, H, W).

        Returns
        -------
        Tensor
            Images of shape (N, out_channels, OH, OW).
        """
        return self.bn(self.conv(inp))


class ConvBn2d(_ConvBnActivation2d):
    """Computes ``BatchNorm2d(Conv2d(x))`` as one layer; quantization folds the two.

    Its children are ``conv`` and ``bn``.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
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
    padding_mode : str
        What the padding holds: "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine.module as M
    >>> M.ConvBn2d(3, 8, kernel_size=3)
    ConvBn2d(
      (conv): Conv2d(3, 8, kernel_size=(3, 3))
      (bn): BatchNorm2d(8, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)
    )
    """


class ConvBnRelu2d(Relu, _ConvBnActivation2d):
    """Computes ``relu(BatchNorm2d(Conv2d(x)))`` as one layer; quantization folds the three.

    Its children are those of `ConvBn2d`.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
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
    padding_mode : str
        What the padding holds: "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.ConvBnRelu2d(3, 8, kernel_size=3, bias=False)(mge.functional.ones((2, 3, 5, 5))).shape
    (2, 8, 3, 3)
    """
