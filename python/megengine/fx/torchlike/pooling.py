"""Pooling with the arguments of torch's. Inputs have a batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...core.tensor.shapes import as_pair
from ...functional import _moving_window as moving
from ...tensor import Tensor
from .._intercept import wrap

Sizes = int | Sequence[int]


def is_plain(dilation: int | Sequence[int]) -> bool:
    return set(np.ravel(dilation)) == {1}


def _max_pool(rank: int):
    def pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        if return_indices:
            raise ValueError("return_indices=True: maxima are found without their places")
        if rank == 2 and is_plain(dilation):
            return F.max_pool2d(input, kernel_size, stride or kernel_size, padding, ceil_mode)
        return max_pool(input, rank, kernel_size, stride, padding, dilation, ceil_mode)

    return pool


def _avg_pool(rank: int):
    def pool(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        if divisor_override is not None:
            raise ValueError("divisor_override is not supported")
        if rank == 2:
            mode = "average" if count_include_pad else "average_count_exclude_padding"
            return F.avg_pool2d(input, kernel_size, stride or kernel_size, padding, mode, ceil_mode)
        return avg_pool(input, rank, kernel_size, stride, padding, ceil_mode, count_include_pad)

    return pool


def _windows(input: Tensor, rank: int, kernel: Sizes, stride: Any, padding: Sizes, dilation: Sizes, ceil: bool) -> list[Any]:
    extents = input._tuple_shape[input.ndim - rank :]
    kernel, stride, padding, dilation = (
        as_pair(size, "pooling", rank) for size in (kernel, stride or kernel, padding, dilation)
    )
    return moving.windows_of(extents, kernel, stride, dilation, padding * 2, "NOTSET", ceil)


@wrap
def max_pool(
    input: Tensor,
    rank: int,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Largest element of each window of the last ``rank`` axes."""
    return moving.max_pool(input, _windows(input, rank, kernel_size, stride, padding, dilation, ceil_mode))


@wrap
def avg_pool(
    input: Tensor,
    rank: int,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of the last ``rank`` axes."""
    return moving.avg_pool(input, _windows(input, rank, kernel_size, stride, padding, 1, ceil_mode), count_include_pad)


@wrap
def adaptive_max_pool2d(input: Tensor, output_size: int | Sequence[int], return_indices: bool = False) -> Tensor:
    """Maxima of equal shares of the last two axes, which overlap otherwise than `functional`'s windows."""
    if return_indices or None in np.ravel(output_size):
        raise ValueError("adaptive_max_pool2d with return_indices or a size of None")
    return ops.adaptive_max_pool(input, output=as_pair(output_size, "adaptive_max_pool2d"))


@wrap
def adaptive_avg_pool(input: Tensor, rank: int, output_size: Any) -> Tensor:
    """Means of equal shares of the last ``rank`` axes; a size of None keeps an axis."""
    sizes = output_size if isinstance(output_size, (tuple, list)) else [output_size] * rank
    if rank == 2 and None not in sizes:
        return ops.adaptive_avg_pool(input, output=as_pair(sizes, "adaptive_avg_pool"))
    for axis, count in enumerate(sizes, input.ndim - rank):
        extent = input._tuple_shape[axis]
        count = extent if count is None else count
        starts = np.arange(count) * extent // count
        ends = -(-(np.arange(count) + 1) * extent // count)
        places = np.arange(extent)[:, None]
        inside = (places >= starts) & (places < ends)
        shares = Tensor((inside / inside.sum(axis=0)).astype(np.float32)).astype(input.dtype)
        input = F.swapaxes(F.matmul(F.swapaxes(input, axis, -1), shares), axis, -1)
    return input


FUNCTIONS = {
    **{f"max_pool{rank}d": _max_pool(rank) for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d": _avg_pool(rank) for rank in (1, 2, 3)},
    "adaptive_avg_pool1d": lambda input, output_size: adaptive_avg_pool(input, 1, output_size),
    "adaptive_avg_pool2d": lambda input, output_size: adaptive_avg_pool(input, 2, output_size),
    "adaptive_avg_pool3d": lambda input, output_size: adaptive_avg_pool(input, 3, output_size),
    "adaptive_max_pool2d": adaptive_max_pool2d,
}
