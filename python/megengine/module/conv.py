"""Convolution layers.

Output extent of a convolution: (in + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1; of a
transposed one: (in - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.
Sizes are one int, or one for each spatial axis. conv_mode is "cross_correlation"; compute_mode "default" or
"float32" (accumulate in float32). padding_mode: zeros, reflect or replicate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import functional as F
from ..tensor import Tensor
from ._conv_base import (
    Size,
    _ConvNd,
    _ConvTransposeNd,
    _pad_width,
)
from ._weighted import Relu
from .conv_special import DeformableConv2d, RegionRestrictedConv

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvRelu2d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "ConvTransposeRelu2d",
    "DeformableConv2d",
    "LocalConv2d",
    "RegionRestrictedConv",
]


class _PaddedConv(_ConvNd):
    """A convolution with a choice of padding modes."""

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

    def get_pad_witdth(self) -> tuple[tuple[int, int], ...]:
        """(before, after) for each axis, as functional.pad takes them."""
        return _pad_width(self.padding)

    def _padded(self, inp: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """The input, padded here unless with zeros, and the padding left to the convolution."""
        if self.padding_mode == "zeros":
            return inp, self.padding
        return F.nn.pad(inp, self.get_pad_witdth(), self.padding_mode), (0,) * self._rank

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with other weights than the module's."""
        inp, padding = self._padded(inp)
        windows: Any = (self.stride, padding, self.dilation)
        if self._rank == 1:
            windows = [sizes[0] for sizes in windows]
        convolve: Callable[..., Tensor] = F.conv1d if self._rank == 1 else F.conv2d
        return convolve(inp, weight, bias, *windows, self.groups, self.conv_mode, self.compute_mode)

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv(inp, self.weight, self.bias)


class Conv1d(_PaddedConv):
    """(N, in_channels, L) to (N, out_channels, OL). weight (out, in, k); bias (1, out, 1)."""

    _rank = 1


class Conv2d(_PaddedConv):
    """(N, in_channels, H, W) to (N, out_channels, OH, OW).

    weight (out, in, kh, kw), with groups (groups, out / groups, in / groups, kh, kw); bias (1, out, 1, 1).
    """


class Conv3d(_ConvNd):
    """(N, in_channels, D, H, W) to (N, out_channels, OD, OH, OW). weight (out, in, kd, kh, kw)."""

    _rank = 3

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
            **kwargs,
        )

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with other weights than the module's."""
        return F.conv3d(
            inp,
            weight,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.conv_mode,
        )

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv(inp, self.weight, self.bias)


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution, (N, in_channels, H, W) to (N, out_channels, OH, OW).

    weight (in, out, kh, kw), with groups (groups, in / groups, out / groups, kh, kw); bias (1, out, 1, 1).
    """

    output_padding = 0

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
            output_padding=output_padding,
            conv_mode=conv_mode,
            compute_mode=compute_mode,
            **kwargs,
        )

    def calc_conv_transpose2d(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The transposed convolution with other weights than the module's."""
        return F.conv_transpose2d(
            inp,
            weight,
            bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.groups,
            self.conv_mode,
            self.compute_mode,
        )

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d(inp, self.weight, self.bias)


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution, (N, in_channels, D, H, W) to (N, out_channels, OD, OH, OW)."""

    _rank = 3
    output_padding = 0

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
            output_padding=output_padding,
            **kwargs,
        )

    def forward(self, inp: Tensor) -> Tensor:
        return F.conv_transpose3d(
            inp,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.groups,
        )


class LocalConv2d(Conv2d):
    """Convolution with a kernel of its own for every output position, without bias.

    (N, in_channels, input_height, input_width) to (N, out_channels, OH, OW).
    weight (groups, OH, OW, in / groups, kh, kw, out / groups).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        input_height: int,
        input_width: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        conv_mode: str = "cross_correlation",
        **kwargs: Any,
    ) -> None:
        self.input_height = input_height
        self.input_width = input_width
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias=False,
            conv_mode=conv_mode,
            **kwargs,
        )

    def _infer_weight_shape(self) -> tuple[int, ...]:
        extents = (self.input_height, self.input_width)
        out = tuple(
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, pad, dilation, kernel, stride in zip(
                extents, self.padding, self.dilation, self.kernel_size, self.stride, strict=True
            )
        )
        groups = self.groups
        ins, outs = self.in_channels // groups, self.out_channels // groups
        return (groups, *out, ins, *self.kernel_size, outs)

    def forward(self, inp: Tensor) -> Tensor:
        return F.local_conv2d(
            inp, self.weight, None, self.stride, self.padding, self.dilation, self.conv_mode
        )


class ConvRelu2d(Relu, Conv2d):
    """relu(Conv2d(x)), a fused layer for quantization-aware training."""


class ConvTransposeRelu2d(Relu, ConvTranspose2d):
    """relu(ConvTranspose2d(x)), a fused layer for quantization-aware training."""
