"""Operators of regions of images: boxes, and kernels whose taps move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...functional._roi import aligned_boxes, clamped_sample
from ...tensor import Tensor
from ._table import counterpart, left_graph, number

_MOST_OF_IMAGE = 4  # how far boxes may reach beyond an image, relative to its size


@counterpart("RoiAlign")
def roi_align(
    x: Tensor, rois: Tensor, batch: Tensor, *, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """Samples boxes. sampling_ratio: samples of a bin along each axis; 0 takes one for each pixel,
    so that the largest box decides their number.
    """
    aligned, size = coordinate_transformation_mode == "half_pixel", (output_height, output_width)
    if mode not in ("avg", "max"):
        raise ValueError(f"RoiAlign: mode {mode!r} is neither 'avg' nor 'max'")
    if mode == "avg" and sampling_ratio > 0:
        boxes = F.concat([F.expand_dims(batch.astype("float32"), 1), rois.astype("float32")], axis=1)
        return aligned_boxes(x, boxes, size, "average", spatial_scale, sampling_ratio, aligned, clamped_sample)
    with nullcontext() if sampling_ratio > 0 else left_graph():
        return _reduced_samples(x, rois, batch, size, aligned, mode, sampling_ratio, spatial_scale)


def _reduced_samples(
    x: Tensor, rois: Tensor, batch: Tensor, size: tuple[int, int], aligned: bool, mode: str, ratio: int, spatial_scale: float
) -> Tensor:
    left, top, right, bottom = (rois[:, k].astype("float32") * spatial_scale - 0.5 * aligned for k in range(4))
    least = 0.0 if aligned else 1.0
    height, width = x._tuple_shape[2:]
    rows, row_counts = _samples(top, bottom, height, size[0], least=least, ratio=ratio)
    columns, column_counts = _samples(left, right, width, size[1], least=least, ratio=ratio)
    total: Any = None
    for i, y in enumerate(rows):
        for j, across in enumerate(columns):
            is_there = F.reshape(F.logical_and(i < row_counts, j < column_counts), (-1, 1, 1, 1))
            found = _corners(x, F.expand_dims(y, 2), F.expand_dims(across, 1), batch.astype("int32"))
            if mode == "max":
                value = F.maximum(F.maximum(found[0], found[1]), F.maximum(found[2], found[3]))
                value = F.where(F.broadcast_to(is_there, value._tuple_shape), value, F.full_like(value, -math.inf))
                total = value if total is None else F.maximum(total, value)
            else:
                value = sum(found[1:], found[0]) * is_there.astype("float32")
                total = value if total is None else total + value
    if mode == "max":
        total = F.where(F.equal(total, -math.inf), F.zeros_like(total), total)
    else:
        total = total / F.reshape(F.maximum(row_counts * column_counts, 1), (-1, 1, 1, 1))
    return F.transpose(total, (0, 3, 1, 2)).astype(x.dtype)


def _samples(
    begin: Tensor, end: Tensor, pixels: int, bins: int, *, least: float, ratio: int
) -> tuple[list[Tensor], Tensor]:
    """Places [boxes, bins] of each sample of the bins along an axis, and how many samples each box has."""
    extent = F.maximum(end - begin, least) if least else end - begin
    counts = F.full_like(extent, ratio) if ratio else F.ceil(extent / bins)
    most = ratio or _counted(number(F.max(extent)), pixels, bins)
    size, first = F.expand_dims(extent / bins, 1), F.expand_dims(begin, 1)
    line = Tensor(np.arange(bins, dtype=np.float32).reshape(1, -1))
    return [first + size * (line + (k + 0.5) / F.expand_dims(F.maximum(counts, 1.0), 1)) for k in range(most)], counts


def _counted(extent: float, pixels: int, bins: int) -> int:
    """Returns the samples of a bin of the largest box. ValueError for a box that is far too large
    for its image.
    """
    if not extent <= _MOST_OF_IMAGE * max(pixels, 1):  # NaN, too
        raise ValueError(
            f"RoiAlign: a box of {extent:g} pixels takes a sample for each; the image has {pixels}\n"
            "  fix: boxes within the image, or sampling_ratio above 0"
        )
    return max(1, math.ceil(extent / bins))


def _corners(x: Tensor, y: Tensor, across: Tensor, batch: Tensor) -> list[Tensor]:
    """Returns the four pixels [boxes, rows, columns, channels] around each place, times their
    weights; 0 more than a pixel outside of the image.
    """
    n, channels, height, width = x._tuple_shape
    pixels = F.reshape(F.transpose(x, (0, 2, 3, 1)), (n * height * width, channels))
    rows, columns = _two_near(y, height), _two_near(across, width)
    image = F.reshape(batch, (-1, 1, 1)) * height
    found = []
    for row, row_weight in rows:
        for column, weight in columns:
            places = (image + row) * width + column
            found.append(ops.index_get(pixels, places, axes=(0,)) * F.expand_dims(row_weight * weight, 3))
    return found


def _two_near(place: Tensor, extent: int) -> list[tuple[Tensor, Tensor]]:
    """Returns the whole places before and behind a place, and their weights."""
    inside = F.logical_and(place >= -1, place <= extent).astype("float32")
    place = F.clip(place, 0, extent - 1)
    before = F.floor(place)
    behind = F.minimum(before + 1, extent - 1)
    rest = place - before
    return [(before.astype("int32"), (1 - rest) * inside), (behind.astype("int32"), rest * inside)]


@counterpart("DeformConv")
def deform_conv(
    x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None, *, dilations: Sequence[int] | None = None,
    group: int = 1, kernel_shape: Sequence[int] | None = None, offset_group: int = 1, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Computes a deformable convolution. offset: (y, x) of each tap; its extents are those of the
    result, which give the padding at the end.
    """
    if x.ndim != 4:
        raise ValueError(f"DeformConv: takes images of two axes, not of {x.ndim - 2}")
    weight = w if group == 1 else F.reshape(w, (group, w._tuple_shape[0] // group, *w._tuple_shape[1:]))
    bias = None if b is None else F.reshape(b, (1, -1, 1, 1))
    stride, dilation, padding = (tuple(values or (least,) * 2)[:2] for values, least in ((strides, 1), (dilations, 1), (pads, 0)))
    return F.nn.deformable_conv2d(x, weight, offset, mask, bias, stride, padding, dilation, group)


@counterpart("NonMaxSuppression", plain=(2, 3, 4))
def non_max_suppression(
    boxes: Tensor, scores: Tensor, most: object = 0, iou_threshold: object = 0.0, score_threshold: object = None, *, center_point_box: int = 0
) -> Tensor:
    """Returns [selected, 3]: batch, class and box."""
    most, found = int(number(0 if most is None else most)), []
    corners = boxes.numpy().astype(np.float32)
    if center_point_box:
        middle, half = corners[..., :2], corners[..., 2:] / 2
        corners = np.concatenate([middle - half, middle + half], -1)
    corners = np.concatenate([np.minimum(corners[..., :2], corners[..., 2:]), np.maximum(corners[..., :2], corners[..., 2:])], -1)
    held = scores.numpy()
    for batch, kind in np.ndindex(*held.shape[:2]) if most > 0 else ():
        line = held[batch, kind]
        allowed = np.flatnonzero(line > (-np.inf if score_threshold is None else number(score_threshold)))
        if allowed.size:
            kept = F.vision.nms(Tensor(corners[batch][allowed]), Tensor(line[allowed]), float(number(iou_threshold or 0.0)), most)
            found += [(batch, kind, place) for place in allowed[kept.numpy()]]
    return Tensor(np.asarray(found, np.int64).reshape(-1, 3), dtype="int64")
