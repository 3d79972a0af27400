"""Convolutions with weights or samples that depend on the position."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from ._conv_base import Size, _ConvNd, _pad_width

__all__ = ["DeformableConv2d", "RegionRestrictedConv"]


class DeformableConv2d(_ConvNd):
    """Convolves images at sampling points that are shifted and weighted by other tensors.

    Each kernel element reads the input at its usual place plus an offset, between pixels by
    bilinear interpolation and 0 outside the image, times a mask value; usually another convolution
    learns both. Parameters of the module are those of `Conv2d`.

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
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Zhu et al. 2019, "Deformable ConvNets v2".

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> conv = M.DeformableConv2d(1, 2, kernel_size=3)
    >>> conv(F.ones((1, 1, 5, 5)), F.zeros((1, 18, 3, 3)), F.ones((1, 9, 3, 3))).shape
    (1, 2, 3, 3)
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
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            conv_mode=conv_mode,
            compute_mode=compute_mode,
            **kwargs,
        )

    def calc_conv(
        self, inp: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Returns the convolution of ``inp``, as `forward` does, with the given weight and bias.

        Parameters
        ----------
        inp : Tensor
            Images of shape (N, in_channels, H, W).
        weight : Tensor
            Kernels, of the shape of the module's weight.
        offset, mask : Tensor
            Shifts (N, 2 * kh * kw, OH, OW) in pixels, and factors (N, kh * kw, OH, OW), one for
            each kernel element.
        bias : Tensor or None
            Of the shape of the module's bias; None adds none.

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
        return F.deformable_conv2d(
            inp,
            weight,
            offset,
            mask,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.conv_mode,
            self.compute_mode,
        )

    def forward(self, inp: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        """Returns the convolution, (N, out_channels, OH, OW).

        Parameters
        ----------
        inp : Tensor
            Images of shape (N, in_channels, H, W).
        offset : Tensor
            The shift (y, x) of each kernel element in pixels: (N, 2 * kh * kw, OH, OW).
        mask : Tensor
            The factor of each kernel element: (N, kh * kw, OH, OW).

        Returns
        -------
        Tensor
            (N, out_channels, OH, OW).

        Raises
        ------
        ValueError
            For shapes that do not fit.
        """
        return self.calc_conv(inp, self.weight, offset, mask, self.bias)


class RegionRestrictedConv(_ConvNd):
    """Convolves images so that an output sums only the inputs of its own region.

    Regions are numbered by integer maps; an input counts for an output where both have the same
    number. Parameters of the module are those of `Conv2d`.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size : int or sequence of int
        Extent of a kernel in pixels: an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    stride, padding, dilation : int or sequence of int
        Distance from one window to the next, pixels added on every side, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    conv_mode, compute_mode, padding_mode : str
        "cross_correlation", the only one; "default" or "float32", which both accumulate in float32;
        and what the padding holds, "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F, megengine.module as M
    >>> conv = M.RegionRestrictedConv(1, 1, kernel_size=(1, 3), padding=(0, 1))
    >>> M.init.ones_(conv.weight)
    >>> regions = mge.Tensor([[[0, 0, 1, 1]]])
    >>> conv(F.ones((1, 1, 1, 4)), regions, regions).tolist()
    [[[[2.0, 2.0, 2.0, 2.0]]]]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        groups: int = 1,
        bias: bool = True,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            conv_mode=conv_mode,
            compute_mode=compute_mode,
            padding_mode=padding_mode,
            **kwargs,
        )

    def get_pad_width(self) -> tuple[tuple[int, int], ...]:
        """Returns (before, after) for each axis, as `functional.nn.pad` takes them.

        Returns
        -------
        tuple of (int, int)
            One pair for each axis.
        """
        return _pad_width(self.padding)

    def calc_conv(
        self, inp: Tensor, weight: Tensor, rin: Tensor, rout: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Returns the convolution of ``inp`` by the regions ``rin`` and ``rout``, with the given
        weight and bias.

        Parameters
        ----------
        inp : Tensor
            Images of shape (N, in_channels, H, W).
        weight : Tensor
            Kernels, of the shape of the module's weight.
        rin, rout : Tensor
            Regions of the input pixels, (N, H, W), and of the output pixels, (N, OH, OW): integers.
        bias : Tensor or None
            Of the shape of the module's bias; None adds none.

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
        padding = self.padding
        if self.padding_mode != "zeros":
            width, padding = self.get_pad_width(), (0, 0)
            inp = F.nn.pad(inp, width, self.padding_mode)
            rin = F.nn.pad(rin, (width[0], *width[2:]), self.padding_mode)
        return F.region_restricted_conv(
            inp,
            weight,
            rin,
            rout,
            bias,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            self.conv_mode,
            self.compute_mode,
        )

    def forward(self, inp: Tensor, rin: Tensor, rout: Tensor) -> Tensor:
        """Returns the convolution, (N, out_channels, OH, OW).

        Parameters
        ----------
        inp : Tensor
            Images of shape (N, in_channels, H, W).
        rin : Tensor
            Number of the region of each input pixel: integers, (N, H, W).
        rout : Tensor
            Number of the region of each output pixel: integers, (N, OH, OW).

        Returns
        -------
        Tensor
            (N, out_channels, OH, OW).
        """
        return self.calc_conv(inp, self.weight, rin, rout, self.bias)
