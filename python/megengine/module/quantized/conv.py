"""Convolutions on integers. Symmetric 8-bit ones multiply and add in 8 and 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functional as F
from ...core.tensor.quantized import in_dtype, real_values
from ...functional import quantized as FQ
from ...tensor import Tensor
from .. import conv as Float
from .._conv_base import Size
from .module import Plain

__all__ = ["Conv2d", "ConvRelu2d", "ConvTranspose2d", "ConvTransposeRelu2d"]


class Conv2d(Float.Conv2d, Plain):
    """Conv2d of a quantized input. weight: quantized; bias: float32, rounded to the accumulator's scale when used.

    dtype: of the result, quantized.
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
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: np.dtype | None = None,
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
            True,
            conv_mode,
            compute_mode,
            padding_mode,
            **kwargs,
        )
        self.output_dtype = dtype

    def calc_conv_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """The convolution, with an activation: "identity" or "relu"."""
        inp, padding = self._padded(inp)
        return FQ.conv_bias_activation(
            inp,
            self.weight,
            self.bias,
            self.output_dtype,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            nonlinear_mode,
            self.conv_mode,
            self.compute_mode,
        )

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp, self._nonlinear_mode)


class ConvRelu2d(Conv2d):
    """relu(Conv2d(x)) on integers."""

    _nonlinear_mode = "relu"


class ConvTranspose2d(Float.ConvTranspose2d, Plain):
    """ConvTranspose2d of a quantized input, computed in float32 between the roundings; arguments as in Conv2d."""

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
        dtype: np.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
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
            **kwargs,
        )
        self.output_dtype = dtype

    def calc_conv_transpose2d_quantized(
        self, inp: Tensor, nonlinear_mode: str = "identity"
    ) -> Tensor:
        """The transposed convolution, with an activation: "identity" or "relu"."""
        use_relu = FQ.is_relu(nonlinear_mode)
        y = self.calc_conv_transpose2d(real_values(inp), real_values(self.weight), self.bias)
        return in_dtype(F.nn.relu(y) if use_relu else y, self.output_dtype)

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp, self._nonlinear_mode)


class ConvTransposeRelu2d(ConvTranspose2d):
    """relu(ConvTranspose2d(x)) of a quantized input."""

    _nonlinear_mode = "relu"
