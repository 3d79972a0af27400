"""Images sampled at places in [-1, 1], as ONNX's GridSample and torch's grid_sample do."""

import math
from typing import Any

import numpy as np

from .. import functional as F
from .._core import note_extent_read
from ..core import ops
from ..tensor import Tensor
from ._sample import cubic_taps


def sample_grid(x: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
    """x: [n, c, spatial...]; grid: [n, places..., axes], the last spatial axis first, in [-1, 1].

    mode: "nearest", "linear" (or "bilinear"), "cubic" (or "bicubic"). padding_mode: "zeros", "border", "reflection". align_corners: -1 and 1 are the
    middles of the outermost elements, not their outer edges. Returns [n, c, places...]; gradients flow to both.
    """
    dims = x.ndim - 2
    n, c = x._tuple_shape[:2]
    flat = F.reshape(grid, (n, -1, dims))
    lines = []  # for each spatial axis: (place, weight) of the neighbours, [n, points] each
    for axis in range(dims):
        extent, at = x._tuple_shape[2 + axis], flat[:, :, dims - 1 - axis]
        at = (at + 1) / 2 * (extent - 1) if align_corners else ((at + 1) * extent - 1) / 2
        lines.append(_neighbours(at, extent, mode, padding_mode, align_corners))
    note_extent_read(x, 0)
    batch = F.broadcast_to(Tensor(np.arange(n, dtype=np.int32).reshape(n, 1)), flat._tuple_shape[:2])
    images = F.transpose(x, (0, *range(2, x.ndim), 1))
    total: Any = None  # a Tensor after the first neighbour
    for choice in np.ndindex(*(len(line) for line in lines)):
        chosen = [lines[axis][which] for axis, which in enumerate(choice)]
        weight = math.prod((w for _, w in chosen[1:]), start=chosen[0][1])
        values = ops.index_get(images, batch, *(place for place, _ in chosen), axes=tuple(range(dims + 1)))
        part = values * F.expand_dims(weight, 2)
        total = part if total is None else total + part
    return F.reshape(F.transpose(total, (0, 2, 1)), (n, c, *grid._tuple_shape[1:-1])).astype(x.dtype)


def _neighbours(at: Tensor, extent: int, mode: str, padding: str, aligned: bool) -> list[tuple[Tensor, Tensor]]:
    """Places and weights along one axis; a weight is 0 where padding stands."""
    if padding == "border" and mode not in ("cubic", "bicubic"):
        at = F.clip(at, 0, extent - 1)
    elif padding == "reflection" and mode not in ("cubic", "bicubic"):
        at = _reflected(at, extent, aligned)
    low = F.floor(at)
    part = at - low
    if mode == "nearest":
        rounded = F.where(F.equal(part, 0.5), F.round(at * 0.5) * 2, F.floor(at + 0.5))
        found = [(rounded, F.ones_like(at))]
    elif mode in ("linear", "bilinear"):
        found = [(low, 1 - part), (low + 1, part)]
    else:
        found = [(low + offset, weight) for offset, weight in cubic_taps(part)]
    placed = []
    for place, weight in found:
        if padding == "reflection":
            place = _reflected(place, extent, aligned)
        inside = F.logical_and(place >= 0, place <= extent - 1).astype("float32")
        weight = weight * inside if padding == "zeros" else weight
        placed.append((F.clip(F.round(place), 0, extent - 1).astype("int32"), weight))
    return placed


def _reflected(at: Tensor, extent: int, aligned: bool) -> Tensor:
    """Mirrored at the middles of the outermost elements when aligned, else at their outer edges."""
    low, span = (0.0, extent - 1.0) if aligned else (-0.5, float(extent))
    if span <= 0:
        return F.zeros_like(at)
    distance = F.abs(at - low)
    turns = F.floor(distance / span)
    rest = distance - turns * span
    is_odd = F.equal(turns - F.floor(turns / 2) * 2, 1)
    return F.where(is_odd, span - rest, rest) + low
