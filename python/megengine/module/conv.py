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
        padding: Size | str = 0,
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
        """Returns (before, after) for each axis, as `functional.nn.pad` takes them."""
        return _pad_width(self.padding)

    def _padded(self, inp: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Returns the input, padded here unless with zeros, and the padding that the convolution
        adds.
        """
        if self.padding_mode == "zeros":
            return inp, self.padding
        return F.nn.pad(inp, self.get_pad_witdth(), self.padding_mode), (0,) * self._rank

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Returns the convolution of ``inp`` with the given weight and bias instead of the
        module's.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, in_channels, ...), with the spatial axes of the class.
        weight : Tensor
            Kernels, of the shape of the module's weight.
        bias : Tensor or None
            Of the shape of the module's bias; None adds none.

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
        inp, padding = self._padded(inp)
        windows: Any = (self.stride, padding, self.dilation)
        if self._rank == 1:
            windows = [sizes[0] for sizes in windows]
        convolve: Callable[..., Tensor] = F.conv1d if self._rank == 1 else F.conv2d
        return convolve(inp, weight, bias, *windows, self.groups, self.conv_mode, self.compute_mode)

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the convolution of ``inp`` with the module's weight and bias.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, in_channels, ...), with the spatial axes of the class.

        Returns
        -------
        Tensor
            Tensor of shape (N, out_channels, ...).
        """
        return self.calc_conv(inp, self.weight, self.bias)


class Conv1d(_PaddedConv):
    """Convolves sequences: (N, in_channels, L) to (N, out_channels, OL).

    OL = (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1. weight (out, in, k),
    with groups (groups, out / groups, in / groups, k); bias (1, out, 1).

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride : int or sequence of int
        Elements of a kernel, and elements from one window to the next.
    padding : int, sequence of int or str
        Elements added at both ends: an int, or "same", which keeps L for an odd kernel and a stride
        of 1, or "valid", which is 0.
    dilation : int or sequence of int
        Elements from one element of a kernel to the next.
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether to add a learned number to each output channel.
    conv_mode, compute_mode, padding_mode : str
        "cross_correlation", the only one; "default" or "float32", which both accumulate in float32;
        and what the padding holds, "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Conv1d(4, 8, kernel_size=3, stride=2)(mge.functional.ones((1, 4, 9))).shape
    (1, 8, 4)
    """

    _rank = 1


class Conv2d(_PaddedConv):
    """Convolves images with learned kernels: (N, in_channels, H, W) to (N, out_channels, OH, OW).

    OH = (H + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1, and OW likewise.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size : int or sequence of int
        Extent of a kernel in pixels: an int for both axes, or (height, width).
    stride : int or sequence of int
        Pixels from one window to the next: an int for both axes, or (height, width).
    padding : int, sequence of int or str
        Pixels added on both sides of each axis: an int, or (height, width). "same" keeps H and W,
        for odd kernels and a stride of 1; "valid" is 0. The attribute holds the numbers.
    dilation : int or sequence of int
        Pixels from one element of a kernel to the next: an int, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether to add a learned number to each output channel.
    conv_mode : str
        "cross_correlation", the only one.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    padding_mode : str
        What the padding holds, "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For channels that groups do not divide, sizes of another number of values, another mode, and
        "same" where it would differ before and after.

    See Also
    --------
    functional.conv2d : The function.
    ConvTranspose2d : Enlarges images.
    ConvBnRelu2d : Has a batch normalization and a relu behind it.

    Notes
    -----
    weight (out, in, kh, kw), with groups (groups, out / groups, in / groups, kh, kw), is normal
    with variance 1 / (in_channels * kh * kw) at first; bias (1, out, 1, 1) is zero.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> conv = M.Conv2d(3, 8, kernel_size=3, padding=1, stride=2)
    >>> conv(mge.functional.ones((1, 3, 32, 32))).shape
    (1, 8, 16, 16)
    >>> M.Conv2d(4, 8, 3, groups=4).weight.shape
    (4, 2, 1, 3, 3)
    """


class Conv3d(_ConvNd):
    """Convolves volumes: (N, in_channels, D, H, W) to (N, out_channels, OD, OH, OW).

    Sizes have (depth, height, width) where `Conv2d` has two values. weight (out, in, kd, kh, kw),
    with groups a leading axis as there; bias (1, out, 1, 1, 1).

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride : int or sequence of int
        Extent of a kernel, and distance from one window to the next, in voxels: each an int for all
        axes, or (depth, height, width).
    padding : int, sequence of int or str
        Voxels added on both sides of each axis: an int, or (depth, height, width). "same" keeps the
        extents, for odd kernels and a stride of 1; "valid" is 0.
    dilation : int or sequence of int
        Voxels from one element of a kernel to the next: an int, or (depth, height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether to add a learned number to each output channel.
    conv_mode : str
        How kernels are laid over the input: "cross_correlation" is the only one.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Conv3d(1, 2, kernel_size=(1, 3, 3))(mge.functional.ones((1, 1, 4, 5, 5))).shape
    (1, 2, 4, 3, 3)
    """

    _rank = 3

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
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
        """Returns the convolution of ``inp`` with the given weight and bias instead of the
        module's.

        Parameters
        ----------
        inp : Tensor
            Volumes of shape (N, in_channels, D, H, W).
        weight : Tensor
            Kernels, of the shape of the module's weight.
        bias : Tensor or None
            Of the shape of the module's bias; None adds none.

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
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
        """Returns the convolution of ``inp`` (N, in_channels, D, H, W).

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, in_channels, D, H, W).

        Returns
        -------
        Tensor
            (N, out_channels, OD, OH, OW).
        """
        return self.calc_conv(inp, self.weight, self.bias)


class ConvTranspose2d(_ConvTransposeNd):
    """Upsamples images by a transposed convolution, the gradient of `Conv2d` for its input.

    (N, in_channels, H, W) to (N, out_channels, OH, OW), where OH = (H - 1) * stride - 2 * padding +
    dilation * (kernel_size - 1) + output_padding + 1.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding : int or sequence of int
        Extent of a kernel, distance of the windows of two neighbouring input pixels, and pixels cut
        off on every side of the output: each an int for both axes, or (height, width).
    output_padding : int or sequence of int
        Rows and columns added at the end of the output, fewer than stride (AssertionError when
        called). With a stride above 1 several output sizes have the same input size; this number
        chooses among them.
    dilation : int or sequence of int
        Pixels from one element of a kernel to the next: an int, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether to add a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    See Also
    --------
    Conv2d : The convolution whose gradient this is.
    functional.conv_transpose2d : The function.

    Notes
    -----
    weight (in, out, kh, kw), with groups (groups, in / groups, out / groups, kh, kw), is normal
    with variance 1 / (out_channels * kh * kw) at first; bias (1, out, 1, 1) is zero.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> up = M.ConvTranspose2d(8, 4, kernel_size=4, stride=2, padding=1)
    >>> up(mge.functional.ones((1, 8, 16, 16))).shape
    (1, 4, 32, 32)
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
        """Returns the transposed convolution of ``inp`` with the given weight and bias.

        Parameters
        ----------
        inp : Tensor
            Images of shape (N, in_channels, H, W).
        weight : Tensor
            Kernels, of the shape of the module's weight.
        bias : Tensor or None
            Of the shape of the module's bias; None adds none.

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
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
        """Returns the transposed convolution of ``inp`` (N, in_channels, H, W).

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, in_channels, H, W).

        Returns
        -------
        Tensor
            (N, out_channels, OH, OW).
        """
        return self.calc_conv_transpose2d(inp, self.weight, self.bias)


class ConvTranspose3d(_ConvTransposeNd):
    """Upsamples volumes by a transposed convolution.

    (N, in_channels, D, H, W) to (N, out_channels, OD, OH, OW). Sizes have (depth, height, width)
    where `ConvTranspose2d` has two values. weight (in, out, kd, kh, kw); bias (1, out, 1, 1, 1).

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, output_padding, dilation : int or sequence of int
        Extent of a kernel, distance of the windows of two neighbouring input voxels, voxels cut off
        on every side of the output, layers added at its end, and distance of a kernel's elements:
        each an int for all axes, or (depth, height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether to add a learned number to each output channel.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.ConvTranspose3d(2, 1, kernel_size=2, stride=2)(mge.functional.ones((1, 2, 3, 4, 4))).shape
    (1, 1, 6, 8, 8)
    """

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
        """Returns the transposed convolution of ``inp`` (N, in_channels, D, H, W).

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, in_channels, D, H, W).

        Returns
        -------
        Tensor
            (N, out_channels, OD, OH, OW).
        """
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
    """Convolves images with another kernel at every output position (locally connected layer).

    (N, in_channels, input_height, input_width) to (N, out_channels, OH, OW), sizes as in `Conv2d`;
    there is no bias.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    input_height, input_width : int
        Extents of the images, which fix the number of kernels.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode : str
        How kernels are laid over the input: "cross_correlation" is the only one.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Notes
    -----
    weight (groups, OH, OW, in / groups, kh, kw, out / groups).

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> layer = M.LocalConv2d(1, 2, input_height=5, input_width=5, kernel_size=3)
    >>> layer.weight.shape, layer(mge.functional.ones((1, 1, 5, 5))).shape
    ((1, 3, 3, 1, 3, 3, 2), (1, 2, 3, 3))
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
        """Returns the layer's result for ``inp`` (N, in_channels, input_height, input_width).

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, in_channels, input_height, input_width).

        Returns
        -------
        Tensor
            (N, out_channels, OH, OW).
        """
        return F.local_conv2d(
            inp, self.weight, None, self.stride, self.padding, self.dilation, self.conv_mode
        )


class ConvRelu2d(Relu, Conv2d):
    """Computes ``relu(Conv2d(x))`` as one layer; quantization rounds after the relu.

    Its parameters are those of `Conv2d`.

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
    conv_mode, compute_mode, padding_mode : str
        "cross_correlation", the only one; "default" or "float32", which both accumulate in float32;
        and what the padding holds, "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> y = M.ConvRelu2d(3, 8, kernel_size=3)(mge.functional.ones((1, 3, 5, 5)))
    >>> y.shape, bool((y.numpy() >= 0).all())
    ((1, 8, 3, 3), True)
    """


class ConvTransposeRelu2d(Relu, ConvTranspose2d):
    """Computes ``relu(ConvTranspose2d(x))`` as one layer; quantization rounds after the relu.

    Its parameters are those of `ConvTranspose2d`.

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
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> up = M.ConvTransposeRelu2d(8, 4, kernel_size=2, stride=2)
    >>> up(mge.functional.ones((1, 8, 3, 3))).shape
    (1, 4, 6, 6)
    """
