"""Reading images at real-valued places. Coordinates count pixels: (0, 0) is the centre of the
first.
"""

import math
from typing import Any, TypeVar

import numpy as np

from .._core import note_extent_read
from ..core import apply_const, ops
from ..tensor import Tensor

_T = TypeVar("_T", Tensor, np.ndarray, float)

BORDERS = ("replicate", "reflect", "reflect_101", "wrap", "constant", "transparent", "isolated")
INTERPOLATIONS = ("nearest", "linear", "area", "cubic", "lanczos4")


def check_border(mode: str, op: str) -> str:
    kind = str(mode).lower()
    if kind not in BORDERS:
        raise ValueError(f"{op}: border_mode {mode!r} is not one of {', '.join(BORDERS)}")
    return kind


def check_interpolation(mode: str, op: str) -> str:
    kind = str(mode).lower()
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(kind, kind)
    if kind not in INTERPOLATIONS:
        raise ValueError(f"{op}: interp_mode {mode!r} is not one of {', '.join(INTERPOLATIONS)}")
    return kind


def _folded(index: Tensor, extent: int, border: str) -> tuple[Tensor, Tensor | None]:
    """Returns int32 positions inside [0, extent) and, for constant-like borders, a mask of those
    that were inside (else None).
    """
    top = extent - 1
    if border in ("constant", "transparent", "isolated"):
        inside = ops.logical_and(ops.greater_equal(index, 0), ops.less_equal(index, top))
        return ops.minimum(ops.maximum(index, 0), top), inside
    if border == "wrap":
        return ops.mod(index, extent), None
    if border == "replicate" or extent == 1:
        return ops.minimum(ops.maximum(index, 0), top), None
    if border == "reflect":  # fedcba|abcdef|fedcba
        place = ops.mod(index, 2 * extent)
        return ops.minimum(place, ops.sub(2 * extent - 1, place)), None
    place = ops.mod(index, 2 * top)  # reflect_101: fedcb|abcdef|edcba
    return ops.minimum(place, ops.sub(2 * top, place)), None


def _weights(fraction: Tensor, interp: str) -> list[tuple[int, Tensor]]:
    """Returns (offset from the floor, weight) of each tap along one axis."""
    if interp in ("linear", "area"):
        return [(0, ops.sub(1.0, fraction)), (1, fraction)]
    return cubic_taps(fraction) if interp == "cubic" else _lanczos4(fraction)


def cubic_taps(t: _T) -> list[tuple[int, _T]]:
    """Returns (offset from the floor, weight) of Keys' cubic convolution; t: how far behind the
    floor, an array or tensor.
    """
    return [
        (-1, cubic_far(1 + t)),
        (0, cubic_near(t)),
        (1, cubic_near(1 - t)),
        (2, cubic_far(2 - t)),
    ]


def cubic_near(d: _T, a: float = -0.75) -> _T:
    """Computes the weight at a distance up to 1. Source: Keys, 1981, "Cubic Convolution
    Interpolation for Digital Image
    Processing", equation 15; a: that of common image libraries.
    """
    return ((a + 2) * d - (a + 3)) * d * d + 1


def cubic_far(d: _T, a: float = -0.75) -> _T:
    """Computes the weight at a distance from 1 to 2."""
    return (((d - 5) * d + 8) * d - 4) * a


def _lanczos4(t: Tensor) -> list[tuple[int, Tensor]]:
    """sinc(d) * sinc(d / 4) at eight taps, scaled to a sum of 1."""
    taps = []
    for offset in range(-3, 5):
        d = ops.mul(ops.sub(t, float(offset)), np.pi)
        near = ops.less(ops.abs(d), 1e-4)
        safe = ops.where(near, ops.full(shape=(), value=1.0, dtype="float32", device=d), d)
        w = ops.true_div(
            ops.mul(ops.sin(safe), ops.sin(ops.mul(safe, 0.25))), ops.mul(ops.square(safe), 0.25)
        )
        taps.append(
            (offset, ops.where(near, ops.full(shape=(), value=1.0, dtype="float32", device=w), w))
        )
    total = taps[0][1]
    for _, w in taps[1:]:
        total = ops.add(total, w)
    return [(offset, ops.true_div(w, total)) for offset, w in taps]


