"""Images sampled at places in [-1, 1], as ONNX's GridSample and PyTorch's grid_sample do."""

import math
from typing import Any

import numpy as np

from .._core import note_extent_read
from ..core import ops
from ..core.tensor.array_method import require_tensors
from ..tensor import Tensor
from ._sample import cubic_taps
from .elemwise import clip, equal, floor, logical_and
from .tensor import broadcast_to, expand_dims, ones_like, reshape, transpose, where, zeros_like

_MODES = ("bilinear", "nearest", "bicubic", "linear", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


def grid_sample(
    inp: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """Samples images at places that are given relative to their size: -1 and 1 are the edges.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, spatial...], float dtype.
    grid : Tensor
        Places, [n, places..., axes]: a number for each spatial axis, the last axis first, such as
        (x, y) for images.
    mode : str
        "nearest", "bilinear" (or "linear", for any number of axes) or "bicubic" (or "cubic").
    padding_mode : str
        What lies outside: "zeros", "border" (the outermost element) or "reflection".
    align_corners : bool
        Whether -1 and 1 are the middles of the outermost elements, not their outer edges.

    Returns
    -------
    Tensor
        [n, c, places...], the dtype of ``inp``; gradients flow to both tensors.

    Raises
    ------
    ValueError
        For an unknown mode, or shapes that do not fit.

    References
    ----------
    Jaderberg et al., 2015, "Spatial Transformer Networks".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> image, places = Tensor([[[[0.0, 3.0]]]]), Tensor([[[[-0.5, 0.0], [0.0, 0.0]]]])
    >>> F.vision.grid_sample(image, places).numpy()
    array([[[[0. , 1.5]]]], dtype=float32)
    """
    require_tensors("grid_sample", inp, grid)
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise ValueError(f"grid_sample: mode {mode!r}, padding_mode {padding_mode!r}\n  fix: use one of {', '.join(_MODES)}, and one of {', '.join(_PADDINGS)}")
    x, dims = inp, inp.ndim - 2
    if dims < 1 or grid.ndim != inp.ndim or grid._tuple_shape[0] != inp._tuple_shape[0] or grid._tuple_shape[-1] != dims:
        raise ValueError(
            f"grid_sample: inp has shape {list(inp._tuple_shape)}, grid {list(grid._tuple_shape)}\n"
            f"  fix: give [n, c, spatial...] and [n, places..., axes], with a number for each spatial axis"
        )
    n, c = x._tuple_shape[:2]
    flat = reshape(grid, (n, -1, dims))
    lines = []  # per spatial axis: (place, weight) of each neighbour, both [n, points]
    for axis in range(dims):
        extent, at = x._tuple_shape[2 + axis], flat[:, :, dims - 1 - axis]
        at = in_pixels(at, extent, align_corners)
        lines.append(_neighbours(at, extent, mode, padding_mode, align_corners))
    note_extent_read(x, 0)
    batch = broadcast_to(Tensor(np.arange(n, dtype=np.int32).reshape(n, 1)), flat._tuple_shape[:2])
    images = transpose(x, (0, *range(2, x.ndim), 1))
    total: Any = None  # a Tensor after the first neighbour
    for choice in np.ndindex(*(len(line) for line in lines)):
        chosen = [lines[axis][which] for axis, which in enumerate(choice)]
        weight = math.prod((w for _, w in chosen[1:]), start=chosen[0][1])
        values = ops.index_get(images, batch, *(place for place, _ in chosen), axes=tuple(range(dims + 1)))
        part = values * expand_dims(weight, 2)
        total = part if total is None else total + part
    return reshape(transpose(total, (0, 2, 1)), (n, c, *grid._tuple_shape[1:-1])).astype(x.dtype)


def in_pixels(at: Tensor, extent: int, aligned: bool) -> Tensor:
    """A place in [-1, 1] as an index that need not be whole."""
    return (at + 1) / 2 * (extent - 1) if aligned else ((at + 1) * extent - 1) / 2


def _neighbours(at: Tensor, extent: int, mode: str, padding: str, aligned: bool) -> list[tuple[Tensor, Tensor]]:
    """Places and weights along one axis; a weight is 0 where padding stands."""
    if padding == "border" and mode not in ("cubic", "bicubic"):
        at = clip(at, 0, extent - 1)
    elif padding == "reflection" and mode not in ("cubic", "bicubic"):
        at = reflected(at, extent, aligned)
    low = floor(at)
    part = at - low
    if mode == "nearest":
        rounded = where(equal(part, 0.5), ops.round(at * 0.5) * 2, floor(at + 0.5))
        found = [(rounded, ones_like(at))]
    elif mode in ("linear", "bilinear"):
        found = [(low, 1 - part), (low + 1, part)]
    else:
        found = [(low + offset, weight) for offset, weight in cubic_taps(part)]
    placed = []
    for place, weight in found:
        if padding == "reflection":
            place = reflected(place, extent, aligned)
        inside = logical_and(place >= 0, place <= extent - 1).astype("float32")
        weight = weight * inside if padding == "zeros" else weight
        placed.append((clip(ops.round(place), 0, extent - 1).astype("int32"), weight))
    return placed


def reflected(at: Tensor, extent: int, aligned: bool) -> Tensor:
    """Mirrors places at the middles of the outermost elements if aligned, else at their outer
    edges.
    """
    low, span = (0.0, extent - 1.0) if aligned else (-0.5, float(extent))
    if span <= 0:
        return zeros_like(at)
    distance = ops.abs(at - low)
    turns = floor(distance / span)
    rest = distance - turns * span
    is_odd = equal(turns - floor(turns / 2) * 2, 1)
    return where(is_odd, span - rest, rest) + low
