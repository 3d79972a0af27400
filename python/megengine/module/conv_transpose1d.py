"""Transposed convolution of lines."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from ._conv_base import Size, _ConvTransposeNd

__all__ = ["ConvTranspose1d"]


class ConvTranspose1d(_ConvTransposeNd):
    """Upsamples lines by a transposed convolution, the gradient of `Conv1d` for its input.

    (N, in_channels, L) to (N, out_channels, OL), where OL = (L - 1) * stride - 2 * padding +
    dilation * (kernel_size - 1) + output_padding + 1. weight (in, out, k); bias (1, out, 1).

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, output_padding, dilation : int
        Elements of a kernel, distance of the windows of two neighbouring input elements, elements
        cut off at both ends of the output, elements added at its end, and distance of a kernel's
        elements.
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether to add a learned number to each output channel.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.ConvTranspose1d(8, 4, kernel_size=4, stride=2, padding=1)(mge.functional.ones((1, 8, 16))).shape
    (1, 4, 32)
    """

    _rank = 1
    output_padding: Size = 0

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
        sizes = (kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, *sizes, groups, bias, output_padding=output_padding, **kwargs)

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the transposed convolution of ``inp`` (N, in_channels, L).

        Parameters
        ----------
        inp : Tensor
            Sequences of shape (N, in_channels, L).

        Returns
        -------
        Tensor
            (N, out_channels, OL).
        """
        sizes = (self.stride, self.padding, self.output_padding, self.dilation)
        return F.conv_transpose1d(inp, self.weight, self.bias, *sizes, self.groups)