def sample(
    images: Tensor,
    y: Tensor,
    x: Tensor,
    border: str,
    value: float = 0.0,
    interp: str = "linear",
    batch: Tensor | None = None,
) -> Tensor:
    """Reads images [n, c, h, w] at rows ``y`` and columns ``x`` [m, ...]; returns [m, ..., c].
    ``batch`` [m] (int32) names the images; None takes one each. Differentiable in images, y and x
    (not
    for nearest).
    """
    n, c, h, w = images._tuple_shape
    if batch is None:
        note_extent_read(images, 0)
        batch = apply_const(np.arange(n, dtype=np.int32))
    first_row = ops.mul(ops.reshape(batch, shape=(math.prod(batch._tuple_shape),) + (1,) * (y.ndim - 1)), h)
    pixels = ops.reshape(to_nhwc(images), shape=(n * h * w, c))  # one row for each pixel
    rows: list[tuple[Tensor, Tensor | None]]
    cols: list[tuple[Tensor, Tensor | None]]
    if interp == "nearest":
        rows = [(_to_int(ops.floor(ops.add(y, 0.5))), None)]
        cols = [(_to_int(ops.floor(ops.add(x, 0.5))), None)]
    else:
        rows, cols = _taps(y, interp), _taps(x, interp)
    folded_cols = [(_folded(i, w, border), weight) for i, weight in cols]
    out: Any = None  # a Tensor after the first tap
    for index, row_weight in rows:
        row, row_inside = _folded(index, h, border)
        line = ops.mul(ops.add(first_row, row), w)
        for (col, col_inside), col_weight in folded_cols:
            inside = None if row_inside is None else ops.logical_and(row_inside, col_inside)
            weight = None if row_weight is None else ops.mul(row_weight, col_weight)
            pixel = ops.index_get(pixels, ops.add(line, col), axes=(0,))  # [m, ..., c]
            out = _accumulate(out, pixel, inside, weight, value)
    return out


def _accumulate(
    out: Tensor | None, pixel: Tensor, inside: Tensor | None, weight: Tensor | None, value: float
) -> Tensor:
    """Adds weight * (pixel if inside, else value) to out; None stands for 0, everywhere and 1."""
    if inside is not None:
        if value == 0 and weight is not None:
            weight = ops.mul(weight, ops.cast(inside, dtype=weight.dtype.name))
        else:
            outside = ops.full(shape=(), value=float(value), dtype=pixel.dtype.name, device=pixel)
            pixel = ops.where(_last_axis(inside), pixel, outside)
    if weight is None:
        return pixel
    weight = _last_axis(weight)
    return ops.mul(pixel, weight) if out is None else ops.fma3(pixel, weight, out)


def _taps(place: Tensor, interp: str) -> list[tuple[Tensor, Tensor | None]]:
    base = ops.floor(place.detach())
    start = _to_int(base)
    return [
        (ops.add(start, offset), weight)
        for offset, weight in _weights(ops.sub(place, base), interp)
    ]


def _to_int(x: Tensor) -> Tensor:
    # Far-away and nan coordinates must not overflow int32.
    return ops.cast(ops.minimum(ops.maximum(x.detach(), -1e6), 1e6), dtype="int32")


def _last_axis(x: Tensor) -> Tensor:
    return ops.reshape(x, shape=x._tuple_shape + (1,))


def to_nchw(x: Tensor) -> Tensor:
    return ops.transpose(x, perm=(0, 3, 1, 2))


def to_nhwc(x: Tensor) -> Tensor:
    return ops.transpose(x, perm=(0, 2, 3, 1))


def back_to_dtype(sampled: Tensor, dtype: np.dtype) -> Tensor:
    """Casts results to the images' dtype; integers are rounded and clipped."""
    if sampled.dtype == dtype:
        return sampled
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        sampled = ops.minimum(ops.maximum(ops.round(sampled), float(info.min)), float(info.max))
    return ops.cast(sampled, dtype=dtype.name)


def grid(h: int, w: int) -> tuple[Tensor, Tensor]:
    """Row and column numbers of an h by w image, each [1, h, w], float32."""
    rows, cols = np.mgrid[0:h, 0:w].astype(np.float32)
    return apply_const(rows[None]), apply_const(cols[None])
