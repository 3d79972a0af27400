"""Convolutions with weights or samples that depend on the position."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from ._conv_base import Size, _ConvNd, _pad_width

__all__ = ["DeformableConv2d", "RegionRestrictedConv"]


class DeformableConv2d(_ConvNd):
    """Convolution that samples at learnt offsets with learnt weights.

    forward(inp, offset, mask): inp (N, in_channels, H, W), offset (N, 2 * kh * kw, OH, OW) in pixels,
    mask (N, kh * kw, OH, OW). Returns (N, out_channels, OH, OW).
    Source: Zhu et al. 2019, "Deformable ConvNets v2".
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
        """The convolution with other weights than the module's."""
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
        return self.calc_conv(inp, self.weight, offset, mask, self.bias)


class RegionRestrictedConv(_ConvNd):
    """Convolution in which an output takes only inputs of its own region.

    forward(inp, rin, rout): inp (N, in_channels, H, W); rin (N, H, W) and rout (N, OH, OW) are integer maps
    of regions. An input counts for an output where both have the same number.
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
        """(before, after) for each axis, as functional.pad takes them."""
        return _pad_width(self.padding)

    def calc_conv(
        self, inp: Tensor, weight: Tensor, rin: Tensor, rout: Tensor, bias: Tensor | None
    ) -> Tensor:
        """The convolution with other weights than the module's."""
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
        return self.calc_conv(inp, self.weight, rin, rout, self.bias)
