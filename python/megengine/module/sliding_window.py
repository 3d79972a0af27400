"""Windows of an image and their sum back into one."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from ._conv_base import Size
from .module import Module

__all__ = ["SlidingWindow", "SlidingWindowTranspose"]


class SlidingWindow(Module):
    """(N, C, H, W) to (N, C, OH, OW, kh, kw): the window of each output position of a convolution."""

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
        return F.sliding_window(inp, self.kernel_size, self.padding, self.stride, self.dilation)


class SlidingWindowTranspose(Module):
    """(N, C, IH, IW, kh, kw) to (N, C, *output_size): overlapping windows are added up."""

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
        return F.sliding_window_transpose(
            inp, self.output_size, self.kernel_size, self.padding, self.stride, self.dilation
        )
