"""Resize, Upsample, AffineGrid and GridSample. Resizing is separable: one matrix of weights for each axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...functional._sample import cubic_far, cubic_near
from ...tensor import Tensor
from ._table import axis_of, counterpart, ints, need_no_double

_MOST_WEIGHTS = 2**28  # the most weights of an axis, 4 bytes each


def _plain_floats(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values.numpy() if isinstance(values, Tensor) else values).reshape(-1)]


def _source(count: int, extent: int, scale: float, how: str, roi: tuple[float, float]) -> np.ndarray:
    """Returns the place in the input of each of ``count`` results."""
    x, length = np.arange(count, dtype=np.float64), scale * extent
    if how == "align_corners":
        return x * (extent - 1) / (length - 1) if length != 1 else np.zeros(count)
    if how == "asymmetric":
        return x / scale
    if how == "tf_crop_and_resize":
        start, end = roi
        if length > 1:
            return start * (extent - 1) + x * (end - start) * (extent - 1) / (length - 1)
        return np.full(count, 0.5 * (start + end) * (extent - 1))
    if how == "pytorch_half_pixel" and length <= 1:
        return np.full(count, -0.5)
    if how == "half_pixel_symmetric":
        middle = extent / 2
        return middle * (1 - count / length) + (x + 0.5) / scale - 0.5
    return (x + 0.5) / scale - 0.5


_NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    d = np.abs(distance)
    return np.where(d <= 1, cubic_near(d, a), np.where(d < 2, cubic_far(d, a), 0.0))


def _weights(at: np.ndarray, extent: int, mode: str, scale: float, a: float, antialias: bool, exclude: bool) -> np.ndarray:
    """Returns [count, extent]: the weight of each element in each result; places outside take the
    border's element.
    """
    stretch = max(1.0, 1 / scale) if antialias else 1.0
    radius = math.ceil((2 if mode == "cubic" else 1) * stretch)
    places = np.floor(at)[:, None] + np.arange(1 - radius, radius + 1)
    distance = (places - at[:, None]) / stretch
    weights = _cubic(distance, a) if mode == "cubic" else np.maximum(1 - np.abs(distance), 0)
    if exclude:
        weights = np.where((places >= 0) & (places < extent), weights, 0)
    weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((at.size, extent))
    np.add.at(matrix, (np.arange(at.size)[:, None], np.clip(places, 0, extent - 1).astype(int)), weights)
    return matrix


def _counts(shape: Any, axes: list[int], scales: Any, sizes: Any, policy: str) -> tuple[list[int], list[float]]:
    """Returns extents and factors of the resized axes."""
    if sizes is None:
        factors = _plain_floats(scales)
        return [math.floor(shape[axis] * factor) for axis, factor in zip(axes, factors, strict=True)], factors
    counts = list(ints(sizes))
    if policy != "stretch":
        choose = min if policy == "not_larger" else max
        factor = choose(count / shape[axis] for axis, count in zip(axes, counts, strict=True))
        counts = [math.floor(shape[axis] * factor + 0.5) for axis in axes]
        return counts, [factor] * len(axes)
    return counts, [count / shape[axis] for axis, count in zip(axes, counts, strict=True)]


@counterpart("Resize", plain=(1, 2, 3))
def resize(
    x: Tensor, roi: Tensor | Sequence[float] | None = None, scales: Tensor | Sequence[float] | None = None, sizes: Tensor | Sequence[int] | None = None, *, antialias: int = 0, axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    axes = list(range(x.ndim)) if axes is None else [axis_of(axis, x.ndim) for axis in axes]
    if scales is not None and not len(_plain_floats(scales)):
        scales = None
    counts, factors = _counts(x.shape, axes, scales, sizes, keep_aspect_ratio_policy)
    corners = _plain_floats(roi) if roi is not None else []
    corners = corners if len(corners) == 2 * len(axes) else [0.0] * len(axes) + [1.0] * len(axes)
    if mode != "nearest":
        need_no_double("Resize", x)
    how, crops = coordinate_transformation_mode, coordinate_transformation_mode == "tf_crop_and_resize"
    y, outside = x if mode == "nearest" else x.astype("float32"), None
    for place, (axis, count, factor) in enumerate(zip(axes, counts, factors, strict=True)):
        if count == x.shape[axis] and factor == 1 and not crops:
            continue
        extent: Any = x.shape[axis]
        if not 0 < count * extent <= _MOST_WEIGHTS:
            raise ValueError(f"Resize: an axis of {extent} elements cannot become one of {count}")
        at = _source(count, extent, factor, how, (corners[place], corners[place + len(axes)]))
        if mode == "nearest":
            chosen = np.clip(_NEAREST[nearest_mode](at), 0, extent - 1).astype(np.int32)
            y = ops.index_get(y, Tensor(chosen), axes=(axis,))
        else:
            matrix = _weights(at, extent, mode, factor, cubic_coeff_a, bool(antialias), bool(exclude_outside))
            y = _mixed(y, Tensor(matrix.astype(np.float32)), axis)
        if crops:
            side = [-1 if a == axis else 1 for a in range(x.ndim)]
            there = ((at < 0) | (at > extent - 1)).reshape(side)
            outside = there if outside is None else outside | there
    if outside is not None:
        y = F.where(Tensor(np.broadcast_to(outside, y._tuple_shape)), F.full_like(y, extrapolation_value), y)
    return y.astype(x.dtype)


def _mixed(x: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Multiplies each line of x along ``axis`` by the matrix."""
    order = [a for a in range(x.ndim) if a != axis] + [axis]
    back = [order.index(a) for a in range(x.ndim)]
    last = F.transpose(x, order) if order != sorted(order) else x
    flat = F.reshape(last, (-1, x.shape[axis]))
    y = F.reshape(F.matmul(flat, matrix, transpose_b=True), (*last._tuple_shape[:-1], matrix.shape[0]))
    return F.transpose(y, back) if order != sorted(order) else y


@counterpart("Upsample", plain=(1,))
def upsample(x: Tensor, scales: Tensor | Sequence[float], *, mode: str = "nearest") -> Tensor:
    return resize(x, None, scales, coordinate_transformation_mode="asymmetric", mode=mode, nearest_mode="floor")


@counterpart("AffineGrid", plain=(1,))
def affine_grid(theta: Tensor, size: Tensor | Sequence[int], *, align_corners: int = 0) -> Tensor:
    """Returns the place in [-1, 1] from which each place of an image of ``size`` [n, c, spatial...]
    is taken. theta: [n, axes, axes + 1].
    """
    n, _, *extents = ints(size)
    lines = [
        np.linspace(-1, 1, extent) if align_corners else (2 * np.arange(extent) + 1) / extent - 1 for extent in extents
    ]
    grid = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(extents)], -1).reshape(-1, len(extents) + 1)
    placed = F.matmul(Tensor(np.ascontiguousarray(grid, np.float32)), theta, transpose_b=True)
    return F.reshape(placed, (n, *extents, len(extents)))


@counterpart("GridSample")
def grid_sample(x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros") -> Tensor:
    need_no_double("GridSample", x)
    return F.vision.grid_sample(x, grid, mode, padding_mode, bool(align_corners))
