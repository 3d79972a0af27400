"""Pooling with the arguments of torch's. Inputs have a batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...core.tensor.shapes import as_pair
from ...tensor import Tensor
from .._intercept import wrap

Sizes = int | Sequence[int]


def is_plain(dilation: Any, ceil_mode: bool) -> bool:
    return not ceil_mode and set(np.ravel(dilation)) == {1}


def max_pool2d(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    if return_indices:
        raise ValueError("return_indices=True: maxima are found without their places")
    if is_plain(dilation, ceil_mode):
        return F.max_pool2d(input, kernel_size, stride or kernel_size, padding)
    return max_pool(input, 2, kernel_size, stride, padding, dilation, ceil_mode)


def avg_pool2d(
    input,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    if divisor_override is not None:
        raise ValueError("divisor_override is not supported")
    if not ceil_mode:
        mode = "average" if count_include_pad else "average_count_exclude_padding"
        return F.avg_pool2d(input, kernel_size, stride or kernel_size, padding, mode)
    return avg_pool(input, 2, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _max_pool(rank: int):
    def pool(
        input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
    ):
        if return_indices:
            raise ValueError("return_indices=True: maxima are found without their places")
        return max_pool(input, rank, kernel_size, stride, padding, dilation, ceil_mode)

    return pool


def _avg_pool(rank: int):
    def pool(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        return avg_pool(input, rank, kernel_size, stride, padding, ceil_mode, count_include_pad)

    return pool


max_pool1d, max_pool3d = _max_pool(1), _max_pool(3)
avg_pool1d, avg_pool3d = _avg_pool(1), _avg_pool(3)


def _windows(extent: int, kernel: int, stride: int, pad: int, dilation: int, ceil: bool) -> np.ndarray:
    """[windows, kernel] places in an axis without its padding; those outside belong to the padding."""
    span = dilation * (kernel - 1) + 1
    room = extent + 2 * pad - span
    count = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (count - 1) * stride >= extent + pad:
        count -= 1  # a window must begin in the input or before it
    return np.arange(count)[:, None] * stride - pad + np.arange(kernel) * dilation


def _each_axis(rank: int, kernel: Sizes, stride: Sizes | None, *others: Sizes):
    """(kernel, stride, others...) of each axis."""
    values = (kernel, stride or kernel, *others)
    return zip(*(as_pair(value, "pooling", rank) for value in values), strict=True)


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
    """Largest element of each window of the last ``rank`` axes, one axis after the other."""
    axes = range(input.ndim - rank, input.ndim)
    for axis, sizes in zip(axes, _each_axis(rank, kernel_size, stride, padding, dilation), strict=True):
        extent = input._tuple_shape[axis]
        window, step, before, gap = sizes
        places = _windows(extent, window, step, before, gap, ceil_mode)
        # Padding never wins: places outside stand for the nearest place of the window inside.
        inside = np.where((places >= 0) & (places < extent), places, -1)
        places = np.where(inside < 0, inside.max(axis=1, keepdims=True), inside)
        index = (slice(None),) * axis + (Tensor(places.astype(np.int32)),)
        input = F.max(input[index], axis=axis + 1)
    return input


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
    """Mean of each window of the last ``rank`` axes: one product with a matrix for each axis."""
    matrices = []
    for axis, sizes in enumerate(_each_axis(rank, kernel_size, stride, padding), input.ndim - rank):
        extent = input._tuple_shape[axis]
        window, step, before = sizes
        places = _windows(extent, window, step, before, 1, ceil_mode)
        inside = (places >= 0) & (places < extent)
        counted = places < extent + before if count_include_pad else inside
        matrix = np.zeros((len(places), extent), np.float32)
        np.add.at(matrix, (np.nonzero(inside)[0], places[inside]), 1)
        matrices.append(matrix / counted.sum(axis=1, keepdims=True))
    return _along_axes(input, matrices)


def _along_axes(input: Tensor, matrices: list[np.ndarray]) -> Tensor:
    """Each of the last axes multiplied by its matrix."""
    for axis, matrix in enumerate(matrices, input.ndim - len(matrices)):
        last = F.swapaxes(input, axis, -1)
        last = F.matmul(last, Tensor(matrix.T).astype(input.dtype))
        input = F.swapaxes(last, axis, -1)
    return input


def adaptive_avg_pool2d(input, output_size):
    if None in np.ravel(output_size):
        return adaptive_avg_pool(input, 2, output_size)
    return F.adaptive_avg_pool2d(input, output_size)


def adaptive_max_pool2d(input, output_size, return_indices=False):
    if return_indices or None in np.ravel(output_size):
        raise ValueError("adaptive_max_pool2d with return_indices or a size of None")
    return F.adaptive_max_pool2d(input, output_size)


def adaptive_avg_pool1d(input, output_size):
    return adaptive_avg_pool(input, 1, output_size)


def adaptive_avg_pool3d(input, output_size):
    return adaptive_avg_pool(input, 3, output_size)


@wrap
def adaptive_avg_pool(input: Tensor, rank: int, output_size: Any) -> Tensor:
    """Means of equal shares of the last ``rank`` axes; a size of None keeps an axis."""
    sizes = output_size if isinstance(output_size, (tuple, list)) else [output_size] * rank
    matrices = []
    for extent, count in zip(input._tuple_shape[-rank:], sizes, strict=True):
        count = extent if count is None else count
        starts = np.arange(count) * extent // count
        ends = -(-(np.arange(count) + 1) * extent // count)
        places = np.arange(extent)
        inside = (places >= starts[:, None]) & (places < ends[:, None])
        matrices.append((inside / inside.sum(axis=1, keepdims=True)).astype(np.float32))
    return _along_axes(input, matrices)
