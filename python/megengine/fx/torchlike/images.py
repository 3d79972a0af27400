"""Padding, resizing, shuffling and dropout, with the arguments of torch's. Inputs have a batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...core.tensor.shapes import as_pair
from ...functional._resize import resize_axes
from ...functional._roi import aligned_boxes, clamped_sample
from ...functional._window import pad_or_cut
from ...tensor import Tensor
from .._intercept import wrap


@wrap
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Adds (before, after) of the last axis, then of the one before, ...; negative ones cut away.

    mode: constant, reflect, replicate or circular.
    """
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    return pad_or_cut(input, [(0, 0)] * (input.ndim - len(pairs)) + pairs, mode, value or 0.0)


@wrap
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """[n, c, spatial...] resized to ``size`` or by ``scale_factor``."""
    if antialias or mode == "area":
        raise ValueError(f"interpolate: antialias={antialias}, mode={mode!r} is not supported")
    spatial = input._tuple_shape[2:]
    if size is None:
        size = _scaled_sizes(spatial, scale_factor, recompute_scale_factor)
    size = as_pair(size, "interpolate: size", len(spatial))
    if mode.startswith("nearest"):
        for axis, (extent, wanted) in enumerate(zip(spatial, size, strict=True), 2):
            shift = 0.5 if mode == "nearest-exact" else 0
            places = np.floor((np.arange(wanted) + shift) * (extent / wanted)).astype(np.int32)
            input = input[(slice(None),) * axis + (Tensor(places),)]
        return input
    if mode == "bicubic" and align_corners:  # F.vision.interpolate has it for the linear family only
        return resize_axes(input, size, mode, align_corners=True)
    return F.vision.interpolate(input, size, mode=mode, align_corners=None if mode == "bicubic" else bool(align_corners))


def _scaled_sizes(spatial: Sequence[int], scale: Any, recompute: bool | None) -> list[int]:
    scales = scale if isinstance(scale, (tuple, list)) else (scale,) * len(spatial)
    exact = [n * factor for n, factor in zip(spatial, scales, strict=True)]
    if not recompute and any(size != int(size) for size in exact):
        raise ValueError(f"interpolate: {list(spatial)} times {list(scales)} are not whole sizes")
    return [int(size) for size in exact]


@wrap
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of ``groups`` groups taken in turns."""
    n, c, *rest = input._tuple_shape
    return F.swapaxes(input.reshape(n, groups, c // groups, *rest), 1, 2).reshape(n, c, *rest)


def glu(input, dim=-1):
    return F.glu(input, dim)


def dropout(input, p=0.5, training=True, inplace=False):
    return F.dropout(input, p, training) if training and p else input


def stochastic_depth(input, p, mode, training=True):
    if training and p:
        raise ValueError("stochastic depth in training mode; call eval() first")
    return input


def feature_dropout(input, p=0.5, training=True, inplace=False):
    return F.dropout2d(input, p, training) if training and p else input


@wrap
def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None) -> Tensor:
    """input [n, c, spatial...] at the places of grid [n, places..., axes], in [-1, 1]."""
    return F.vision.grid_sample(input, grid, mode, padding_mode, bool(align_corners))


_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    return grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


@wrap
def roi_align(
    input: Tensor,
    boxes: Tensor | list[Tensor] | tuple[Tensor, ...],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """boxes: [m, 5] of (image, x1, y1, x2, y2), or a list of an image's [m, 4] each."""
    if sampling_ratio < 1:
        raise ValueError("roi_align with as many samples as each box has pixels; give sampling_ratio")
    if isinstance(boxes, (tuple, list)):
        numbers = [F.full((each._tuple_shape[0], 1), float(image)) for image, each in enumerate(boxes)]
        boxes = F.concat([F.concat([number, each], 1) for number, each in zip(numbers, boxes, strict=True)])
    return aligned_boxes(input, boxes, output_size, "average", spatial_scale, sampling_ratio, aligned, clamped_sample)


def roi_align_operator(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    return roi_align(input, rois, (pooled_height, pooled_width), spatial_scale, sampling_ratio, aligned)


FUNCTIONS = {
    "grid_sample": grid_sample, "grid_sampler": grid_sampler, "grid_sampler_2d": grid_sampler, "grid_sampler_3d": grid_sampler,
    "torchvision.ops.roi_align.roi_align": roi_align, "torchvision::roi_align": roi_align_operator,
    "pad": pad, "interpolate": interpolate, "upsample": interpolate,
    "pixel_shuffle": lambda input, upscale_factor: F.pixel_shuffle(input, upscale_factor),
    "pixel_unshuffle": lambda input, downscale_factor: F.pixel_unshuffle(input, downscale_factor), "channel_shuffle": channel_shuffle, "glu": glu, "dropout": dropout,
    "dropout1d": feature_dropout, "dropout2d": feature_dropout, "dropout3d": feature_dropout,
    "torchvision.ops.stochastic_depth.stochastic_depth": stochastic_depth,
}  # fmt: skip
