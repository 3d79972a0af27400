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
        As in `Conv2d`.
    kernel_size, stride, padding, dilation : int or sequence of int
        As in `Conv2d`.
    groups : int
        As in `Conv2d`.
    bias : bool
        As in `Conv2d`.
    conv_mode, compute_mode : str
        As in `Conv2d`.
    **kwargs : object
        As in `Conv2d`.

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
        """Return the convolution of ``inp``, as `forward` does, with the given weight and bias.

        Parameters
        ----------
        inp : Tensor
            As in `forward`.
        weight : Tensor
            Of the shape of the module's.
        offset, mask : Tensor
            As in `forward`.
        bias : Tensor or None
            Of the shape of the module's, or None for none.

        Returns
        -------
        Tensor
            As from `forward`.
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
        """Return the convolution, (N, out_channels, OH, OW).

        Parameters
        ----------
        inp : Tensor
            (N, in_channels, H, W).
        offset : Tensor
            (N, 2 * kh * kw, OH, OW), for each kernel element its shift (y, x) in pixels.
        mask : Tensor
            (N, kh * kw, OH, OW), factors.

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
        As in `Conv2d`.
    kernel_size : int or sequence of int
        As in `Conv2d`.
    groups : int
        As in `Conv2d`.
    bias : bool
        As in `Conv2d`.
    stride, padding, dilation : int or sequence of int
        As in `Conv2d`.
    conv_mode, compute_mode, padding_mode : str
        As in `Conv2d`.
    **kwargs : object
        As in `Conv2d`.

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
        """Return (before, after) for each axis, as `functional.nn.pad` takes them.

        Returns
        -------
        tuple of (int, int)
            One pair for each axis.
        """
        return _pad_width(self.padding)

    def calc_conv(
        self, inp: Tensor, weight: Tensor, rin: Tensor, rout: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Return the convolution of ``inp`` by the regions ``rin`` and ``rout``, with the given
        weight and bias.

        Parameters
        ----------
        inp : Tensor
            As in `forward`.
        weight : Tensor
            Of the shape of the module's.
        rin, rout : Tensor
            As in `forward`.
        bias : Tensor or None
            Of the shape of the module's, or None for none.

        Returns
        -------
        Tensor
            As from `forward`.
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
        """Return the convolution, (N, out_channels, OH, OW).

        Parameters
        ----------
        inp : Tensor
            (N, in_channels, H, W).
        rin : Tensor
            (N, H, W), integers: the region of each input.
        rout : Tensor
            (N, OH, OW), integers: that of each output.

        Returns
        -------
        Tensor
            (N, out_channels, OH, OW).
        """
        return self.calc_conv(inp, self.weight, rin, rout, self.bias)
