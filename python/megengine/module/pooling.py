"""Pooling with a window."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["AvgPool2d", "MaxPool2d"]


class _PoolNd(Module):
    """kernel_size, stride, padding: an int or one for height and one for width; stride None: the kernel."""

    _repr_facts = "kernel_size={0.kernel_size}, stride={0.stride}, padding={0.padding}"

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.stride = stride or kernel_size
        self.padding = padding


class MaxPool2d(_PoolNd):
    """Maximum of each window: (N, C, H, W) to (N, C, OH, OW), OH = (H + 2 padding - kernel) // stride + 1."""

    def forward(self, inp: Tensor) -> Tensor:
        return F.max_pool2d(inp, self.kernel_size, self.stride, self.padding)


class AvgPool2d(_PoolNd):
    """Mean of each window; sizes as in MaxPool2d.

    mode: average_count_exclude_padding divides by the elements inside the input, average by the window.
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        mode: str = "average_count_exclude_padding",
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel_size, stride, padding, **kwargs)
        self.mode = mode

    def forward(self, inp: Tensor) -> Tensor:
        return F.avg_pool2d(inp, self.kernel_size, self.stride, self.padding, self.mode)

    def _module_info_string(self) -> str:
        return super()._module_info_string() + f", mode={self.mode}"
